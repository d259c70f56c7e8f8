// Kernels with a fault each; tests/lab/test_simulate.py knows their line numbers.
__global__ void no_barrier(float* y, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = tile[(threadIdx.x + 1) % n];
}
__global__ void some_leave(float* y, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();
}
__global__ void two_barriers(float* y, int n) {
    if (threadIdx.x < n) __syncthreads();
    else
        __syncthreads();
}
__global__ void half_shuffle(float* y, int n) {
    if (threadIdx.x % 32 < n) y[0] = __shfl_sync(0xffffffffu, 1.f, 0);
    __syncthreads();
}
__global__ void left_shuffle(float* y, int n) {
    if (threadIdx.x >= n) return;
    __syncwarp();
}
__global__ void not_in_mask(float* y, int n) { __shfl_up_sync(0xfu, 1.f, 1); }
__global__ void two_masks(float* y, int n) {
    __ballot_sync(threadIdx.x % 32 < n ? 0xffffffffu : 0xffff0001u, 1);
}
__global__ void two_functions(float* y, int n) {
    if (threadIdx.x < n) __syncwarp();
    else __any_sync(0xffffffffu, 1);
}
__global__ void odd_width(float* y, int n) { __shfl_down_sync(0xffffffffu, 1.f, 1, n); }
__global__ void outside_mask(float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = __shfl_xor_sync((1u << n) - 1, 1.f, 4);
}
__global__ void element(float* y, int n) {
    DYNAMIC_SHARED(float, tile);
    if (threadIdx.x == 3) tile[n] = 1.f;
}
struct alignas(16) Pack { float v[4]; };
__global__ void pack(float* y, int n) {
    DYNAMIC_SHARED(float, tile);
    y[0] = shared_cast<Pack>(tile + n)->v[0];
}
__global__ void fixed(float* y, int n) {
    __shared__ float tile[64][8];
    tile[3][n] = 1.f;
    __syncthreads();
    y[threadIdx.x] = tile[3][threadIdx.x % 8];
}
__global__ void registers(float* y, int n) {
    Pack p;
    for (int i = 0; i < 4 + n; ++i) p.v[i] = y[i];
    y[0] = p.v[n & 1];
}
__global__ void unsigned_index(float* y, unsigned n) {
    float a[5] = {y[0]};
    y[1] = a[n];
}
__global__ void one_block(float* y, int n) {
    DYNAMIC_SHARED(float, tile);
    if (blockIdx.y == 2) tile[n] = 0.f;
    y[blockIdx.y] = 5.f;
}
__global__ void leave_later(float* y, int n) {
    for (int i = 0; i < (threadIdx.x < n ? 3 : 2); ++i) __syncthreads();
}
