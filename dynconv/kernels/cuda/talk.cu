// TaLK: each position sums a window of its own size, whose edges may cut through tokens.
//
//     out[b, t, c] = (sum of the tokens that the window contains whole
//                     + part of the token before it + part of the token after it) / size
//
// with size = max_left + max_right + 1. The window ends left * max_left tokens before t and
// right * max_right after it, or where the sentence does. Offsets (B, T, H), contiguous, in at
// least float32: half precision cannot place an edge. `right` may be null: windows end at t.
//
// Limits at B = 10, T = 1,000, C = 1,024, H = 16 on an NVIDIA H200, as we assume it: microseconds
// that the bytes take at 4.3 TB/s, the operations at 60 TFLOP/s, the traffic with L1 and shared
// memory at 132 x 1.98 GHz x 128 bytes, the instructions of the loop over positions at four a
// cycle. `dynconv bench kernels --predict` has the rest.
//
//                              bytes  operations  shared   issue  expected  measured
//   K = 31  float32   forward    19.3         1.7     9.0     2.7      25.3  not measured
//   K = 31  float32   backward   29.2         2.4    21.7     5.3      39.3  not measured
//   K = 31  bfloat16  forward     9.8         1.7     8.2     3.4      14.1  not measured
//   K = 31  bfloat16  backward   14.9         2.4    18.7     6.3      27.1  not measured

#include "number.cuh"

// How far a window reaches to one side: whole tokens, and a part of the next.
template <typename Real>
struct Edge {
  int whole;
  Real part;

  __device__ __forceinline__ Edge(Real offset, int reach, int limit) {
    Real distance = offset * reach;
    distance = distance < 0 ? 0 : distance > limit ? limit : distance;  // NaN stays NaN
    whole = distance == distance ? (int)distance : 0;
    part = distance - whole;
  }
  __device__ __forceinline__ int tokens() const { return whole + cuts(); }
  __device__ __forceinline__ bool cuts() const { return part > 0; }  // not if it is NaN

  // The share of the last of these tokens, which is whole where the edge cuts none.
  __device__ __forceinline__ Real last() const { return part == 0 ? 1 : part; }

  // The share of the token `ahead` >= 1 tokens further.
  __device__ __forceinline__ Real share(int ahead) const {
    return ahead <= whole ? 1 : ahead == whole + 1 ? part : 0;
  }
};

template <typename Real>
struct Edges { Edge<Real> left, right; };

// The offsets of one head in one sentence.
template <typename Real>
struct Offsets {
  const Real *lefts, *rights;
  int T, H, max_left, max_right;

  __device__ __forceinline__ Offsets(const Real* left, const Real* right, int b, int h, int T,
                                     int H, int max_left, int max_right)
      : lefts(left + (long long)b * T * H + h),
        rights(right ? right + (long long)b * T * H + h : 0),
        T(T), H(H), max_left(max_left), max_right(max_right) {}

  __device__ __forceinline__ Edge<Real> left(int t) const {
    return {lefts[(long long)t * H], max_left, t};
  }
  __device__ __forceinline__ Edge<Real> right(int t) const {
    return {rights ? rights[(long long)t * H] : 0, max_right, T - 1 - t};
  }
};

// v1. A thread makes one number of out and adds its window up, token by token.
template <typename Number>
__global__ void talk_conv_v1(const Number* x, const Sum<Number>* left, const Sum<Number>* right,
                             Number* out, int B, int T, int C, int H, int max_left, int max_right,
                             long long x_batch, long long x_time) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)B * T * C) return;
  const int c = i % C, t = i / C % T, b = i / C / T;
  const Offsets<Sum<Number>> offsets(left, right, b, c / (C / H), T, H, max_left, max_right);
  const Edge<Sum<Number>> l = offsets.left(t), r = offsets.right(t);
  Sum<Number> sum = 0 * (l.part + r.part);  // NaN, if one is NaN
  for (int s = max(t - l.tokens(), 0); s <= min(t + r.tokens(), T - 1); ++s)
    sum += (s < t ? l.share(t - s) : s > t ? r.share(s - t) : 1) *
           widen(x[b * x_batch + s * x_time + c]);
  narrow(sum / (Sum<Number>(1) + max_left + max_right), out[i]);
}

