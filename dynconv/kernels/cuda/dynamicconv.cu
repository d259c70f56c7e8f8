// DynamicConv: each position has its own kernel for each head.
//
//     out[b, t, c] = sum_j weight[b, t, head(c), j] * x[b, t + j - pad, c]
//
// Limits at B = 10, T = 1,000, C = 1,024, H = 16 on an NVIDIA H200, as we assume it: microseconds
// that the bytes take at 4.3 TB/s, the operations at 60 TFLOP/s (on tensor cores at 500, those with
// zeros included), the traffic with L1 and shared memory at 132 x 1.98 GHz x 128 bytes, the
// instructions of the loop over rows, or tiles, at four a cycle. Backward, tensor cores take two
// launches, and both read g. `dynconv bench kernels --predict` has the rest.
//
//                              bytes  operations  shared   issue  expected  measured
//   K = 3   float32   forward   19.5          1.0     4.6     1.4      25.4  not measured
//   K = 3   float32   backward  29.5          2.0     9.7     6.4      37.2  not measured
//   K = 3   bfloat16  forward    9.7          1.0     3.3     2.1      14.0  not measured
//   K = 3   bfloat16  backward  14.7          2.0     7.7     7.0      19.8  not measured
//   K = 31  float32   forward   23.7         10.6    16.4    11.3      30.3  not measured
//   K = 31  float32   backward  37.8         21.2    34.4    30.0      47.0  not measured
//   K = 31  bfloat16  forward   11.8          2.0     4.2     4.5      16.4  not measured
//   K = 31  bfloat16  backward  23.7          4.0    12.3    13.3      32.8  not measured

#include "number.cuh"
#include "window.cuh"
#include "taps.cuh"
#include "band.cuh"

// v1. A thread makes one number of out, as in lightconv.cu. The R channels of a head each ask for
// the same K weights: R times the bytes of `weight` go through the caches.
template <typename Number>
__global__ void dynamic_conv_v1(const Number* x, const Number* weight, Number* out, int B, int T,
                                int C, int H, int K, int pad, long long x_batch, long long x_time,
                                long long w_batch, long long w_time) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)B * T * C) return;
  const int c = i % C, t = i / C % T, h = c / (C / H);
  const long long b = i / C / T;
  Sum<Number> sum = 0;
  for (int j = 0; j < K; ++j) {
    const int s = t + j - pad;
    if (0 <= s && s < T)
      sum += widen(weight[b * w_batch + t * w_time + h * K + j]) *
             widen(x[b * x_batch + s * x_time + c]);
  }
  narrow(sum, out[i]);
}

// The weights as they are.
template <typename Number>
struct Given {
  const Number* weight;  // of the tile's first position and head
  long long time_stride;
  int K;

  __device__ __forceinline__ Sum<Number> operator()(int t, int head, int j) const {
    return widen(weight[t * time_stride + (head * K + j)]);
  }
};

// The version in use; see window.cuh for its map and taps.cuh for the weights' way through shared
// memory. Block (32, n).
//
//   v1 -> this   a row of x is loaded once for TILE = 8 outputs, a weight once for the head's R
//                channels, from shared memory four at a time: x and weight come from memory once.
//
// TRANSPOSED, with pad' = K - 1 - pad and g for x, makes it the gradient of x:
//
//     dx[s] = sum_j weight[s + j - pad'][K - 1 - j] g[s + j - pad']
template <typename Number, int V, bool TRANSPOSED>
__global__ void __launch_bounds__(128, 4)
dynamic_conv(const Number* __restrict__ x, const Number* __restrict__ weight,
             Number* __restrict__ out, int T, int C, int H, int K, int pad, int G, int chunk,
             long long x_batch, long long x_time, long long w_batch, long long w_time) {
  DYNAMIC_SHARED(Sum<Number>, shared);
  const Place at = place((T + TILE - 1) / TILE, H, 32 / G, own_warp());
  if (at.t >= T) return;
  const Given<Number> given{weight + at.b * w_batch + at.t * w_time + at.h * K, w_time, K};
  DynamicTaps<Number, TRANSPOSED, Given<Number>> weights{
      given, warp_taps(shared, 32 / G, chunk), at, T, H, K, pad, G, chunk};
  convolve<V>(x, out, weights, at, T, C, H, K, pad, G, chunk, x_batch, x_time);
}

// The bands of a walk, each from its tile's weights.
template <typename Number, int D, bool TRANSPOSED>
struct DynamicBand {
  const Number* weight;  // of the sentence and the head
  long long time_stride;
  SharedPointer<Number> band;
  int T, K, pad;

