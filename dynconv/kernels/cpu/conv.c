// LightConv, DynamicConv and depthwise convolution (Wu et al. 2019, sections 2 to 4).
//
//   mix         y[b,t,c]    = sum_j w[b,t,head(c),j] x[b,t+j-P,c]              x = 0 outside [0,T)
//   transposed  dx[b,s,c]   = sum_j w[b,s-j+P,head(c),j] g[b,s-j+P,c]
//   correlate   dw[b,t,h,j] = sum_{c of h} g[b,t,c] x[b,t+j-P,c]
//
// With i = K-1-j and Q = K-1-P the second is a mix of g with the kernel of each *input* row, read
// backwards: dx[s] = sum_i w[s+i-Q,K-1-i] g[s+i-Q].
//
// STEPS positions go through all heads before the next ones, so that memory is read and written in
// order, while rows of the next positions are asked for. Within a head STEPS x VECTORS sums stay
// in registers, and each row of x that comes in is added to all of them.

#include "vector.h"

#define TILE 64  // positions of a job, the unit that threads share
#define STEPS 4
#if defined(__AVX512F__) || defined(__aarch64__)
#define VECTORS 4  // 16 of 32 registers are sums
#else
#define VECTORS 2
#endif

enum { FORWARD, TRANSPOSED, PER_CHANNEL };

// y[u] = sum_j w(u,j) x[u+j] for `steps` positions u and `nv` vectors of channels, from the rows
// lo <= u+j < hi. The weight w(u,j) is w[u * ldw + j]; TRANSPOSED: w[(u+j) * ldw + K-1-j];
// PER_CHANNEL: the vector at w + j * ldw.
INLINE void tile(int kind, int steps, int nv, const real *x, long ldx, const real *w, long ldw,
                 long K, long lo, long hi, stored *y, long ldy, long n, int streamed) {
  vec sum[STEPS][VECTORS];
  UNROLL for (int u = 0; u < steps; u++) UNROLL for (int v = 0; v < nv; v++) sum[u][v] = (vec){};
#define ROW(i, from, to)                                                                  \
  do {                                                                                    \
    vec row[VECTORS];                                                                     \
    UNROLL for (int v = 0; v < nv; v++) {                                                 \
      row[v] = get(x + (i) * ldx + v * W);                                                \
      HOLD(row[v]);                                                                       \
    }                                                                                     \
    const real *wi = kind == TRANSPOSED ? w + (i) * ldw + K - 1 - (i) : w + (i);          \
    UNROLL for (int u = from; u <= (to); u++) {                                           \
      vec weight = {};                                                                    \
      if (kind == FORWARD) weight = splat(wi[u * ldw - u]);                               \
      if (kind == TRANSPOSED) weight = splat(wi[u]);                                      \
      UNROLL for (int v = 0; v < nv; v++) {                                               \
        if (kind == PER_CHANNEL) weight = get(w + ((i) - u) * ldw + v * W);               \
        sum[u][v] += weight * row[v];                                                     \
      }                                                                                   \
    }                                                                                     \
  } while (0)
  UNROLL for (int i = 0; i < steps - 1; i++) if (i >= lo && i < hi) ROW(i, 0, i);
  for (long i = most(lo, steps - 1); i < least(hi, K); i++) ROW(i, 0, steps - 1);
  UNROLL for (int q = 1; q < steps; q++) {
    long i = K - 1 + q;
    if (i >= lo && i < hi) ROW(i, q, steps - 1);
  }
#undef ROW
  if (streamed) {
    UNROLL for (int u = 0; u < steps; u++) UNROLL for (int v = 0; v < nv; v++)
      stream(y + u * ldy + v * W, sum[u][v]);
  } else if (n >= nv * W) {
    UNROLL for (int u = 0; u < steps; u++) UNROLL for (int v = 0; v < nv; v++)
      store(y + u * ldy + v * W, sum[u][v]);
  } else {
    UNROLL for (int u = 0; u < steps; u++) UNROLL for (int v = 0; v < nv; v++)
      store_first(y + u * ldy + v * W, sum[u][v], n - v * W);
  }
}

// Not inlined: each by itself, the compiler keeps all its sums in registers.
typedef void tiler(const real *, long, const real *, long, long, long, long, stored *, long, long,
                   int);