// The reaches that fit into a ring: the largest, or their share of it.
struct Reach { int left, right; };

__device__ __forceinline__ Reach within(int ring, int max_left, int max_right) {
  const long long room = ring - 2, wanted = (long long)max_left + max_right;
  if (wanted <= room) return {max_left, max_right};
  const int left = room * max_left / wanted;
  return {left, (int)room - left};
}

constexpr int STEPS = 8;  // positions whose loads are on their way together
constexpr int SPAN = 32;  // positions whose windows a warp computes together

// Where a warp walks: 32 V channels, and `stretch` positions of a sentence.
template <int V>
struct Stretch {
  int begin, end;     // positions
  long long b;        // sentence
  int c0, h0, heads;  // the warp's first channel, its head, and how many heads the warp meets
  int c, h;           // the same of this lane; an idle one repeats another's
  int before, after;  // how far the windows reach that fit into the ring

  __device__ __forceinline__ Stretch(int T, int C, int H, int max_left, int max_right, int ring,
                                     int stretch) {
    constexpr int LANES = 32 * V;
    const int columns = (C + LANES - 1) / LANES, stretches = (T + stretch - 1) / stretch;
    const int rest = blockIdx.x / columns, R = C / H;
    begin = rest % stretches * stretch, end = min(begin + stretch, T), b = rest / stretches;
    c0 = blockIdx.x % columns * LANES, c = min(c0 + (int)threadIdx.x * V, C - V);
    h0 = c0 / R, h = c / R, heads = (min(c0 + LANES, C) - 1) / R - h0 + 1;
    const Reach held = within(ring, max_left, max_right);
    before = held.left, after = held.right;
  }
};

// A window in the table S of prefix sums, whose row i is the sum of all tokens before token i.
// `first` and `last` are the outermost tokens that it touches, `left` and `right` its shares of
// them; both may be the same token, which it then contains whole.
//
//     sum = S[last] - S[first + 1] + left (S[first + 1] - S[first])
//                                  + right (S[last + 1] - S[last])
template <typename Real>
struct alignas(16) Window {
  int first, last;  // in talk_conv their rows' places in shared memory, in bytes
  Real left, right;
};

