// The inner loop that LightConv, DynamicConv and their gradients share.
//
// Map. A warp takes TILE positions of 32 / G heads. The G lanes of a head take V neighbouring
// channels each, then the V that lie G * V further on, until the head's R channels are done. So
// V divides R, and lanes are idle where R / V is no power of two.
//
// Reuse. A row of x is loaded once for the TILE outputs that need it: up to 16 bytes a lane, and
// TILE * V products. The rows of a window stay in registers, TILE of them, and rotate: at each tap
// one new row takes the place of the oldest.

constexpr int TILE = 8;  // positions of a warp, and taps of an unrolled loop; see grids.py

// Rows on their way while the products of earlier ones are made.
template <typename Number, int V>
constexpr int AHEAD = sizeof(Pack<Number, V>) == 16 ? 2 : 4;

struct Place { int b, t, h; };  // sentence, first position, first head of this warp

__device__ __forceinline__ Place place(int tiles, int H, int heads) {
  const int groups = (H + heads - 1) / heads, blocks = (tiles + blockDim.y - 1) / blockDim.y;
  const int group = blockIdx.x % groups, rest = blockIdx.x / groups;  // heads fastest, then time
  const int tile = rest % blocks * (int)blockDim.y + (int)threadIdx.y;
  return {rest / blocks, tile * TILE, group * heads};
}

// Rows of one sentence, of this lane's V channels, one after the other; zeros where there is none.
template <typename Number, int V>
struct Rows {
  const Number* x;
  long long stride;
  int s;           // the row that x points to
  unsigned limit;  // rows from here on, as rows before 0, are not read

  // From `first` on, `count` of them; x is row 0.
  __device__ __forceinline__ Rows(const Number* x, long long stride, int first, int count, int T,
                                  bool active)
      : x(x + first * stride), stride(stride), s(first),
        limit(active ? max(0, min(T, first + count)) : 0) {}

  __device__ __forceinline__ Pack<Number, V> next() {
    Pack<Number, V> row = {};
    if ((unsigned)s < limit) row = *reinterpret_cast<const Pack<Number, V>*>(x);
    x += stride, ++s;
    return row;
  }
};

// The rows that TILE outputs need at a tap, and a few more that are on their way.
template <typename Number, int V>
struct Window {
  Rows<Number, V> rows;
  Sum<Number> row[TILE][V];  // at tap j, row[(a + j) % TILE] is number a + j of the rows
  Pack<Number, V> next[AHEAD<Number, V>];

  __device__ __forceinline__ explicit Window(const Rows<Number, V>& from) : rows(from) {
#pragma unroll
    for (int i = 0; i < TILE - 1; ++i) widen(rows.next(), row[i]);
#pragma unroll
    for (int i = 0; i < AHEAD<Number, V>; ++i) next[i] = rows.next();
  }

  // Move on to the next tap, j; the compiler knows u = j % TILE.
  __device__ __forceinline__ void move(int u) {
    widen(next[u % AHEAD<Number, V>], row[(u + TILE - 1) % TILE]);
    next[u % AHEAD<Number, V>] = rows.next();
  }
};

// The taps from `first` to `last` that meet a row at one of the TILE positions from t on; of those
// before and after, the sentence has no token. Both `from` and `first` are multiples of TILE.
struct Meeting {
  int from, to;
  __device__ __forceinline__ Meeting(int t, int T, int pad, int first, int last)
      : from(max(first, max(0, pad - t - (TILE - 1)) / TILE * TILE)),
        to(min(last, T + pad - t)) {}
};

// step(u, j) for the taps j from a multiple of TILE on; the compiler knows u = j % TILE. Only those
// that remain, fewer than TILE, ask one by one whether they are the last.
template <typename Step>
__device__ __forceinline__ void each_tap(int from, int to, const Step& step) {
#pragma unroll 1
  for (; from + TILE <= to; from += TILE) {
#pragma unroll
    for (int u = 0; u < TILE; ++u) step(u, from + u);
  }
#pragma unroll
  for (int u = 0; u < TILE; ++u) {
    if (from + u >= to) break;
    step(u, from + u);
  }
}

// out[t + a] = sum_j w[a][j] x[t + a + j - pad]
//
// weights.stage(first) brings the taps first ... first + chunk - 1 into shared memory,
// weights.tap(j - first, w) reads TILE of them, for tap j at the warp's positions.
template <int V, typename Number, typename Weights>
__device__ __forceinline__ void convolve(const Number* x, Number* out, Weights& weights, Place at,
                                         int T, int C, int H, int K, int pad, int G, int chunk,
                                         long long batch_stride, long long time_stride) {
  const int lane = threadIdx.x, R = C / H, h = at.h + lane / G;
  for (int r0 = 0; r0 < R; r0 += G * V) {
    const int r = r0 + lane % G * V;
    const bool active = h < H && r < R;
    const int c = h * R + r;
    const Meeting all(at.t, T, pad, 0, K);
    Window<Number, V> window({x + at.b * batch_stride + c, time_stride, at.t + all.from - pad,
                              K - all.from + TILE - 1, T, active});
    Sum<Number> sum[TILE][V] = {};
    for (int first = 0; first < all.to; first += chunk) {
      if (r0 == 0 || chunk < K) weights.stage(first);
      const int last = min(first + chunk, all.to);
      each_tap(max(first, all.from), last, [&](int u, int j) {
        window.move(u);
        Sum<Number> w[TILE];
        weights.tap(j - first, w);
#pragma unroll
        for (int a = 0; a < TILE; ++a)
#pragma unroll
          for (int v = 0; v < V; ++v) sum[a][v] += w[a] * window.row[(a + u) % TILE][v];
      });
    }
    if (!active) continue;
#pragma unroll
    for (int a = 0; a < TILE; ++a)
      if (at.t + a < T) store<Number, V>(out + ((long long)at.b * T + at.t + a) * C + c, sum[a]);
  }
}

// Add each of eight numbers over the G lanes of a head, in log2(G) steps that halve the numbers a
// lane keeps, while it has more than one. Afterwards value[i] of a lane is the sum of number
// kept<G>(lane) + i, for i < KEPT<G>; SHARING<G> neighbouring lanes have the same. That takes about
// as many shuffles as numbers; each number by itself would take 8 log2(G).
template <int G> constexpr int KEPT = G < 8 ? 8 / G : 1;
template <int G> constexpr int SHARING = G < 8 ? 1 : G / 8;

template <int G, int N = 8, typename Real>
__device__ __forceinline__ void add_over_lanes(Real (&value)[8]) {
  if constexpr (G > 1 && N > 1) {
    const bool upper = threadIdx.x & G / 2;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const Real given = upper ? value[i] : value[i + N / 2];
      value[i] = upper ? value[i + N / 2] : value[i];
      value[i] += __shfl_xor_sync(~0u, given, G / 2);
    }
    add_over_lanes<G / 2, N / 2>(value);
  } else if constexpr (G > 1) {
    value[0] += __shfl_xor_sync(~0u, value[0], G / 2);
    add_over_lanes<G / 2, 1>(value);
  }
}

template <int G, int N = 8>
__device__ __forceinline__ int kept(int lane) {
  if constexpr (G > 1 && N > 1)
    return (lane & G / 2 ? N / 2 : 0) + kept<G / 2, N / 2>(lane);
  return 0;
}
