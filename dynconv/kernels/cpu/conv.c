// LightConv, DynamicConv and depthwise convolution (Wu et al. 2019, sections 2 to 4).
//
//   conv             y[b,t,c]  = sum_j w[b,t,head(c),j] x[b,t+j-P,c]       x = 0 outside [0,T)
//   conv_grad_input  dx[b,s,c] = sum_j w[b,s-j+P,head(c),j] g[b,s-j+P,c]
//
// With i = K-1-j and Q = K-1-P the second is a conv of g with the kernel of each *input* row, read
// backwards: dx[s] = sum_i w[s+i-Q,K-1-i] g[s+i-Q].
//
// STEPS positions are computed for all heads before the next ones, so memory is read and written in
// order, and rows of the next positions are prefetched. Within a head, STEPS x VECTORS sums stay in
// registers, and each row of x that is loaded is added to all of them.

#include "vector.h"

#define TILE 64  // positions of a job, the unit that threads share
#define STEPS 4
#if defined(__AVX512F__) || defined(__aarch64__)
#define VECTORS 4  // 16 of 32 registers are sums
#else
#define VECTORS 2
#endif

enum { FORWARD, GRAD_INPUT, PER_CHANNEL };

// y[u] = sum_j w(u,j) x[u+j] for `steps` positions u and `nv` vectors of channels, from the rows
// lo <= u+j < hi. The weight w(u,j) is w[u * ldw + j]; GRAD_INPUT: w[(u+j) * ldw + K-1-j];
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
    const real *wi = kind == GRAD_INPUT ? w + (i) * ldw + K - 1 - (i) : w + (i);          \
    UNROLL for (int u = from; u <= (to); u++) {                                           \
      vec weight = {};                                                                    \
      if (kind == FORWARD) weight = splat(wi[u * ldw - u]);                               \
      if (kind == GRAD_INPUT) weight = splat(wi[u]);                                      \
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
TILERS(grad_input, GRAD_INPUT)
TILERS(per_channel, PER_CHANNEL)
#define LISTED(name) \
  {{0, name##1_narrow, name##2_narrow, 0, name##4_narrow}, {0, name##1, name##2, 0, name##4}}
static tiler *const tilers[3][2][STEPS + 1] = {LISTED(forward), LISTED(grad_input),
                                               LISTED(per_channel)};

// x (B,T,C) with strides xb, xt; channels are contiguous. w: for `kind` FORWARD and GRAD_INPUT
// (B,T,H,K) with strides wb, wt, taps and heads contiguous (LightConv's strides are 0); for
// PER_CHANNEL (K,C), contiguous, and H is 1. y (B,T,C), contiguous.
void conv(int kind, const stored *x, const stored *w, stored *y, long B, long T, long C, long H,
          long K, long P, long xb, long xt, long wb, long wt, int threads) {
  long R = C / H, tiles = (T + TILE - 1) / TILE, weights = kind == PER_CHANNEL ? C : H * K;
  long most_steps = K >= 4 ? 4 : K >= 2 ? 2 : 1;
  int big = large(B * T * C), streamed = big && streams(y, R);
  int copied = copies(R);
  if (B * T * C * K < 1 << 18) threads = 1;
#pragma omp parallel num_threads(threads)
  {
    real *X = copied ? room((TILE + K) * H * up(R, W)) : 0;
    // rows of w: the taps of each position, or the channels of each tap
    long count = kind == PER_CHANNEL ? K : wt ? TILE + K : 1;
    int widened = kind == PER_CHANNEL ? copied : sizeof(stored) != sizeof(real);
    real *V = widened ? room(count * up(weights, W)) : 0;
#pragma omp for
    for (long job = 0; job < B * tiles; job++) {
      long b = job / tiles, t0 = job % tiles * TILE, t1 = least(T, t0 + TILE);
      long first = most(0, t0 - P), last = least(T, t1 + K - 1 - P);  // rows of x
      long from = kind == GRAD_INPUT ? first : t0, to = kind == GRAD_INPUT ? last : t1;  // of w
      rows xs = gather(X, x + b * xb + first * xt, xt, last - first, H, R);
      rows ws = kind == PER_CHANNEL
                    ? gather(V, w, C, K, 1, C)
                    : gather(V, w + b * wb + from * wt, wt, wt ? to - from : 1, 1, weights);
      long ldw = kind == PER_CHANNEL || wt ? ws.stride : 0;
      for (long t = t0, steps; t < t1; t += steps) {
        for (steps = most_steps; steps > t1 - t;) steps /= 2;
        long origin = t - P;  // the row of x at tap 0
        for (long h = 0; h < H; h++) {
          if (big)
            for (long u = h * steps / H; u < (h + 1) * steps / H; u++) {
              ask(x + b * xb + (origin + steps + K - 1 + u) * xt, C);
              if (wt) ask(w + b * wb + (steps + u + (kind == GRAD_INPUT ? origin + K - 1 : t)) * wt,
                          H * K);
            }
          const real *xh = xs.at + (origin - first) * xs.stride + h * xs.width, *wh = ws.at + h * K;
          if (kind == FORWARD) wh += (t - t0) * ldw;
          if (kind == GRAD_INPUT) wh += (origin - first) * ldw;
          stored *yh = y + (b * T + t) * C + h * R;
          long lo = most(0, first - origin), hi = least(steps + K - 1, last - origin);
          for (long c = 0, wide; c < R; c += wide ? VECTORS * W : W) {
            wide = R - c > (VECTORS - 1) * W;
            const real *wc = kind == PER_CHANNEL ? wh + c : wh;
            tilers[kind][wide][steps](xh + c, xs.stride, wc, ldw, K, lo, hi, yh + c, C, R - c,
                                      streamed);
          }
        }
      }
    }
    fence();
    free(X), free(V);
  }
}