// The version in use. A warp takes 32 V channels and walks `stretch` positions. It adds up x / size
// as it goes, each lane its V channels, and keeps the sums in shared memory: only the rows between
// the edges of the widest window, in a ring of a power of two. So a window's sum takes four reads
// whatever its width, no barrier, no bank conflict, no rounding that grows with t. The ring's first
// row is repeated after its last, because the rows of an edge have to follow each other.
//
// A window is the same for all channels of a head. So for every SPAN positions the lanes compute
// the windows of each head, one position each, and leave them in shared memory.
//
// WIDTH is C where tokens of x, as those of out, are C numbers apart; else it is 0, and C and the
// distance are known at run time only. A constant distance saves the addresses of all tokens but
// one in STEPS, because a load or store adds a constant to its address.
//
//   bytes        2 |x| and the offsets; x once more for each stretch's (max_left + max_right)
//                tokens around it, from L2
//   operations   about 10 a number, whatever the width
//   v1 -> this   one load of x for each number instead of one for each token of its window
//
// A window wider than the ring is added up as in v1, which takes time in proportion to its width:
// offsets above 1 make such windows, and reaches of more than 254 tokens in all (126 in float64).
// A token that is infinite or NaN, or much larger than the rest, spoils the sums of its channel to
// the end of the stretch.
template <typename Number, int V, int WIDTH>
__global__ void __launch_bounds__(32, 12)
talk_conv(const Number* __restrict__ x, const Sum<Number>* __restrict__ left,
          const Sum<Number>* __restrict__ right, Number* __restrict__ out, int T, int C, int H,
          int max_left, int max_right, int ring, int stretch, long long x_batch, int x_time) {
  if constexpr (WIDTH > 0) C = x_time = WIDTH;
  using Real = Sum<Number>;
  constexpr int ROW = 32 * V * sizeof(Real);
  DYNAMIC_SHARED(Real, shared);
  const Stretch<V> own(T, C, H, max_left, max_right, ring, stretch);
  const int begin = own.begin, end = own.end, before = own.before, after = own.after, c = own.c;
  const long long b = own.b;
  const Real scale = 1 / (Real(1) + max_left + max_right);
  const auto window = [&](int h, int t) {
    const Offsets<Real> offsets(left, right, b, h, T, H, max_left, max_right);
    return Edges<Real>{offsets.left(t), offsets.right(t)};
  };
  const auto fits = [&](const Edges<Real>& of) {
    return of.left.tokens() <= before && of.right.tokens() <= after;
  };

  const auto column = shared_cast<char>(shared + (int)threadIdx.x * V);
  const auto windows = shared_cast<Window<Real>>(shared + (ring + 1) * (ROW / sizeof(Real)));
  const auto place = [&](int i) { return (i - (begin + after + 1) & ring - 1) * ROW; };
  const auto row = [&](int place) { return shared_cast<Pack<Real, V>>(column + place); };

  const Number* tokens = x + b * x_batch + c;
  const auto token = [&](const Number* at, bool exists) {
    return exists ? *reinterpret_cast<const Pack<Number, V>*>(at) : Pack<Number, V>{};
  };
  const auto add = [&](Pack<Real, V> sum, const Pack<Number, V>& x) {
#pragma unroll
    for (int v = 0; v < V; ++v) sum.at[v] += scale * widen(x.at[v]);
    return sum;
  };
  Pack<Real, V> total = {};
  int s = max(0, begin - before);  // all tokens before s are in the table
  const Number* ahead = tokens + (long long)s * x_time;
  *row(place(s)) = total;
#pragma unroll 8
  for (; s < begin + after; ++s, ahead += x_time) {
    total = add(total, token(ahead, s < T));
    *row(place(s + 1)) = total;
  }
  Pack<Number, V> next[STEPS];
#pragma unroll
  for (int i = 0; i < STEPS; ++i, ahead += x_time) next[i] = token(ahead, s + i < T);

  Number* to = out + (b * T + begin) * C + c;
  for (int t0 = begin; t0 < end; t0 += SPAN) {
    bool all = true;
    __syncwarp();  // the windows before have been read
    for (int head = 0; head < own.heads; ++head) {
      const int t = min(t0 + (int)threadIdx.x, end - 1);
      const Edges<Real> of = window(own.h0 + head, t);
      all &= fits(of);
      windows[head * (SPAN + 1) + threadIdx.x] =
          fits(of) ? Window<Real>{place(t - of.left.tokens()), place(t + of.right.tokens()),
                                  of.left.last(), of.right.last()}
                   : Window<Real>{};
    }
    all = __all_sync(~0u, all);
    __syncwarp();
    const int count = min(SPAN, end - t0);
    auto mine = windows + (own.h - own.h0) * (SPAN + 1);
    for (int n = 0; n < count;) {  // from here to where the ring ends
      const int first = place(t0 + n + after + 1), stop = min(count, n + ring);
      if (first == 0) *row(ring * ROW) = add(total, next[0]);
      auto newest = row(first);
      // Positions t0 + n + i. If `inside`, there are STEPS, and the tokens that they load exist.
      const auto turn = [&](bool inside) {
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
          if (!inside && n + i >= stop) break;
          const Window<Real> at = mine[i];
          *(newest + 32 * i) = total = add(total, next[i]);
          next[i] = token(ahead + (long long)(n + i) * x_time,
                          inside || t0 + n + i + after + STEPS < T);
          const Pack<Real, V> first = *row(at.first), inner = *row(at.first + ROW);
          const Pack<Real, V> last = *row(at.last), beyond = *row(at.last + ROW);
          Real sum[V];
#pragma unroll
          for (int v = 0; v < V; ++v)
            sum[v] = last.at[v] - inner.at[v] + at.left * (inner.at[v] - first.at[v]) +
                     at.right * (beyond.at[v] - last.at[v]);
          store<Number, V>(to + (long long)(n + i) * C, sum);
        }
        n += STEPS, mine = mine + STEPS, newest = newest + 32 * STEPS;
      };
      const int until = n + (min(stop, T - after - STEPS - t0) - n) / STEPS * STEPS;
#pragma unroll 1
      while (n < until) turn(true);
#pragma unroll 1
      while (n < stop) turn(false);
    }
    ahead += (long long)SPAN * x_time, to += (long long)SPAN * C;
    if (all) continue;
#pragma unroll 1
    for (int t = t0; t < t0 + count; ++t) {
      const Edges<Real> of = window(own.h, t);
      if (fits(of)) continue;
      Real sum[V];
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] = 0 * (of.left.part + of.right.part);  // NaN, if one is
      for (int s = max(t - of.left.tokens(), 0); s <= min(t + of.right.tokens(), T - 1); ++s) {
        const Real share = s < t ? of.left.share(t - s) : s > t ? of.right.share(s - t) : 1;
        const Pack<Number, V> x = token(tokens + (long long)s * x_time, true);
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += share * widen(x.at[v]);
      }
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] *= scale;
      store<Number, V>(out + (b * T + t) * C + c, sum);
    }
  }
}

