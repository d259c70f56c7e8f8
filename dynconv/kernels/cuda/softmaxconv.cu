// DynamicConv from the logits of its kernels: softmax, DropConnect and convolution in one.
//
//     weight[b, t, h, :] = softmax_K(logits[b, t, h, :]) * mask / (1 - dropout)
//     out[b, t, c]       = sum_j weight[b, t, head(c), j] * x[b, t + j - pad, c]
//
// Apart from dynamicconv.cu that saves writing and reading the softmax, the mask and the weights,
// each as large as the logits: at K = 31 and R = 64 half of x. The backward pass computes softmax
// and mask again.
//
// Limits at B = 10, T = 1,000, C = 1,024, H = 16 on an NVIDIA H200, as we assume it: microseconds
// that the bytes take at 4.3 TB/s, the operations at 60 TFLOP/s, the traffic with L1 and shared
// memory at 132 x 1.98 GHz x 128 bytes, the instructions of the loop over rows at four a cycle.
// `dynconv bench kernels --predict` has the rest.
//
//                              bytes  operations  shared   issue  expected  measured
//   K = 31  float32   forward   23.7         10.6    24.7    11.4      31.5  not measured
//   K = 31  float32   backward  37.8         21.2    55.4    31.0      70.2  not measured
//   K = 31  bfloat16  forward   11.8         10.6    21.2    13.8      27.4  not measured
//   K = 31  bfloat16  backward  18.9         21.2    48.4    36.2      61.9  not measured

#include "number.cuh"
#include "window.cuh"
#include "taps.cuh"

// MurmurHash3's finaliser (A. Appleby, 2011): every bit of x changes half the bits of the result.
__device__ __forceinline__ unsigned scramble(unsigned x) {
  x = (x ^ x >> 16) * 0x85ebca6b;
  x = (x ^ x >> 13) * 0xc2b2ae35;
  return x ^ x >> 16;
}

// DropConnect. Weight number i is dropped where a hash of i and the seed is below the threshold,
// dropout * 2^32: no state, so that the backward pass finds the same mask.
template <typename Real>
struct DropConnect {
  bool any;
  unsigned threshold;
  Real scale;              // 1 / (1 - dropout)
  unsigned first, second;  // second depends on the whole seed: else two masks could be permutations

  __device__ __forceinline__ DropConnect(const unsigned long long* seed, unsigned threshold,
                                         double scale)
      : any(seed), threshold(threshold), scale(scale), first(any ? *seed : 0),
        second(any ? scramble(*seed >> 32 ^ scramble(first)) : 0) {}

  __device__ __forceinline__ Real operator()(unsigned long long i) const {
    if (!any) return 1;
    const unsigned hash = scramble((unsigned)i ^ first) ^ second ^ (unsigned)(i >> 32);
    return scramble(hash) < threshold ? 0 : scale;
  }
};

// The logits about one position and head, and what DropConnect makes of each.
template <typename Number>
struct Logits {
  const Number* logits;
  long long time_stride;
  DropConnect<Sum<Number>> drop;
  unsigned long long number;  // of the weight that belongs to *logits, among all of (B, T, H, K)
  int H, K;

  // logits (B, T, H, K), of which the last two dimensions are contiguous
  __device__ __forceinline__ Logits(const Number* logits, long long batch_stride,
                                    long long time_stride, DropConnect<Sum<Number>> drop, int b,
                                    int t, int h, int T, int H, int K)
      : logits(logits + b * batch_stride + t * time_stride + h * K), time_stride(time_stride),
        drop(drop), number((((unsigned long long)b * T + t) * H + h) * K), H(H), K(K) {}

  // Of tap j, t positions and `head` heads further on.
  __device__ __forceinline__ Sum<Number> operator()(int t, int head, int j) const {
    return widen(logits[t * time_stride + (head * K + j)]);
  }
  __device__ __forceinline__ Sum<Number> factor(int t, int head, int j) const {
    return drop(number + ((long long)(t * H + head) * K + j));
  }
};

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

// softmax(l)_j = exp(l_j - largest) * inverse
template <typename Real>
struct alignas(2 * sizeof(Real)) Scale {
  Real largest, inverse;
  __device__ __forceinline__ Real softmax(Real logit) const {
    return exponential(logit - largest) * inverse;
  }
};

// v1, forward. A thread makes one number of out, and for that the whole softmax of its position and
// head, as the other R - 1 channels of the head do, too.
template <typename Number>
__global__ void softmax_conv_v1(const Number* x, const Number* logits,
                                const unsigned long long* seed, Number* out, int B, int T, int C,
                                int H, int K, int pad, unsigned threshold, double scale,
                                long long x_batch, long long x_time, long long l_batch,
                                long long l_time) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)B * T * C) return;
  const int c = i % C, t = i / C % T, b = i / C / T, h = c / (C / H);
  const Logits<Number> logit(logits, l_batch, l_time, {seed, threshold, scale}, b, t, h, T, H, K);
  Sum<Number> largest = logit(0, 0, 0), total = 0, sum = 0;
  for (int j = 1; j < K; ++j) largest = max(largest, logit(0, 0, j));
  for (int j = 0; j < K; ++j) {
    const Sum<Number> weight = exponential(logit(0, 0, j) - largest);
    const int s = t + j - pad;
    total += weight;
    if (0 <= s && s < T)
      sum += weight * logit.factor(0, 0, j) * widen(x[b * x_batch + s * x_time + c]);
  }
  narrow(sum / total, out[i]);
}