  __device__ __forceinline__ void stage(int t) {
    if constexpr (TRANSPOSED)
      stage_transposed<D>(band, weight, time_stride, t - pad, T, K);
    else
      stage_band<D>(band, weight + t * time_stride, time_stride, 1, T - t, K);
  }
  __device__ __forceinline__ void block(unsigned (&a)[4], int d) const {
    read_block<D>(a, band, d);
  }
  template <typename Blocks> __device__ __forceinline__ void met(const Blocks&, int) {}
};

// The version for tensor cores; see band.cuh for its map, and `tensor_core_grid` in grids.py for
// when it is in use. Block (32, n).
template <typename Number, int V, int D, bool TRANSPOSED>
__global__ void __launch_bounds__(128, 4 - TRANSPOSED - (D > 3))
dynamic_conv_band(const Number* __restrict__ x, const Number* __restrict__ weight,
                  Number* __restrict__ out, int T, int C, int H, int K, int pad, int walk,
                  long long x_batch, long long x_time, long long w_batch, long long w_time) {
  DYNAMIC_SHARED(Number, shared);
  const Walk at(T, C, H, walk, 8 * V);
  if (at.t >= T) return;
  const auto band = shared + threadIdx.y * (BAND * PITCH<D>);
  if (!TRANSPOSED) clear_band<D>(band);
  DynamicBand<Number, D, TRANSPOSED> weights{weight + at.b * w_batch + at.h * K, w_time, band, T, K,
                                             pad};
  multiply_bands<V, D>(x + at.b * x_batch + at.c, out + (long long)at.b * T * C + at.c, weights, at,
                       T, C, K, pad, x_time);
}

// v1 of the weights' gradient. A thread makes one number of it.
template <typename Number>
__global__ void dynamic_weight_grad_v1(const Number* g, const Number* x, Number* dweight, int B,
                                       int T, int C, int H, int K, int pad, long long g_batch,
                                       long long g_time, long long x_batch, long long x_time) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)B * T * H * K) return;
  const int j = i % K, h = i / K % H, t = i / K / H % T, s = t + j - pad, R = C / H;
  const long long b = i / K / H / T;
  Sum<Number> sum = 0;
  if (0 <= s && s < T)
    for (int c = h * R; c < h * R + R; ++c)
      sum += widen(g[b * g_batch + t * g_time + c]) * widen(x[b * x_batch + s * x_time + c]);
  narrow(sum, dweight[i]);
}

// dweight[t][j] = g[t] . x[t + j - pad], over the channels of a head; see correlate in taps.cuh.
template <typename Number, int V, int G>
__global__ void __launch_bounds__(128, 4)
dynamic_weight_grad(const Number* __restrict__ g, const Number* __restrict__ x,
                    Number* __restrict__ dweight, int T, int C, int H, int K, int pad, int chunk,
                    long long g_batch, long long g_time, long long x_batch, long long x_time) {
  DYNAMIC_SHARED(Sum<Number>, shared);
  const Place at = place((T + TILE - 1) / TILE, H, 32 / G, own_warp());
  if (at.t >= T) return;
  const auto taps = warp_taps(shared, 32 / G, chunk);
  for (int first = 0; first < K; first += chunk) {
    correlate<V, G>(g, x, taps, at, first, T, C, H, K, pad, chunk, g_batch, g_time, x_batch,
                    x_time);
    for_each_tap(at, first, T, H, K, G, chunk, [&](int a, int head, int k) {
      const long long row = ((long long)at.b * T + at.t + a) * H + at.h + head;
      narrow(taps[tap_index<Number>(head, k, a, chunk)], dweight[row * K + first + k]);
    });
  }
}

// The same on tensor cores, dweight[t + i][j] = P[i][i + j]; see correlate_band in band.cuh.
template <typename Number, int V, int D>
__global__ void __launch_bounds__(128, 4)
dynamic_weight_grad_band(const Number* __restrict__ g, const Number* __restrict__ x,
                         Number* __restrict__ dweight, int T, int C, int H, int K, int pad,
                         int walk, long long g_batch, long long g_time, long long x_batch,
                         long long x_time) {
  DYNAMIC_SHARED(float, shared);
  const Walk at(T, C, H, walk, C / H);
  const auto products = shared + threadIdx.y * (BAND * PITCH<D>);
  dweight += ((long long)at.b * T * H + at.h) * K;
#pragma unroll 1
  for (int t = at.t; t < at.end; t += BAND) {
    float p[2 * D][4] = {};
    correlate_band<V, D>(p, g + at.b * g_batch + at.c, x + at.b * x_batch + at.c, t, T, C / H, pad,
                         g_time, x_time);
    write_products<D>(p, products);
#pragma unroll
    for (int first = 0; first < BAND * (D - 1); first += 32) {
      const int j = first + threadIdx.x;
      Number* row = dweight + ((long long)t * H * K + j);
#pragma unroll
      for (int i = 0; i < BAND; ++i, row += H * K)
        if (j < K && t + i < T)
          row->bits = narrow_two<Number>(products[i * (PITCH<D> + 1) + j], 0);
    }
  }
}