// v1 of the gradients. A thread makes one number of dx; the one of a head's first channel makes the
// two offsets' gradients as well.
template <typename Number>
__global__ void talk_grad_v1(const Number* g, const Number* x, const Sum<Number>* left,
                             const Sum<Number>* right, Number* dx, Sum<Number>* dleft,
                             Sum<Number>* dright, int B, int T, int C, int H, int max_left,
                             int max_right, long long g_batch, long long g_time, long long x_batch,
                             long long x_time) {
  using Real = Sum<Number>;
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)B * T * C) return;
  const int R = C / H, c = i % C, s = i / C % T, b = i / C / T, h = c / R;
  const Offsets<Real> offsets(left, right, b, h, T, H, max_left, max_right);
  const Real size = Real(1) + max_left + max_right;
  g += b * g_batch, x += b * x_batch;
  Real sum = 0;
  for (int t = 0; t < T; ++t) {
    const Real share = s < t   ? offsets.left(t).share(t - s)
                       : s > t ? offsets.right(t).share(s - t)
                               : 1;
    sum += share * widen(g[t * g_time + c]);
  }
  narrow(sum / size, dx[i]);
  if (c % R) return;
  const Edge<Real> l = offsets.left(s), r = offsets.right(s);
  Real to_left = 0 * l.part, to_right = 0 * r.part;  // NaN, if the part is
  for (int k = c; k < c + R; ++k) {
    const Real gradient = widen(g[s * g_time + k]);
    if (l.cuts()) to_left += gradient * widen(x[(s - l.whole - 1) * x_time + k]);
    if (r.cuts()) to_right += gradient * widen(x[(s + r.whole + 1) * x_time + k]);
  }
  const long long at = ((long long)b * T + s) * H + h;
  dleft[at] = to_left * max_left / size;
  if (right) dright[at] = to_right * max_right / size;
}

// How many tokens the widest window of each sentence and head reaches, to the left and to the
// right: reach (B, H). Block (8, 128): eight heads, whose offsets share a sector, 128 rows at a
// time.
template <typename Real>
__global__ void __launch_bounds__(1024)
talk_reach(const Real* __restrict__ left, const Real* __restrict__ right,
           Reach* __restrict__ reach, int T, int H, int max_left, int max_right) {
  __shared__ Reach most[128][8];
  const int groups = (H + 7) / 8, b = blockIdx.x / groups;
  const int h = blockIdx.x % groups * 8 + threadIdx.x;
  Reach mine = {0, 0};
  if (h < H) {
    const Offsets<Real> offsets(left, right, b, h, T, H, max_left, max_right);
#pragma unroll 4
    for (int t = threadIdx.y; t < T; t += 128) {
      mine.left = max(mine.left, offsets.left(t).tokens());
      mine.right = max(mine.right, offsets.right(t).tokens());
    }
  }
  most[threadIdx.y][threadIdx.x] = mine;
  for (int n = 64; n > 0; n /= 2) {
    __syncthreads();
    if ((int)threadIdx.y >= n) continue;
    const Reach other = most[threadIdx.y + n][threadIdx.x];
    mine = {max(mine.left, other.left), max(mine.right, other.right)};
    most[threadIdx.y][threadIdx.x] = mine;
  }
  if (threadIdx.y == 0 && h < H) reach[(long long)b * H + h] = mine;
}

