// LightConv: one kernel for each head, the same at every position. Depthwise is H = C.
//
//     out[b, t, c] = sum_j weight[head(c), j] * x[b, t + j - pad, c]
//
// x may have any batch and time strides, its channels are contiguous; out is contiguous.
//
// Limits at B = 10, T = 1,000, C = 1,024, H = 16 on an NVIDIA H200, as we assume it: microseconds
// that the bytes take at 4.3 TB/s, the operations at 60 TFLOP/s (on tensor cores at 500, those with
// zeros included), the traffic with L1 and shared memory at 132 x 1.98 GHz x 128 bytes, the
// instructions of the loop over rows, or tiles, at four a cycle. `dynconv bench kernels --predict`
// has the rest.
//
//                              bytes  operations  shared   issue  expected  measured
//   K = 31  float32   forward   19.1         10.6     8.2    10.9      24.9  not measured
//   K = 31  float32   backward  28.6         21.2    11.8    21.1      38.6  not measured
//   K = 31  bfloat16  forward    9.5          2.0     2.6     2.7      13.7  not measured
//   K = 31  bfloat16  backward  14.3          4.0     6.1     4.8      21.8  not measured

#include "number.cuh"
#include "window.cuh"
#include "band.cuh"

// v1. A thread makes one number of out. Neighbouring threads are neighbouring channels, so a warp
// reads whole lines of x; but each number of x is asked for K times, and each tap once more for
// every number of out: K loads for K products. The caches serve them, so the number of loads is
// the limit.
template <typename Number>
__global__ void light_conv_v1(const Number* x, const Number* weight, Number* out, int B, int T,
                              int C, int H, int K, int pad, long long x_batch, long long x_time) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)B * T * C) return;
  const int c = i % C, t = i / C % T, h = c / (C / H);
  const long long b = i / C / T;
  Sum<Number> sum = 0;
  for (int j = 0; j < K; ++j) {
    const int s = t + j - pad;
    if (0 <= s && s < T)
      sum += widen(weight[h * K + j]) * widen(x[b * x_batch + s * x_time + c]);
  }
  narrow(sum, out[i]);
}

// The taps of a warp's heads, its own copy: [head][tap], the rows of odd length, so that two heads
// are never in one bank. No other warp is waited for.
template <typename Number, bool FLIPPED>
struct LightTaps {
  const Number* weight;
  SharedPointer<Sum<Number>> taps;
  int h0, H, K, G, chunk;

  __device__ __forceinline__ void stage(int first) {
    const int lane = threadIdx.x, count = min(chunk, K - first);
    __syncwarp();  // the taps before have been read
    for (int head = 0; head < 32 / G; ++head)
      for (int k = lane; k < count; k += 32) {
        const int j = FLIPPED ? K - 1 - first - k : first + k;
        taps[head * (chunk + 1) + k] = h0 + head < H ? widen(weight[(h0 + head) * K + j]) : 0;
      }
    __syncwarp();
  }

  // w[a] is tap k - a: all move one position on.
  __device__ __forceinline__ void row(int k, int lo, Sum<Number> (&w)[TILE]) const {
#pragma unroll
    for (int a = TILE - 1; a > 0; --a) w[a] = w[a - 1];
    if (lo == 0) w[0] = taps[threadIdx.x / G * (chunk + 1) + k];
  }
};

// The version in use; see window.cuh for its map. Block (32, n): n warps, one above the other in
// time. Its bytes are 2 |x|, its operations 2 K a number.
//
//   v1 -> this   a row of x is loaded once for TILE = 8 outputs and for V = 4 channels by one
//                instruction, a tap once for 32 products: (K + 7) / 8 loads for K products of v1's
//                K; x comes from L2 about (8 n + K - 1) / 8 n times, from memory once.
//
// FLIPPED, and pad' = K - 1 - pad, make it the gradient of x.
template <typename Number, int V, bool FLIPPED>
__global__ void __launch_bounds__(256, 2)
light_conv(const Number* __restrict__ x, const Number* __restrict__ weight,
           Number* __restrict__ out, int T, int C, int H, int K, int pad, int G, int chunk,
           long long x_batch, long long x_time) {
  DYNAMIC_SHARED(Sum<Number>, shared);
  const int heads = 32 / G;
  const Place at = place((T + TILE - 1) / TILE, H, heads, own_warp());
  if (at.t >= T) return;
  LightTaps<Number, FLIPPED> weights{weight, shared + threadIdx.y * heads * (chunk + 1), at.h, H, K,
                                     G, chunk};
  convolve<V>(x, out, weights, at, T, C, H, K, pad, G, chunk, x_batch, x_time);
}

