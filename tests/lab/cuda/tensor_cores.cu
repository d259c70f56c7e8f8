// The instructions of tensor cores, on fragments that the test gives lane by lane, after number.cuh.
template <typename Number>
__global__ void product(const unsigned* a, const unsigned* b, float* c) {
    const int lane = threadIdx.x;
    unsigned left[4], right[2];
    float sum[4];
    for (int i = 0; i < 4; ++i) left[i] = a[lane * 4 + i], sum[i] = c[lane * 4 + i];
    for (int i = 0; i < 2; ++i) right[i] = b[lane * 2 + i];
    mma_m16n8k16<Number>(sum, left, right);
    for (int i = 0; i < 4; ++i) c[lane * 4 + i] = sum[i];
}
__global__ void matrices(const unsigned short* rows, const int* start, unsigned* words) {
    DYNAMIC_SHARED(unsigned short, shared);
    for (int i = threadIdx.x; i < 512; i += blockDim.x) shared[i] = rows[i];
    __syncthreads();
    unsigned word[4];
    ldmatrix_x4(word, shared + start[threadIdx.x]);
    for (int i = 0; i < 4; ++i) words[threadIdx.x * 4 + i] = word[i];
}
__global__ void transposed(unsigned* words) {
    words[threadIdx.x] = movmatrix_trans(words[threadIdx.x]);
}
// Wrong: some lanes at another place, and some not at all
__global__ void two_places(float* y, int n) {
    const unsigned left[4] = {}, right[2] = {};
    float sum[4] = {};
    if (threadIdx.x < n) mma_m16n8k16<bfloat16>(sum, left, right);
    else mma_m16n8k16<bfloat16>(sum, left, right);
    y[threadIdx.x] = sum[0];
}
__global__ void some_lanes(float* y, int n) {
    const unsigned left[4] = {}, right[2] = {};
    float sum[4] = {};
    if (threadIdx.x < n) mma_m16n8k16<bfloat16>(sum, left, right);
    y[threadIdx.x] = sum[0];
}
__global__ void rows_of(float* y, int n) {
    DYNAMIC_SHARED(unsigned short, shared);
    unsigned word[4];
    ldmatrix_x4(word, shared + (threadIdx.x == 3 ? n : 0));
    y[threadIdx.x] = __uint_as_float(word[0]);
}