// The gradients in use; see talk_conv for their map.
//
// dx: the share of token s in all windows that hold it. A window adds g where it begins and takes
// it away where it has ended; the running sum of these differences is what all windows together
// give to a token. The differences are in a ring again. Position t changes four of them: by
// left g that of the window's first token, by (1 - left) g that of the next token; by (right - 1) g
// that of its last token, by -right g that of the next. The one of token t - before is now final
// and is added to the sum. Tokens are counted from `origin`, whose row is the first of the ring.
//
// Offsets: their gradients are dot products of g[t] with the token that an edge cuts through. G
// lanes share one; a warp makes those of the heads that begin among its channels, from rows of g
// that it has just read.
//
//   bytes        3 |x|, the offsets and their gradients
//   v1 -> this   one load of g for each number, instead of one for each window about it, and x
//                read along its channels
//
// When a window of this sentence and head is wider than the ring, dx is made as in v1. A gradient g
// that is infinite or NaN spoils dx of its channel to the end of the stretch.
template <typename Number, int V, int WIDTH>
__global__ void __launch_bounds__(32, 12)
talk_grad(const Number* __restrict__ g, const Number* __restrict__ x,
          const Sum<Number>* __restrict__ left, const Sum<Number>* __restrict__ right,
          const Reach* __restrict__ reach, Number* __restrict__ dx, Sum<Number>* __restrict__ dleft,
          Sum<Number>* __restrict__ dright, int T, int C, int H, int max_left, int max_right,
          int ring, int stretch, int G, long long g_batch, int g_time, long long x_batch,
          int x_time) {
  if constexpr (WIDTH > 0) C = g_time = x_time = WIDTH;
  using Real = Sum<Number>;
  constexpr int ROW = 32 * V * sizeof(Real);
  DYNAMIC_SHARED(Real, shared);
  const Stretch<V> own(T, C, H, max_left, max_right, ring, stretch);
  const int begin = own.begin, end = own.end, before = own.before, after = own.after, c = own.c;
  const int lane = threadIdx.x, R = C / H, from = max(0, begin - after), origin = from - before;
  const long long b = own.b;
  const Real scale = 1 / (Real(1) + max_left + max_right);
  const Reach most = reach[b * H + own.h];
  const bool fits = most.left <= before && most.right <= after;
  g += b * g_batch, x += b * x_batch;

  const auto column = shared_cast<char>(shared + lane * V);
  const auto windows = shared_cast<Window<Real>>(shared + (ring + 1) * (ROW / sizeof(Real)));
  const auto change = [&](int token) {
    return shared_cast<Pack<Real, V>>(column + (token & ring - 1) * ROW);
  };
  const auto row = [&](const Number* at, bool exists) {
    return exists ? *reinterpret_cast<const Pack<Number, V>*>(at) : Pack<Number, V>{};
  };
  for (int i = 0; i < ring; ++i) *change(i) = {};
  const Number* ahead = g + ((long long)from * g_time + c);
  Pack<Number, V> next[STEPS];
#pragma unroll
  for (int i = 0; i < STEPS; ++i, ahead += g_time) next[i] = row(ahead, from + i < T);

  const int steps = end - origin, written = (fits ? begin : end) - origin;
  Number* to = dx + (b * T + origin) * C + c;
  Real sum[V] = {};
  for (int n0 = 0; n0 < steps; n0 += SPAN) {
    __syncwarp();  // the windows before have been read
    for (int head = 0; head < own.heads; ++head) {
      const Offsets<Real> offsets(left, right, b, own.h0 + head, T, H, max_left, max_right);
      const int t = min(from + n0 + lane, T - 1);
      const Edge<Real> l = offsets.left(t), r = offsets.right(t);
      windows[head * (SPAN + 1) + lane] = {t - l.tokens() - origin, t + r.tokens() - origin,
                                           l.last(), r.last()};
    }
    __syncwarp();
    const int stop = min(n0 + SPAN, steps);
    auto mine = windows + (own.h - own.h0) * (SPAN + 1);
    int n = n0;
    // Positions from + n + i, and tokens n + i of dx. If `inside`, there are STEPS, and the rows
    // that they load exist.
    const auto turn = [&](bool inside) {
      const auto finished = change(n);  // a multiple of STEPS rows
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        if (!inside && n + i >= stop) break;
        const auto add = [&](int token, Real share, Real rest) {
          const auto first = change(token), second = change(token + 1);
          Pack<Real, V> p = *first, q = *second;
#pragma unroll
          for (int v = 0; v < V; ++v)
            p.at[v] += share * widen(next[i].at[v]), q.at[v] += rest * widen(next[i].at[v]);
          *first = p, *second = q;
        };
        if (inside || from + n + i < T) {  // one edge after the other: they may share rows
          const Window<Real> at = mine[i];
          add(at.first, at.left, 1 - at.left), add(at.last, at.right - 1, -at.right);
        }
        next[i] = row(ahead, inside || from + n + i + STEPS < T);
        ahead += g_time;
        const auto done = finished + 32 * i;
        Real value[V];
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += (*done).at[v], value[v] = sum[v] * scale;
        *done = {};
        if (n + i >= written) store<Number, V>(to, value);
        to += C;
      }
      n += STEPS, mine = mine + STEPS;
    };
    const int until = n + (min(stop, T - from - STEPS) - n) / STEPS * STEPS;
#pragma unroll 1
    while (n < until) turn(true);
#pragma unroll 1
    while (n < stop) turn(false);

    const int t0 = max(begin, from + n0), count = min(end, from + n0 + SPAN) - t0;
    for (int head = 0; head < own.heads; ++head) {
      const int h = own.h0 + head;
      if (h * R < own.c0) continue;  // it begins before
      for (int i = lane / G; i - lane / G < count; i += 32 / G) {
        const int t = t0 + i;
        Real to_left = 0, to_right = 0;
        if (i < count) {
          const Window<Real> at = windows[head * (SPAN + 1) + t - from - n0];
          to_left = 0 * at.left, to_right = 0 * at.right;  // NaN, if the share is
          for (int k = h * R + lane % G * V; k < h * R + R; k += G * V) {
            const auto token = [&](int i) { return x + ((long long)(origin + i) * x_time + k); };
            const Pack<Number, V> y = row(g + ((long long)t * g_time + k), true);
            const Pack<Number, V> a = row(token(at.first), at.left < 1);  // the edge cuts it
            const Pack<Number, V> z = row(token(at.last), at.right < 1);
#pragma unroll
            for (int v = 0; v < V; ++v) {
              to_left += widen(y.at[v]) * widen(a.at[v]);
              to_right += widen(y.at[v]) * widen(z.at[v]);
            }
          }
        }
#pragma unroll
        for (int d = 16; d > 0; d /= 2) {
          if (d >= G) continue;
          to_left += __shfl_xor_sync(~0u, to_left, d);
          to_right += __shfl_xor_sync(~0u, to_right, d);
        }
        if (i >= count || lane % G) continue;
        const long long at = (b * T + t) * H + h;
        dleft[at] = to_left * max_left * scale;
        if (right) dright[at] = to_right * max_right * scale;
      }
    }
  }
  if (fits) return;
  const Offsets<Real> offsets(left, right, b, own.h, T, H, max_left, max_right);
  for (int s = begin; s < end; ++s) {
    Real sum[V] = {};
    for (int t = max(0, s - most.right); t <= min(s + most.left, T - 1); ++t) {
      const Real share = s < t   ? offsets.left(t).share(t - s)
                         : s > t ? offsets.right(t).share(s - t)
                                 : 1;
      const Pack<Number, V> y = row(g + ((long long)t * g_time + c), true);
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] += share * widen(y.at[v]);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] *= scale;
    store<Number, V>(dx + (b * T + s) * C + c, sum);
  }
}