// The band of a head is the same for all tiles: its blocks stay in registers.
template <int D>
struct LightBand {
  unsigned a[D][4];

  __device__ __forceinline__ void stage(int) {}
  __device__ __forceinline__ void block(unsigned (&to)[4], int d) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = a[d][i];
  }
  template <typename Blocks> __device__ __forceinline__ void met(const Blocks&, int) {}
};

template <int D, typename Number, typename Band>
__device__ __forceinline__ void read_taps(LightBand<D>& weights, Band band, const Number* weight,
                                          int K, bool flipped) {
  clear_band<D>(band);
  stage_band<D>(band, weight + (flipped ? K - 1 : 0), 0, flipped ? -1 : 1, BAND, K);
#pragma unroll
  for (int d = 0; d < D; ++d) read_block<D>(weights.a[d], band, d);
}

// The version for tensor cores; see band.cuh for its map, and `tensor_core_grid` in grids.py for
// when it is in use. Block (32, n): n warps, one above the other in time.
template <typename Number, int V, int D, bool FLIPPED>
__global__ void __launch_bounds__(128, D > 3 ? 3 : 4)
light_conv_band(const Number* __restrict__ x, const Number* __restrict__ weight,
                Number* __restrict__ out, int T, int C, int H, int K, int pad, int walk,
                long long x_batch, long long x_time) {
  DYNAMIC_SHARED(Number, shared);
  const Walk at(T, C, H, walk, 8 * V);
  if (at.t >= T) return;
  LightBand<D> weights;
  read_taps(weights, shared + threadIdx.y * (BAND * PITCH<D>), weight + at.h * K, K, FLIPPED);
  multiply_bands<V, D>(x + at.b * x_batch + at.c, out + (long long)at.b * T * C + at.c, weights, at,
                       T, C, K, pad, x_time);
}

// v1 of the kernel's gradient. A thread makes one number of it, dweight[h, j], alone.
template <typename Number>
__global__ void light_weight_grad_v1(const Number* g, const Number* x, Number* dweight, int B,
                                     int T, int C, int H, int K, int pad, long long g_batch,
                                     long long g_time, long long x_batch, long long x_time) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, R = C / H;
  if (i >= H * K) return;
  const int h = i / K, j = i % K;
  Sum<Number> sum = 0;
  for (long long b = 0; b < B; ++b)
    for (int t = 0; t < T; ++t) {
      const int s = t + j - pad;
      if (s < 0 || s >= T) continue;
      for (int c = h * R; c < h * R + R; ++c)
        sum += widen(g[b * g_batch + t * g_time + c]) * widen(x[b * x_batch + s * x_time + c]);
    }
  narrow(sum, dweight[i]);
}

// A walk's share of dweight: of tap j the sum over i of P[i][i + j].
template <int D, typename Products, typename Row>
__device__ __forceinline__ void add_diagonals(const float (&p)[2 * D][4], Products products,
                                              int K, Row row) {
  write_products<D>(p, products);
  for (int j = threadIdx.x; j < K; j += 32) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < BAND; ++i) sum += products[i * (PITCH<D> + 1) + j];
    row(j) = sum;
  }
}

// dweight[j] = sum over tiles, and i in each, of P[i][i + j]; see correlate_band in band.cuh. A
// walk writes a row of `partial` (walks, H, K), which sum_rows adds up.
template <typename Number, int V, int D>
__global__ void __launch_bounds__(128, 4)
light_weight_grad_band(const Number* __restrict__ g, const Number* __restrict__ x,
                       float* __restrict__ partial, int T, int C, int H, int K, int pad, int walk,
                       long long g_batch, long long g_time, long long x_batch, long long x_time) {
  DYNAMIC_SHARED(float, shared);
  const Walk at(T, C, H, walk, C / H);
  if (at.t >= T) return;
  float p[2 * D][4] = {};
#pragma unroll 1
  for (int t = at.t; t < at.end; t += BAND)
    correlate_band<V, D>(p, g + at.b * g_batch + at.c, x + at.b * x_batch + at.c, t, T, C / H, pad,
                         g_time, x_time);
  const int row = at.b * ((T + walk * BAND - 1) / (walk * BAND)) + at.t / (walk * BAND);
  partial += ((long long)row * H + at.h) * K;
  add_diagonals<D>(p, shared + threadIdx.y * (BAND * PITCH<D>), K,
                   [&](int j) -> float& { return partial[j]; });
}