// What a row of taps is reduced by: lane `row + i * rows` of a warp takes every 32 / rows-th tap
// from the i-th on, when rows = TILE * heads are fewer than 32; else a lane takes whole rows.
struct RowShare {
  int rows, part, parts;
  __device__ __forceinline__ explicit RowShare(int G)
      : rows(32 / G * TILE), part(rows < 32 ? threadIdx.x / rows : 0),
        parts(rows < 32 ? 32 / rows : 1) {}
};

// Each row's largest logit and the inverse of the sum of its exponentials, [head][position], by
// chunks of taps: a sum is corrected when a larger logit turns up.
template <typename Number, typename Taps, typename Scales>
__device__ __forceinline__ void find_scales(const Logits<Number>& logits, Taps taps, Scales scales,
                                            Place at, int T, int G, int chunk) {
  using Real = Sum<Number>;
  const RowShare share(G);
  // The least number, of a lane without taps
  const Real lowest = sizeof(Real) == 4 ? -3.40282346638528859e38 : -1.79769313486231570e308;
  for (int first = 0; first < logits.K; first += chunk) {
    const int count = min(chunk, logits.K - first);
    __syncwarp();
    for_each_tap(at, first, T, logits.H, logits.K, G, chunk, [&](int a, int head, int k) {
      taps[tap_index<Number>(head, k, a, chunk)] = logits(a, head, first + k);
    });
    __syncwarp();
    for (int row = threadIdx.x % share.rows; row < share.rows; row += 32) {
      const auto tap = taps + tap_index<Number>(row / TILE, 0, row % TILE, chunk);
      Real largest = lowest, total = 0;
      for (int k = share.part; k < count; k += share.parts) largest = max(largest, tap[k * TILE]);
      for (int k = share.part; k < count; k += share.parts)
        total += exponential(tap[k * TILE] - largest);
      for (int d = 16; d >= share.rows; d /= 2) {
        const Real other = __shfl_xor_sync(~0u, largest, d), both = max(largest, other);
        const Real mine = total * exponential(largest - both);
        total = mine + __shfl_xor_sync(~0u, mine, d);
        largest = both;
      }
      if (share.part) continue;
      if (first) {
        const Scale<Real> before = scales[row];
        const Real both = max(largest, before.largest);
        total = total * exponential(largest - both) +
                exponential(before.largest - both) / before.inverse;
        largest = both;
      }
      scales[row] = {largest, 1 / total};
    }
  }
  __syncwarp();
}

// The weights that the convolution takes, from logits and scales.
template <typename Number, typename Scales>
struct Dropped {
  Logits<Number> logits;
  Scales scales;  // scales(t, head)

  __device__ __forceinline__ Sum<Number> operator()(int t, int head, int j) const {
    return scales(t, head).softmax(logits(t, head, j)) * logits.factor(t, head, j);
  }
};

// Shared memory of a warp: its taps, then the scale of each of its rows.
__device__ __forceinline__ int scales_after(int quad, int G, int chunk) {
  return 32 / G * ((chunk + TILE) * TILE + quad);
}

// The version in use, forward. As dynamic_conv; the warp reads its logits, finds the scales of its
// rows, and reads the logits again, from the cache, on their way to the taps. If it made the taps
// from the logits in shared memory instead, L1 and shared memory would work 2% less in bfloat16 and
// 3% in float32, as traced at K = 31; kept for the backward pass, the weights would add twice the
// bytes of the logits.
template <typename Number, int V>
__global__ void __launch_bounds__(128, 3)
softmax_conv(const Number* __restrict__ x, const Number* __restrict__ logits,
             const unsigned long long* __restrict__ seed, Number* __restrict__ out, int T, int C,
             int H, int K, int pad, int G, int chunk, unsigned threshold, double scale,
             long long x_batch, long long x_time, long long l_batch, long long l_time) {
  using Real = Sum<Number>;
  DYNAMIC_SHARED(Real, shared);
  const Place at = place((T + TILE - 1) / TILE, H, 32 / G, own_warp());
  if (at.t >= T) return;
  const int size = scales_after(QUAD<Number>, G, chunk);
  const auto taps = shared + threadIdx.y * (size + 2 * (32 / G) * TILE);
  const auto scales = shared_cast<Scale<Real>>(taps + size);
  const Logits<Number> all(logits, l_batch, l_time, {seed, threshold, scale}, at.b, at.t, at.h, T,
                           H, K);
  find_scales(all, taps, scales, at, T, G, chunk);
  const auto own = [&](int t, int head) { return scales[head * TILE + t]; };
  using Weights = Dropped<Number, decltype(own)>;
  DynamicTaps<Number, false, Weights> weights{{all, own}, taps, at, T, H, K, pad, G, chunk};
  convolve<V>(x, out, weights, at, T, C, H, K, pad, G, chunk, x_batch, x_time);
}

