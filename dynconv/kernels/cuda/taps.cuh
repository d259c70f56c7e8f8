// The weights of a warp's TILE positions and their way through shared memory.
//
// Their layout is [head][row of x][position]: with one row the lanes of a head multiply the weights
// of TILE positions, tap k - a of row k at position a, and read them 16 bytes at a time, all lanes
// of the head the same. Where k - a is no tap of this chunk, nothing is written or used.

// 16 more bytes for each head, so that two heads' weights are in different banks.
template <typename Number>
__device__ __forceinline__ int row_index(int head, int k, int a, int chunk) {
  return head * ((chunk + TILE) * TILE + QUAD<Number>) + k * TILE + a;
}

template <typename Number>
__device__ __forceinline__ int tap_index(int head, int j, int a, int chunk) {
  return row_index<Number>(head, j + a, a, chunk);
}

// Return the weights of this warp, which has this many heads.
template <typename Pointer>
__device__ __forceinline__ Pointer warp_taps(Pointer shared, int heads, int chunk) {
  constexpr int quad = VECTOR_BYTES / sizeof(*shared);
  return shared + threadIdx.y * heads * ((chunk + TILE) * TILE + quad);
}

// Call what(a, head, k) for the taps first + k, below K, of the warp's positions at.t + a and heads
// at.h + head. A warp takes four positions and eight taps at a time: in memory that is four pieces
// of 8 numbers, in shared memory no more than two of them in one bank.
template <typename What>
__device__ __forceinline__ void for_each_tap(Place at, int first, int T, int H, int K, int G,
                                             int chunk, What what) {
  const int count = min(chunk, K - first);
  for (int head = 0; head < 32 / G && at.h + head < H; ++head)
#pragma unroll 4
    for (int i = threadIdx.x; i < chunk * TILE; i += 32) {
      const int a = i % 4 + i / 32 % 2 * 4, k = i / 4 % 8 + i / 64 * 8;
      if (k < count && at.t + a < T) what(a, head, k);
    }
}

// The weights of a tile, on their way into shared memory. weight(t, head, j) is the weight of
// tap j at position at.t + t and head at.h + head.
//
// The weights that dx[s] needs, TRANSPOSED, are weight[s + j - pad][K - 1 - j]: on row t = s + j -
// pad those of the tile's positions are TILE neighbours. So a warp takes four rows at a time, eight
// taps of each: pieces of 8 numbers again, and in shared memory all in different banks.
template <typename Number, bool TRANSPOSED, typename Weight>
struct DynamicTaps {
  Weight weight;
  SharedPointer<Sum<Number>> taps;
  Place at;
  int T, H, K, pad, G, chunk;

  __device__ __forceinline__ void stage(int first) {
    __syncwarp();  // the taps before have been read
    const int count = min(chunk, K - first);
    for (int head = 0; head < 32 / G && at.h + head < H; ++head)
#pragma unroll 4
      for (int i = threadIdx.x; i < (chunk + (TRANSPOSED ? TILE : 0)) * TILE; i += 32) {
        const int a = TRANSPOSED ? i % TILE : i % 4 + i / 32 % 2 * 4;
        const int k = TRANSPOSED ? i / TILE - a : i / 4 % 8 + i / 64 * 8;
        if (k < 0 || k >= count) continue;
        const int s = at.t + a + first + k - pad;  // the row of x that meets this weight
        const int t = TRANSPOSED ? s - at.t : a, j = TRANSPOSED ? K - 1 - first - k : first + k;
        const bool real = at.t + a < T && 0 <= s && s < T;
        taps[tap_index<Number>(head, k, a, chunk)] = real ? weight(t, head, j) : 0;
      }
    __syncwarp();
  }

  __device__ __forceinline__ void row(int k, int, Sum<Number> (&w)[TILE]) const {
    constexpr int Q = QUAD<Number>;
    const auto row = taps + row_index<Number>(threadIdx.x / G, k, 0, chunk);
#pragma unroll
    for (int a = 0; a < TILE; a += Q) {
      const auto quad = *shared_cast<const Pack<Sum<Number>, Q>>(row + a);
#pragma unroll
      for (int i = 0; i < Q; ++i) w[a + i] = quad.at[i];
    }
  }
};

// Zero for the rows, of those that `count` taps from `first` on meet, that each_row leaves out.
template <typename Number, typename Dots>
__device__ __forceinline__ void clear_dots(Dots dots, Meeting met, int first, int count, int G,
                                           int chunk) {
  for (int head = 0; head < 32 / G; ++head)
    for (int i = threadIdx.x; i < (count + TILE - 1) * TILE; i += 32) {
      const int k = first + i / TILE;
      if (k < met.from || k >= met.to + TILE - 1)
        dots[row_index<Number>(head, i / TILE, i % TILE, chunk)] = 0;
    }
}

// Add the lanes' shares of the dot products of row k up, and write them, or add them, to dots.
// dot[i] of a lane is that of position i ^ kept<G>(lane).
template <int G, typename Real, typename Dots>
__device__ __forceinline__ void write_dots(Real (&dot)[TILE], Dots dots, int k, int chunk,
                                           bool more) {
  add_permuted<G>(dot);
  const int lane = threadIdx.x;
  const auto sum = dots + row_index<Real>(lane / G, k, kept<G>(lane), chunk);
  const bool writes = lane % SHARING<G> == 0;
#pragma unroll
  for (int i = 0; i < KEPT<G>; ++i) {
    if (writes && more) dot[i] += sum[i];
    if (writes) sum[i] = dot[i];
  }
}

// dots[t][j] = g[t] . x[t + j - pad] over the channels of a head, for the chunk from `first` on and
// the tile's positions: the rows of g stay in registers, and a row of x is multiplied with all of
// them, also where that makes no tap. Each lane has its own channels' part of TILE dot products;
// write_dots makes them whole.
template <int V, int G, typename Number, typename Dots>
__device__ __forceinline__ void correlate(const Number* g, const Number* x, Dots dots, Place at,
                                          int first, int T, int C, int H, int K, int pad,
                                          int chunk, long long g_batch, long long g_time,
                                          long long x_batch, long long x_time) {
  const int R = C / H, count = min(chunk, K - first);
  const Meeting met(at.t, T, pad, first, first + count);
  __syncwarp();  // the dots before have been read
  clear_dots<Number>(dots, met, first, count, G, chunk);
  for (int r0 = 0; r0 < R; r0 += G * V) {
    const Channels<V> own(at.h + threadIdx.x / G, r0, G, H, R);
    Sum<Number> gradient[TILE][V];
    load_tile<G>(gradient, g + at.b * g_batch + own.c, g_time, at.t, T, own.active);
    Rows<Number, V> rows(x + at.b * x_batch + own.c, x_time, at.t + met.from - pad,
                         met.to - met.from + TILE - 1, T);
    each_row(met.from, met.to, rows, [&](int k, int, int, bool inside) {
      Sum<Number> row[V], dot[TILE] = {};
      rows.take(row, inside);
#pragma unroll
      for (int i = 0; i < TILE; ++i)
#pragma unroll
        for (int v = 0; v < V; ++v) dot[i] += gradient[i][v] * row[v];
      write_dots<G>(dot, dots, k - first, chunk, r0 > 0);
    });
  }
  __syncwarp();
}