// The taps of dx; and for dweight the products of a tile's rows of x with the same blocks of g,
//
//     P[i][k] = x[t + i] . g[t - pad + k],     dweight[K - 1 - j] = sum over i of P[i][i + j]
//
// The words of these blocks are pairs of positions, which dx adds up. P adds up pairs of channels,
// so movmatrix transposes them, and x is loaded in the same order of channels.
template <typename Number, int V, int D>
struct LightGradients : LightBand<D> {
  using Words = Pack<unsigned, V / 2>;
  const Number* x;  // of this lane: row t + lane / 4
  long long stride;
  int T;
  Words row[2][2] = {};  // of a tile: rows lane / 4 and 8 more; channels as the columns of g
  float p[2 * D][4] = {};

  __device__ __forceinline__ LightGradients(const Number* x, long long stride, int t, int T)
      : x(x + (t + threadIdx.x / 4) * stride + threadIdx.x % 4 * V), stride(stride), T(T) {}

  __device__ __forceinline__ void stage(int t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool real = t + (int)threadIdx.x / 4 + 8 * i < T;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row[i][half] = {};
        if (real)
          row[i][half] = *reinterpret_cast<const Words*>(x + 8 * i * stride + half * 4 * V);
      }
    }
    x += BAND * stride;
  }

  __device__ __forceinline__ void met(const unsigned (&b)[D][V][2], int u) {
#pragma unroll
    for (int v = 0; v < V; v += 2) {
      const unsigned a[4] = {pair(row[0][0], row[0][1], v), pair(row[1][0], row[1][1], v),
                             pair(row[0][0], row[0][1], v + 1), pair(row[1][0], row[1][1], v + 1)};
#pragma unroll
      for (int n = 0; n < 2 * D; ++n) {
        const auto& block = b[(u + n / 2) % D];
        const unsigned transposed[2] = {movmatrix_trans(block[v][n % 2]),
                                        movmatrix_trans(block[v + 1][n % 2])};
        mma_m16n8k16<Number>(p[n], a, transposed);
      }
    }
  }
};

// Both gradients on tensor cores: g is read once, as x is in light_conv_band, and so is x. A walk
// writes a row of `partial` (walks, parts, H, K), where a part of a head has 8 V channels.
template <typename Number, int V, int D>
__global__ void __launch_bounds__(128, D > 3 ? 2 : 3)
light_grad_band(const Number* __restrict__ g, const Number* __restrict__ x,
                const Number* __restrict__ weight, Number* __restrict__ dx,
                float* __restrict__ partial, int T, int C, int H, int K, int pad, int walk,
                long long g_batch, long long g_time, long long x_batch, long long x_time) {
  DYNAMIC_SHARED(float, shared);
  const Walk at(T, C, H, walk, 8 * V);
  if (at.t >= T) return;
  const auto own = shared + threadIdx.y * (BAND * PITCH<D>);
  LightGradients<Number, V, D> weights(x + at.b * x_batch + at.c, x_time, at.t, T);
  read_taps(weights, shared_cast<Number>(own), weight + at.h * K, K, true);
  multiply_bands<V, D>(g + at.b * g_batch + at.c, dx + (long long)at.b * T * C + at.c, weights, at,
                       T, C, K, pad, g_time);
  const int parts = C / H / (8 * V);
  const int row = at.b * ((T + walk * BAND - 1) / (walk * BAND)) + at.t / (walk * BAND);
  partial += ((long long)(row * parts + at.c / (8 * V) % parts) * H + at.h) * K;
  add_diagonals<D>(weights.p, own, K, [&](int j) -> float& { return partial[K - 1 - j]; });
}

