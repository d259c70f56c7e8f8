// The inner loop that LightConv, DynamicConv and their gradients share.
//
// Map. A warp takes TILE positions of 32 / G heads. The G lanes of a head take V neighbouring
// channels each, then the V that lie G * V further on, until the head's R channels are done. So
// V divides R, and lanes are idle where R / V is no power of two: they repeat another's channels.
// G is a template parameter only where sums are added over the lanes of a head. Elsewhere the loop
// takes the same instructions if G is known, counted on sm_90 in float32; in bfloat16 softmax_conv
// takes 4 more and softmax_data_grad 5 fewer, of about 355. And up to six values of G would each be
// another kernel to compile.
//
// Reuse. A row of x is loaded once for the TILE outputs that need it: up to 16 bytes a lane, and
// TILE * V products. It is multiplied with all of them at once, with the first at tap k, with the
// one after it at tap k - 1, and then no longer needed. So registers hold the sums of the outputs
// and a row or two, and never move from one turn of the loop to the next.

constexpr int TILE = 8;  // positions of a warp, and rows of an unrolled loop; see grids.py

// Rows on their way while the products of earlier ones are made.
template <typename Number, int V>
constexpr int AHEAD = sizeof(Pack<Number, V>) == 16 ? 2 : 4;

struct Place { int b, t, h; };  // sentence, first position, first head of this warp

__device__ __forceinline__ Place place(int tiles, int H, int heads, int warp) {
  const int groups = (H + heads - 1) / heads, blocks = (tiles + blockDim.y - 1) / blockDim.y;
  const int group = blockIdx.x % groups, rest = blockIdx.x / groups;  // heads fastest, then time
  return {rest / blocks, (rest % blocks * (int)blockDim.y + warp) * TILE, group * heads};
}

// The warp's number in its block. By the shuffle the compiler knows that it is the same in all
// lanes, and so that loops over tiles never diverge.
__device__ __forceinline__ int own_warp() { return __shfl_sync(~0u, threadIdx.y, 0); }

// Where a lane finds its V channels, beginning r0 channels after those of its head.
template <int V>
struct Channels {
  int c;        // the first of them; if there is none, another one that exists
  bool active;  // there is one
  __device__ __forceinline__ Channels(int h, int r0, int G, int H, int R) {
    const int r = r0 + threadIdx.x % G * V;
    active = h < H && r < R;
    c = min(h, H - 1) * R + min(r, R - V);
  }
};

// Rows of one sentence, of this lane's V channels, one after the other; zeros where there is none.
// AHEAD of them are on their way.
template <typename Number, int V>
struct Rows {
  const Number* x;
  int stride, s;  // the row that x points to
  int limit;      // rows from here on, as rows before 0, are not read
  Pack<Number, V> next[AHEAD<Number, V>];

  // From `first` on, `count` of them; x is row 0.
  __device__ __forceinline__ Rows(const Number* x, long long stride, int first, int count, int T)
      : x(x + first * stride), stride(stride), s(first), limit(max(0, min(T, first + count))) {
#pragma unroll
    for (int i = 0; i < AHEAD<Number, V>; ++i) next[i] = load(false);
  }

  __device__ __forceinline__ Pack<Number, V> load(bool inside) {
    Pack<Number, V> row = {};
    if (inside || (unsigned)s < (unsigned)limit) row = *reinterpret_cast<const Pack<Number, V>*>(x);
    x += stride, ++s;
    return row;
  }

  // How many rows can be loaded without a test.
  __device__ __forceinline__ int safe() const { return s < 0 ? 0 : limit - s; }

  __device__ __forceinline__ void take(Sum<Number> (&row)[V], bool inside) {
    widen(next[0], row);
#pragma unroll
    for (int i = 1; i < AHEAD<Number, V>; ++i) next[i - 1] = next[i];
    next[AHEAD<Number, V> - 1] = load(inside);
  }
};

// The taps from `first` to `last` that meet a row at one of the TILE positions from t on; of those
// before and after, the sentence has no token.
struct Meeting {
  int from, to;
  __device__ __forceinline__ Meeting(int t, int T, int pad, int first, int last)
      : from(max(first, pad - t - (TILE - 1))), to(min(last, T + pad - t)) {}
};