// The gradient of the logits. With dweight = g . x, as in dynamic_weight_grad,
//
//     dlogits = softmax * (dweight * factor - sum_j softmax * dweight * factor)
//
// where factor = mask / (1 - dropout). The scales are written down for softmax_data_grad. When a
// row's taps do not fit into shared memory, chunk < K, the products are made once for the sum and
// once more for the result.
template <typename Number, int V, int G>
__global__ void __launch_bounds__(128, 3)
softmax_logits_grad(const Number* __restrict__ g, const Number* __restrict__ x,
                    const Number* __restrict__ logits, const unsigned long long* __restrict__ seed,
                    Number* __restrict__ dlogits, Scale<Sum<Number>>* __restrict__ all_scales,
                    int T, int C, int H, int K, int pad, int chunk, unsigned threshold,
                    double scale, long long g_batch, long long g_time, long long x_batch,
                    long long x_time, long long l_batch, long long l_time) {
  using Real = Sum<Number>;
  DYNAMIC_SHARED(Real, shared);
  const Place at = place((T + TILE - 1) / TILE, H, 32 / G, own_warp());
  if (at.t >= T) return;
  const int size = scales_after(QUAD<Number>, G, chunk), rows = 32 / G * TILE;
  const auto taps = shared + threadIdx.y * (size + 3 * rows);
  const auto scales = shared_cast<Scale<Real>>(taps + size);
  const auto dots = taps + size + 2 * rows;  // of each row, sum_j softmax * dweight * factor
  const Logits<Number> all(logits, l_batch, l_time, {seed, threshold, scale}, at.b, at.t, at.h, T,
                           H, K);
  find_scales(all, taps, scales, at, T, G, chunk);
  const RowShare share(G);
  for (int row = threadIdx.x; row < rows; row += 32) {
    const int t = at.t + row % TILE, h = at.h + row / TILE;
    dots[row] = 0;
    if (t < T && h < H) all_scales[((long long)at.b * T + t) * H + h] = scales[row];
  }

  for (int pass = 0; pass < 2; ++pass)
    for (int first = 0; first < K; first += chunk) {
      const int count = min(chunk, K - first);
      if (pass == 0 || chunk < K) {
        correlate<V, G>(g, x, taps, at, first, T, C, H, K, pad, chunk, g_batch, g_time, x_batch,
                        x_time);
        for_each_tap(at, first, T, H, K, G, chunk, [&](int a, int head, int k) {
          taps[tap_index<Number>(head, k, a, chunk)] *=
              scales[head * TILE + a].softmax(all(a, head, first + k)) *
              all.factor(a, head, first + k);
        });
        __syncwarp();
      }
      if (pass == 0)
        for (int row = threadIdx.x % share.rows; row < rows; row += 32) {
          const auto tap = taps + tap_index<Number>(row / TILE, 0, row % TILE, chunk);
          Real dot = 0;
          for (int k = share.part; k < count; k += share.parts) dot += tap[k * TILE];
          for (int d = 16; d >= rows; d /= 2) dot += __shfl_xor_sync(~0u, dot, d);
          if (!share.part) dots[row] += dot;
        }
      else
        for_each_tap(at, first, T, H, K, G, chunk, [&](int a, int head, int k) {
          const int row = head * TILE + a, t = at.t + a, h = at.h + head;
          const Real softmax = scales[row].softmax(all(a, head, first + k));
          const Real product = taps[tap_index<Number>(head, k, a, chunk)];
          narrow(product - softmax * dots[row],
                 dlogits[(((long long)at.b * T + t) * H + h) * K + first + k]);
        });
      __syncwarp();
    }
}

// The gradient of x: dynamic_conv, transposed, of weights made from logits and scales.
template <typename Number, int V>
__global__ void __launch_bounds__(128, 4)
softmax_data_grad(const Number* __restrict__ g, const Number* __restrict__ logits,
                  const unsigned long long* __restrict__ seed,
                  const Scale<Sum<Number>>* __restrict__ all_scales, Number* __restrict__ dx,
                  int T, int C, int H, int K, int pad, int G, int chunk, unsigned threshold,
                  double scale, long long g_batch, long long g_time, long long l_batch,
                  long long l_time) {
  DYNAMIC_SHARED(Sum<Number>, shared);
  const Place at = place((T + TILE - 1) / TILE, H, 32 / G, own_warp());
  if (at.t >= T) return;
  const Logits<Number> all(logits, l_batch, l_time, {seed, threshold, scale}, at.b, at.t, at.h, T,
                           H, K);
  const auto first = all_scales + ((long long)at.b * T + at.t) * H + at.h;
  const auto every = [&](int t, int head) { return first[t * H + head]; };
  using Weights = Dropped<Number, decltype(every)>;
  DynamicTaps<Number, true, Weights> weights{
      {all, every}, warp_taps(shared, 32 / G, chunk), at, T, H, K, pad, G, chunk};
  convolve<V>(g, dx, weights, at, T, C, H, K, pad, G, chunk, g_batch, g_time);
}