// Both gradients from one window over g, each of g and x read once and dx written once:
//
//     dx[s]             = sum_j weight[K - 1 - j] g[s + j - pad'],   pad' = K - 1 - pad
//     dweight[K - 1 - j] = sum_s x[s] . g[s + j - pad']
//
// A warp walks `walk` of the B ceil(T / TILE) tiles. Each lane adds up its channels' part of
// dweight in shared memory of its own, 16 bytes at a time; at the end the lanes of a head are
// added, and the warp writes a row of `partial` (walks, H, K), which sum_rows adds up in a fixed
// order.
// DATA = false leaves dx out. With DATA, chunk >= K; else g and x are read once for each chunk.
template <typename Number, int V, int G, bool DATA>
__global__ void __launch_bounds__(128, DATA ? 3 : 4)
light_conv_grad(const Number* __restrict__ g, const Number* __restrict__ x,
                const Number* __restrict__ weight, Number* __restrict__ dx,
                Sum<Number>* __restrict__ partial, int B, int T, int C, int H, int K, int pad,
                int chunk, int walk, long long g_batch, long long g_time, long long x_batch,
                long long x_time) {
  DYNAMIC_SHARED(Sum<Number>, shared);
  constexpr int HEADS = 32 / G, Q = QUAD<Number>;
  const int lane = threadIdx.x, R = C / H, tiles = (T + TILE - 1) / TILE;
  const int walks = ((long long)B * tiles + walk - 1) / walk;
  const Place at = place(walks, H, HEADS, own_warp());  // its TILE positions are one walk
  const long long row = at.t / TILE, begin = row * walk;
  if (row >= walks) return;
  const int column = chunk + Q;  // an odd number of quads, for different banks
  const auto added = shared + (threadIdx.y * 32 + lane) * column;  // [tap]
  const auto taps = shared + blockDim.y * 32 * column + threadIdx.y * HEADS * (chunk + 1);
  LightTaps<Number, true> weights{weight, taps, at.h, H, K, G, chunk};
  const int h = at.h + lane / G;

  for (int first = 0; first < K; first += chunk) {
    const int count = min(chunk, K - first);
    if (DATA) weights.stage(first);
    for (int j = 0; j < chunk; ++j) added[j] = 0;
    for (long long tile = begin; tile < min(begin + walk, (long long)B * tiles); ++tile) {
      const long long b = tile / tiles;
      const int t = tile % tiles * TILE;
      Meeting met(t, T, pad, first, first + count);
      met.from -= (met.from - first) % Q;  // from here on, quads of sums are aligned
      for (int r0 = 0; r0 < R; r0 += G * V) {
        const Channels<V> own(h, r0, G, H, R);
        Sum<Number> token[TILE][V], sum[TILE][V] = {};
        load_tile<1>(token, x + b * x_batch + own.c, x_time, t, T, own.active);
        Rows<Number, V> rows(g + b * g_batch + own.c, g_time, t + met.from - pad,
                             met.to - met.from + TILE - 1, T);
        Sum<Number> w[TILE] = {}, dot[TILE] = {};  // dot[a] is that of tap k - a
        Pack<Sum<Number>, Q> done;
        auto sums = added + (met.from - first);  // of the next tap that is complete
        each_row(met.from, met.to, rows, [&](int k, int lo, int hi, int inside) {
          Sum<Number> row[V];
          rows.take(row, inside);
          if (DATA) weights.row(k - first, lo, w);
#pragma unroll
          for (int a = TILE - 1; a > 0; --a) dot[a] = dot[a - 1];
          dot[0] = 0;
#pragma unroll
          for (int a = 0; a < TILE; ++a)
#pragma unroll
            for (int v = 0; v < V; ++v)
              if (lo <= a && a < hi) {
                dot[a] += token[a][v] * row[v];
                if (DATA) sum[a][v] += w[a] * row[v];
              }
          // The dot product of tap k - (TILE - 1) is complete: added alone, or with its quad.
          if (hi == TILE && !inside) *sums += dot[TILE - 1], sums = sums + 1;
          if (inside) done.at[(inside - 1) % Q] = dot[TILE - 1];
          if (inside && inside % Q == 0) {
            const auto quad = shared_cast<Pack<Sum<Number>, Q>>(sums);
            Pack<Sum<Number>, Q> so_far = *quad;
#pragma unroll
            for (int i = 0; i < Q; ++i) so_far.at[i] += done.at[i];
            *quad = so_far, sums = sums + Q;
          }
        });
        if constexpr (DATA)
#pragma unroll
          for (int a = 0; a < TILE; ++a)
            if (own.active && t + a < T)
              store<Number, V>(dx + (b * T + t + a) * C + own.c, sum[a]);
      }
    }
    for (int j = 0; j < count; j += 8) {
      Sum<Number> value[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) value[i] = added[j + i];  // 0 from count to chunk
      add_over_lanes<G>(value);
#pragma unroll
      for (int i = 0; i < KEPT<G>; ++i) {
        const int k = j + kept<G>(lane) + i;
        if (h < H && k < count && lane % SHARING<G> == 0)
          partial[(row * H + h) * K + K - 1 - first - k] = value[i];
      }
    }
  }
}

// out[i] = sum of partial[row][i] over all rows. Block (32, 32): 32 columns, each added up by 32
// threads in 32 parts.
template <typename Number>
__global__ void __launch_bounds__(1024)
sum_rows(const Sum<Number>* __restrict__ partial, Number* __restrict__ out, long long rows,
         int columns) {
  __shared__ Sum<Number> part[32][32];
  const int i = blockIdx.x * 32 + threadIdx.x;
  Sum<Number> sum = 0;
  if (i < columns)
#pragma unroll 4
    for (long long row = threadIdx.y; row < rows; row += 32) sum += partial[row * columns + i];
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || i >= columns) return;
#pragma unroll
  for (int y = 1; y < 32; ++y) sum += part[y][threadIdx.x];
  narrow(sum, out[i]);
}