// step(k, lo, hi, inside) for each row k that one of the taps from `from` to `to` meets, with tap
// k - a at position a: for the positions from lo to hi. The compiler knows lo and hi except where
// taps are few, and also `inside`: where the rows need no test, in the loop over TILE of them, it
// is the row's number in its turn, from 1 on; elsewhere 0.
template <typename Rows, typename Step>
__device__ __forceinline__ void each_row(int from, int to, const Rows& rows, const Step& step) {
  constexpr int EDGE = TILE - 1;
  if (to - from < EDGE) {
#pragma unroll 1
    for (int k = from; k < to + EDGE; ++k)
      step(k, max(0, k - to + 1), min(TILE, k - from + 1), 0);
    return;
  }
#pragma unroll
  for (int i = 0; i < EDGE; ++i) step(from + i, 0, i + 1, 0);
  int k = from + EDGE;
  const int end = min(to, k + rows.safe());
#pragma unroll 1
  for (; k + TILE <= end; k += TILE) {
#pragma unroll
    for (int i = 0; i < TILE; ++i) step(k + i, 0, TILE, i + 1);
  }
#pragma unroll 1
  for (; k < to; ++k) step(k, 0, TILE, 0);
#pragma unroll
  for (int i = 0; i < EDGE; ++i) step(to + i, i + 1, TILE, 0);
}

// out[t + a] = sum_j w[a][j] x[t + a + j - pad]
//
// weights.stage(first) brings the taps first ... first + chunk - 1 into shared memory,
// weights.row(k - first, lo, w) reads those that meet row k: at position a, from lo on, tap k - a.
template <int V, typename Number, typename Weights>
__device__ __forceinline__ void convolve(const Number* x, Number* out, Weights& weights, Place at,
                                         int T, int C, int H, int K, int pad, int G, int chunk,
                                         long long batch_stride, long long time_stride) {
  const int R = C / H;
  for (int r0 = 0; r0 < R; r0 += G * V) {
    const Channels<V> own(at.h + threadIdx.x / G, r0, G, H, R);
    Sum<Number> sum[TILE][V] = {};
    for (int first = 0; first < min(K, T + pad - at.t); first += chunk) {
      if (r0 == 0 || chunk < K) weights.stage(first);
      const Meeting met(at.t, T, pad, first, min(first + chunk, K));
      Rows<Number, V> rows(x + at.b * batch_stride + own.c, time_stride, at.t + met.from - pad,
                           met.to - met.from + TILE - 1, T);
      Sum<Number> w[TILE] = {};
      each_row(met.from, met.to, rows, [&](int k, int lo, int hi, bool inside) {
        Sum<Number> row[V];
        rows.take(row, inside);
        weights.row(k - first, lo, w);
#pragma unroll
        for (int a = 0; a < TILE; ++a)
#pragma unroll
          for (int v = 0; v < V; ++v)
            if (lo <= a && a < hi) sum[a][v] += w[a] * row[v];
      });
    }
    if (!own.active) continue;
#pragma unroll
    for (int a = 0; a < TILE; ++a)
      if (at.t + a < T)
        store<Number, V>(out + ((long long)at.b * T + at.t + a) * C + own.c, sum[a]);
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

// The same of numbers that lie in another order in each lane: value[i] is number i ^ kept<G>(lane).
// So what a lane gives lies in the same registers in all lanes, and nothing has to be chosen.
template <int G, int N = 8, typename Real>
__device__ __forceinline__ void add_permuted(Real (&value)[8]) {
#pragma unroll
  for (int i = 0; i < (N + 1) / 2; ++i)
    if constexpr (G > 1) value[i] += __shfl_xor_sync(~0u, value[N / 2 + i], G / 2);
  if constexpr (G > 2) add_permuted<G / 2, N == 1 ? 1 : N / 2>(value);
}

// The TILE rows of x from row t on in that order, zeros where there is none: rows[i] is row
// t + (i ^ kept<G>(lane)).
template <int G, int V, typename Number>
__device__ __forceinline__ void load_tile(Sum<Number> (&rows)[TILE][V], const Number* x,
                                          long long stride, int t, int T, bool active) {
#pragma unroll
  for (int i = 0; i < TILE; ++i) {
    const int s = t + (i ^ kept<G>(threadIdx.x));
    Pack<Number, V> row = {};
    if (active && 0 <= s && s < T) row = *reinterpret_cast<const Pack<Number, V>*>(x + s * stride);
    widen(row, rows[i]);
  }
}
