// Kernels that give right answers: tests/lab/test_simulate.py runs them in the simulator.
__device__ __forceinline__ float twice(float x) { return 2.f * x; }
template <typename T>
__global__ void saxpy(float a, const T* __restrict__ x, T* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = T(a * x[i] + y[i]);
}
// The sum of each block's threads: shuffles in each warp, shared memory between them
__global__ void __launch_bounds__(256, 2) block_sum(const float* x, float* out, int n) {
    __shared__ float part[32];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize;
    float v = i < n ? x[i] : 0.f;
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    if (lane == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = lane < (blockDim.x + 31) / 32 ? part[lane] : 0.f;
        for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
        if (lane == 0) atomicAdd(out, v);
    }
}
// Inclusive prefix sums of rows, one block each: Hillis and Steele between barriers
template <int N>
__global__ void scan(const double* x, double* y) {
    DYNAMIC_SHARED(double, row);
    const int t = threadIdx.x;
    row[t] = x[blockIdx.x * N + t];
    for (int d = 1; d < N; d *= 2) {
        __syncthreads();
        const double other = t >= d ? row[t - d] : 0.0;
        __syncthreads();
        row[t] += other;
    }
    y[blockIdx.x * N + t] = row[t];
}
__global__ void where(int* y) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * threadIdx.y;
    y[block * blockDim.x * blockDim.y + thread] =
        blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * threadIdx.x + 10000 * threadIdx.y;
}
// One row of `out` for each function
__global__ void warp_functions(int* out, const double* x, double* y) {
    const unsigned all = 0xffffffffu, t = threadIdx.x;
    out[t] = __shfl_sync(all, int(t), 5, 8);
    out[32 + t] = __shfl_up_sync(all, int(t), 3, 16);
    out[64 + t] = __shfl_down_sync(all, int(t), 3, 16);
    out[96 + t] = __shfl_xor_sync(all, int(t), 20);
    out[128 + t] = __ballot_sync(all, t % 3 == 0);
    out[160 + t] = __any_sync(all, t == 9) + 2 * __any_sync(all, 0) + 4 * __all_sync(all, 1);
    out[160 + t] += 8 * __all_sync(all, t != 9);
    if (t < 12) out[192 + t] = __shfl_down_sync(0xfffu, int(t), 4);
    else out[192 + t] = __shfl_xor_sync(0xfffff000u, int(t), 1);
    y[t] = __shfl_sync(all, x[t], 31 - t);
}
__global__ void small_functions(float* out, unsigned* raw, int* most) {
    float2 two = make_float2(1.f, 2.f);
    float4 four = make_float4(1.f, 2.f, 3.f, 4.f);
    uint4 whole = make_uint4(1, 2, 3, 4);
    out[0] = two.y + four.w + whole.z;
    out[1] = max(NAN, 1.f) + max(2.f, NAN) + min(NAN, 1.f) + min(2.f, NAN);
    out[1] += max(1, 2.5f) + fmaxf(1.f, 7.f);
    out[2] = rsqrtf(16.f) + __expf(0.f) + fmaf(2.f, 3.f, 4.f) + __ldg(out + 3);
    raw[0] = __float_as_uint(1.f), raw[1] = __float_as_int(-2.f), raw[2] = sizeof(four);
    out[4] = __uint_as_float(raw[0]) + __int_as_float(int(raw[1]));
    atomicMax(most, int(threadIdx.x * 7 % 32));
    atomicMin(most + 1, int(threadIdx.x * 7 % 32) - 20);
}
struct __align__(16) Pack { float v[4]; };
__global__ void packs(float* out) {
    DYNAMIC_SHARED(float, tile);
    Pack p = {{1.f, 2.f, 3.f, 4.f}};
    *shared_cast<Pack>(tile + 4) = p;
    auto q = shared_cast<const float>(tile) + 8;
    out[0] = *--q + q[-1] + shared_cast<Pack>(tile)[1].v[1];
    out[0] += (shared_cast<Pack>(tile) + 1)->v[0];
    q -= 2, q++, ++q;
    out[1] = (q - tile) + 100 * (q > tile) + 200 * (tile + 7 == q);
    out[2] = tile[0];
    shared_cast<unsigned short>(tile)[17] = 7;
    out[3] = shared_cast<const unsigned short>(tile)[17];
}
__global__ void who(uint64_t* out) {  // the OS thread that runs the block
    timespec a_while = {0, 1000000};
    nanosleep(&a_while, nullptr);
    out[blockIdx.x] = (uint64_t)pthread_self();
}
__global__ void stale(float* out) {  // what an earlier block left must not be seen
    __shared__ float tile[64];
    DYNAMIC_SHARED(float, dynamic);
    out[2 * blockIdx.x] = tile[5], out[2 * blockIdx.x + 1] = dynamic[5];
    tile[5] = dynamic[5] = 1.f;
}