// Both gradients from one walk over g, each of g, x and weight read once:
//
//     dx[s]                                = sum_j weight[s + j - pad'][K - 1 - j] g[s + j - pad']
//     dweight[s + j - pad'][K - 1 - j] = x[s] . g[s + j - pad'],   pad' = K - 1 - pad
//
// A warp takes TILE tokens s of dx, and the weights that met them. Those that met no token, beyond
// an end of the sentence, have the gradient 0: tiles begin at token -pad, and end with token
// T - 1 + pad'. All K taps are in shared memory, chunk >= K: the weights, and their gradients.
template <typename Number, int V, int G>
__global__ void __launch_bounds__(128, 3)
dynamic_conv_grad(const Number* __restrict__ g, const Number* __restrict__ x,
                  const Number* __restrict__ weight, Number* __restrict__ dx,
                  Number* __restrict__ dweight, int T, int C, int H, int K, int pad, int chunk,
                  long long g_batch, long long g_time, long long x_batch, long long x_time,
                  long long w_batch, long long w_time) {
  using Real = Sum<Number>;
  DYNAMIC_SHARED(Real, shared);
  Place at = place((T + K - 1 + TILE - 1) / TILE, H, 32 / G, own_warp());
  at.t -= K - 1 - pad;
  if (at.t >= T + pad) return;
  const auto taps = warp_taps(shared, 2 * (32 / G), chunk);
  const auto dots = taps + row_index<Number>(32 / G, 0, 0, chunk);
  const Given<Number> given{weight + at.b * w_batch + at.t * w_time + at.h * K, w_time, K};
  DynamicTaps<Number, true, Given<Number>> weights{given, taps, at, T, H, K, pad, G, chunk};
  Meeting met(at.t, T, pad, 0, K);
  const bool tokens_here = -TILE < at.t && at.t < T;
  if (tokens_here)
    weights.stage(0);
  else
    met.to = met.from - TILE;
  clear_dots<Number>(dots, met, 0, K, G, chunk);

  const int lane = threadIdx.x, R = C / H;
  for (int r0 = 0; tokens_here && r0 < R; r0 += G * V) {
    const Channels<V> own(at.h + lane / G, r0, G, H, R);
    Real token[TILE][V], sum[TILE][V] = {}, w[TILE];
    load_tile<G>(token, x + at.b * x_batch + own.c, x_time, at.t, T, own.active);
    Rows<Number, V> rows(g + at.b * g_batch + own.c, g_time, at.t + met.from - pad,
                         met.to - met.from + TILE - 1, T);
    each_row(met.from, met.to, rows, [&](int k, int lo, int hi, bool inside) {
      Real row[V], dot[TILE] = {};
      rows.take(row, inside);
      weights.row(k, lo, w);
#pragma unroll
      for (int a = 0; a < TILE; ++a)
#pragma unroll
        for (int v = 0; v < V; ++v) {
          dot[a] += token[a][v] * row[v];
          if (lo <= a && a < hi) sum[a][v] += w[a] * row[v];
        }
      write_dots<G>(dot, dots, k, chunk, r0 > 0);
    });
#pragma unroll
    for (int a = 0; a < TILE; ++a)
      if (own.active && 0 <= at.t + a && at.t + a < T)
        store<Number, V>(dx + ((long long)at.b * T + at.t + a) * C + own.c, sum[a]);
  }
  __syncwarp();
  for (int head = 0; head < 32 / G && at.h + head < H; ++head)
    for (int i = lane; i < (K + TILE - 1) * TILE; i += 32) {  // as DynamicTaps, transposed
      const int a = i % TILE, k = i / TILE - a, t = at.t + i / TILE - pad;
      if (0 <= k && k < K && 0 <= t && t < T)
        narrow(dots[tap_index<Number>(head, k, a, chunk)],
               dweight[(((long long)at.b * T + t) * H + at.h + head) * K + K - 1 - k]);
    }
}