#define TILER(name, kind, steps, nv)                                                           \
  __attribute__((noinline)) static void name(const real *x, long ldx, const real *w, long ldw, \
                                             long K, long lo, long hi, stored *y, long ldy,    \
                                             long n, int streamed) {                           \
    tile(kind, steps, nv, x, ldx, w, ldw, K, lo, hi, y, ldy, n, streamed);                     \
  }
#define TILERS(name, kind)           \
  TILER(name##4, kind, 4, VECTORS)   \
  TILER(name##2, kind, 2, VECTORS)   \
  TILER(name##1, kind, 1, VECTORS)   \
  TILER(name##4_narrow, kind, 4, 1)  \
  TILER(name##2_narrow, kind, 2, 1)  \
  TILER(name##1_narrow, kind, 1, 1)
TILERS(forward, FORWARD)
TILERS(transposed, TRANSPOSED)
TILERS(per_channel, PER_CHANNEL)
#define LISTED(name) \
  {{0, name##1_narrow, name##2_narrow, 0, name##4_narrow}, {0, name##1, name##2, 0, name##4}}
static tiler *const tilers[3][2][STEPS + 1] = {LISTED(forward), LISTED(transposed),
                                               LISTED(per_channel)};

// x (B,T,C) with strides xb, xt; channels lie side by side. w: for `kind` FORWARD and TRANSPOSED
// (B,T,H,K) with strides wb, wt, taps and heads side by side (LightConv's strides are 0); for
// PER_CHANNEL (K,C), side by side, and H is 1. y (B,T,C), contiguous.
void mix(int kind, const stored *x, const stored *w, stored *y, long B, long T, long C, long H,
         long K, long P, long xb, long xt, long wb, long wt, int threads) {
  long R = C / H, tiles = (T + TILE - 1) / TILE, weights = kind == PER_CHANNEL ? K * C : H * K;
  long most_steps = K >= 4 ? 4 : K >= 2 ? 2 : 1;
  int big = large(B * T * C), streamed = big && streams(y, R);
  int copied = copies(R);
  if (B * T * C * K < 1 << 18) threads = 1;
#pragma omp parallel num_threads(threads)
  {
    real *X = copied ? room((TILE + K) * H * up(R, W)) : 0;
    real *V = sizeof(stored) == sizeof(real) ? 0 : room((wt ? TILE + K : 1) * up(weights, W));
#pragma omp for
    for (long job = 0; job < B * tiles; job++) {
      long b = job / tiles, t0 = job % tiles * TILE, t1 = least(T, t0 + TILE);
      long first = most(0, t0 - P), last = least(T, t1 + K - 1 - P);  // rows of x
      long from = kind == TRANSPOSED ? first : t0, to = kind == TRANSPOSED ? last : t1;  // of w
      rows xs = gather(X, x + b * xb + first * xt, xt, last - first, H, R);
      rows ws = gather(V, w + b * wb + from * wt, wt, wt ? to - from : 1, 1, weights);
      long ldw = kind == PER_CHANNEL ? C : wt ? ws.stride : 0;
      for (long t = t0, steps; t < t1; t += steps) {
        for (steps = most_steps; steps > t1 - t;) steps /= 2;
        long origin = t - P;  // the row of x at tap 0
        for (long h = 0; h < H; h++) {
          if (big)
            for (long u = h * steps / H; u < (h + 1) * steps / H; u++) {
              ask(x + b * xb + (origin + steps + K - 1 + u) * xt, C);
              if (wt) ask(w + b * wb + (steps + u + (kind == TRANSPOSED ? origin + K - 1 : t)) * wt,
                          H * K);
            }
          const real *xh = xs.at + (origin - first) * xs.stride + h * xs.width, *wh = ws.at + h * K;
          if (kind == FORWARD) wh += (t - t0) * ldw;
          if (kind == TRANSPOSED) wh += (origin - first) * ldw;
          stored *yh = y + (b * T + t) * C + h * R;
          long lo = most(0, first - origin), hi = least(steps + K - 1, last - origin);
          for (long c = 0, wide; c < R; c += wide ? VECTORS * W : W) {
            wide = R - c > (VECTORS - 1) * W;
            tilers[kind][wide][steps](xh + c, xs.stride, kind == PER_CHANNEL ? wh + c : wh, ldw, K, lo,
                                      hi, yh + c, C, R - c, streamed);
          }
        }
      }
    }
    fence();
    free(X), free(V);
  }
}

// Both gradients of the weight take SLAB positions at a time, copied into blocks of BLOCK channels
// that lie side by side: heads lie 4 KiB apart at 1,024 channels, and their rows would push each
// other out of the first cache. Whole rows are read in order, which memory rewards.
#define BLOCK 64
#define SLAB 32

// `count` rows from `first` on, zeros outside [0, T), as blocks of (count, BLOCK): R channels of a
// head fill up(R, BLOCK) / BLOCK of them.
static void blocks(real *out, const stored *x, long stride, long first, long count, long T, long H,
                   long R) {
  for (long s = first, i = 0; i < count; s++, i++) {
    real *to = out + i * BLOCK;
    ask(x + (s + 4) * stride, H * R);
    for (long h = 0; h < H; h++)
      for (long c = 0; c < R; c += BLOCK, to += count * BLOCK) {
        long n = least(BLOCK, R - c);
        if (s >= 0 && s < T) unpack(to, up(n, W), x + s * stride + h * R + c, 1, n);
        else memset(to, 0, up(n, W) * sizeof(real));
      }
  }
}

// out[u * ldo + j] += sum_c g[u][c] x[u + j][c], W of these products at once.
#define TAPS (W < 4 ? W : 4)
#define TIMES (W / TAPS)
__attribute__((noinline)) static void dots(const real *g, const real *x, long n, real *out,
                                           long ldo) {
  vec sum[W];
  UNROLL for (int i = 0; i < W; i++) sum[i] = (vec){};
  for (long c = 0; c < n; c += W, g += W, x += W) {
    vec row[TIMES + TAPS - 1];
    UNROLL for (int i = 0; i < TIMES + TAPS - 1; i++) {
      row[i] = get(x + i * BLOCK);
      HOLD(row[i]);
    }
    UNROLL for (int u = 0; u < TIMES; u++) {
      vec gu = get(g + u * BLOCK);
      UNROLL for (int j = 0; j < TAPS; j++) sum[u * TAPS + j] += gu * row[u + j];
    }
  }
  vec sums = lane_sums(sum);
  typedef real few __attribute__((vector_size(TAPS * sizeof(real)), aligned(sizeof(real)), may_alias));
  UNROLL for (int u = 0; u < TIMES; u++)
    *(few *)(out + u * ldo) += ((few *)&sums)[u];
}

// dw (B,T,H,K), contiguous, from g and x with their strides.
void correlate(const stored *g, const stored *x, stored *dw, long B, long T, long C, long H, long K,
               long P, long gb, long gt, long xb, long xt, int threads) {
  long R = C / H, slabs = (T + SLAB - 1) / SLAB, deep = up(K, W);
  long j0 = most(0, P - T + 1) / TAPS * TAPS, j1 = least(K, P + T);  // taps that meet the sequence
  if (B * T * C * K < 1 << 18) threads = 1;
#pragma omp parallel num_threads(threads)
  {
    long count = SLAB + j1 - j0 + TAPS, size = H * up(R, BLOCK);
    real *X = room(count * size), *G = room(SLAB * size), *out = room(SLAB * deep);
#pragma omp for
    for (long job = 0; job < B * slabs; job++) {
      long b = job / slabs, t = job % slabs * SLAB, t1 = least(T, t + SLAB);
      blocks(X, x + b * xb, xt, t - P + j0, count, T, H, R);
      blocks(G, g + b * gb, gt, t, SLAB, t1, H, R);
      const real *xh = X, *gh = G;
      for (long h = 0; h < H; h++) {
        memset(out, 0, SLAB * deep * sizeof(real));
        for (long c = 0; c < R; c += BLOCK, xh += count * BLOCK, gh += SLAB * BLOCK)
          for (long u = 0; t + u < t1; u += TIMES) {
            long low = most(j0, (P - t - u - TIMES + 1) / TAPS * TAPS);  // the others meet zeros
            for (long j = low; j < least(j1, P + T - t - u); j += TAPS)
              dots(gh + u * BLOCK, xh + (u + j - j0) * BLOCK, least(BLOCK, R - c),
                   out + u * deep + j, deep);
          }
        for (long u = 0; t + u < t1; u++)
          save(dw + ((b * T + t + u) * H + h) * K, out + u * deep, K);
      }
    }
    free(X), free(G), free(out);
  }
}

// sum[j] += g[t] x[t + j] over SLAB positions t of one vector of channels, for `taps` taps j.
#define SUMS (STEPS * VECTORS)
INLINE void column(int taps, const real *g, const real *x, real *sums) {
  vec sum[SUMS];
  UNROLL for (int j = 0; j < taps; j++) sum[j] = get(sums + j * W);
  for (long t = 0; t < SLAB; t += 4, g += 4 * BLOCK, x += 4 * BLOCK) {
    vec gt[4];
    UNROLL for (int u = 0; u < 4; u++) gt[u] = get(g + u * BLOCK);
    UNROLL for (int i = 0; i < taps + 3; i++) {
      vec row = get(x + i * BLOCK);
      HOLD(row);
      UNROLL for (int u = 0; u < 4; u++) if (i >= u && i - u < taps) sum[i - u] += gt[u] * row;
    }
  }
  UNROLL for (int j = 0; j < taps; j++) put(sums + j * W, sum[j]);
}
__attribute__((noinline)) static void column_all(const real *g, const real *x, real *sums) {
  column(SUMS, g, x, sums);
}
__attribute__((noinline)) static void column_few(const real *g, const real *x, real *sums) {
  column(4, g, x, sums);
}

// dw (H,K), the sum of correlate over b and t: LightConv's; with H = C the depthwise one's. Added
// up in double, in an order that does not depend on the number of threads.
void correlate_shared(const stored *g, const stored *x, stored *dw, long B, long T, long C, long H,
                      long K, long P, long gb, long gt, long xb, long xt, int threads) {
  int lanes = H == C;  // every lane by itself
  long heads = lanes ? 1 : H, R = C / heads, columns = lanes ? up(C, W) / W : H;
  long taps = K <= 4 ? 4 : SUMS, deep = up(up(K, taps), W);
  long slabs = (T + SLAB - 1) / SLAB, jobs = B * slabs, parts = least(jobs, 32);
  double *sums = calloc(parts * H * K, sizeof(double));
  if (B * T * C * K < 1 << 18) threads = 1;
#pragma omp parallel num_threads(threads)
  {
    long count = SLAB + deep + 3, size = heads * up(R, BLOCK);
    real *X = room(count * size), *G = room(SLAB * size), *S = room(columns * deep * W);
#pragma omp for
    for (long part = 0; part < parts; part++)
      for (long job = jobs * part / parts; job < jobs * (part + 1) / parts; job++) {
        long b = job / slabs, t = job % slabs * SLAB;
        blocks(X, x + b * xb, xt, t - P, count, T, heads, R);
        blocks(G, g + b * gb, gt, t, SLAB, T, heads, R);
        memset(S, 0, columns * deep * W * sizeof(real));
        const real *xh = X, *gh = G;
        for (long h = 0; h < heads; h++)
          for (long c = 0; c < R; c += BLOCK, xh += count * BLOCK, gh += SLAB * BLOCK)
            for (long v = 0; v < least(BLOCK, R - c); v += W)
              for (long j = 0; j < K; j += taps) {
                real *into = S + ((lanes ? (c + v) / W : h) * deep + j) * W;
                if (taps == 4) column_few(gh + v, xh + j * BLOCK + v, into);
                else column_all(gh + v, xh + j * BLOCK + v, into);
              }
        double *total = sums + part * K * H;
        for (long k = 0; k < columns; k++)
          for (long j = 0; j < K; j++) {
            real *v = S + (k * deep + j) * W;
            if (lanes)
              for (long l = 0; l < least(W, C - k * W); l++) total[j * C + k * W + l] += v[l];
            else if (j % W == 0) {
              vec sum = lane_sums((vec *)v);
              for (long i = 0; i < least(W, K - j); i++) total[(j + i) * H + k] += sum[i];
            }
          }
      }
    free(X), free(G), free(S);
  }
  for (long h = 0; h < H; h++)
    for (long j = 0; j < K; j++) {
      double total = 0;
      for (long part = 0; part < parts; part++) total += sums[(part * K + j) * H + h];
      dw[h * K + j] = rounded(total);
    }
  free(sums);
}
