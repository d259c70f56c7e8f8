// Kernels whose accesses to memory tests/lab/test_trace.py records in the simulator.
template <typename T>
__global__ void copy(const T* x, T* y, int n, int step) {
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * step;
    if (i < n) y[i] = x[i];
}
__global__ void flip(const float* x, float* y) {
    __shared__ float tile[64];
    DYNAMIC_SHARED(double, twice);
    const int t = threadIdx.x;
    __syncthreads();
    tile[t] = x[t];
    twice[t] = 2;
    __syncthreads();
    y[t] = twice[t] * tile[63 - t];
    __syncthreads();
    y[t] += 1;
}
__device__ float4 plus(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__global__ void vectors(const float* x, float* y) {
    const float4* from = (const float4*)x;
    float4* to = (float4*)y;
    to[0] = plus(from[0], __ldg(from + 1));
    const uint4 whole = *(const uint4*)(x + 8);
    *(uint4*)(y + 4) = whole;
    double pair = *(const double*)(x + 12);
    *(double*)(y + 8) = pair;
}
__global__ void places(unsigned char* x) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    x[block * 24 + thread] = 1;
}
__global__ void tiled(const float* x, const float* w, float* y, int T, int K, int pad) {
    DYNAMIC_SHARED(float, tile);
    const int first = blockIdx.x * blockDim.x, t = first + threadIdx.x;
    for (int i = threadIdx.x; i < blockDim.x + K - 1; i += blockDim.x) {
        const int s = first + i - pad;
        tile[i] = 0 <= s && s < T ? x[s] : 0;
    }
    __syncthreads();
    if (t >= T) return;
    float sum = 0;
    for (int j = 0; j < K; ++j) sum += w[j] * tile[threadIdx.x + j];
    y[t] = sum;
}
__global__ void edges(const float* x, const float* w, float* y, int T, int K, int pad) {
    const int t = threadIdx.x;
    if (t >= T) return;
    float sum = 0;
    for (int j = 0; j < K; ++j) {
        const int s = t + j - pad;
        if (0 <= s && s < T) sum += w[j] * x[s];
    }
    y[t] = sum;
}
__global__ void rounds(float* x) {
    const int t = threadIdx.x;
    int i = 0;
    while (true) {
        if (i > t) break;
        ++i;
        if (t == 1) continue;
        for (int j = t % 2; j < i; ++j) x[10 * t + i + j] = 1;
    }
    x[90 + t] = 1;
}
__global__ void sums(float* y) {
    if (threadIdx.x % 2) atomicAdd(y, 1.f);
    else atomicAdd(y + 1, 1.f);
}
__global__ void twice(float* x, int n) {
    for (int i = 0; i < n; ++i) x[i] = 1;
    for (int i = 0; i < n; ++i) x[i] = 2;
}
__global__ void sum(int n, float* x, float* y) { atomicAdd(y, n * x[threadIdx.x]); }
__global__ void nothing(int n) {}
