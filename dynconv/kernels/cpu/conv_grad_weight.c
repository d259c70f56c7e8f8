// Gradients of the weights of LightConv, DynamicConv and depthwise convolution.
//
//   conv_grad_weight         dw[b,t,h,j] = sum_{c of h} g[b,t,c] x[b,t+j-P,c],  x = 0 outside [0,T)
//   conv_grad_weight_shared  dw[h,j]     = sum_{b,t} of these
//
// Both copy SLAB positions at a time into blocks of BLOCK adjacent channels: at 1,024 channels a
// head's rows are 4 KiB apart and would evict each other from the L1 cache. The copy reads memory
// in order.

#include "vector.h"

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
#define FEW_BYTES (sizeof(real) * 4 < BYTES ? sizeof(real) * 4 : BYTES)
typedef real few __attribute__((vector_size(FEW_BYTES), aligned(sizeof(real)), may_alias));
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
  UNROLL for (int u = 0; u < TIMES; u++)
    *(few *)(out + u * ldo) += ((few *)&sums)[u];
}

// dw (B,T,H,K), contiguous, from g and x with their strides.
void conv_grad_weight(const stored *g, const stored *x, stored *dw, long B, long T, long C, long H,
                      long K, long P, long gb, long gt, long xb, long xt, int threads) {
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

// sum[j] += g[t] x[t + j] over n <= SLAB positions t of one vector of channels, for `taps` taps j;
// rows of zeros make n a multiple of 4.
#if defined(__AVX512F__) || defined(__aarch64__)
#define SUMS 16  // of 32 registers
#else
#define SUMS 8
#endif
INLINE void column(int taps, const real *g, const real *x, long n, real *sums) {
  vec sum[SUMS];
  UNROLL for (int j = 0; j < taps; j++) sum[j] = get(sums + j * W);
  for (long t = 0; t < n; t += 4, g += 4 * BLOCK, x += 4 * BLOCK) {
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
__attribute__((noinline)) static void column_all(const real *g, const real *x, long n,
                                                 real *sums) {
  column(SUMS, g, x, n, sums);
}
__attribute__((noinline)) static void column_few(const real *g, const real *x, long n,
                                                 real *sums) {
  column(4, g, x, n, sums);
}

// dw (H,K), the sum over b and t: LightConv's; with H = C the depthwise convolution's. Added up in
// double, in an order that does not depend on the number of threads.
void conv_grad_weight_shared(const stored *g, const stored *x, double *dw, long B, long T, long C,
                             long H, long K, long P, long gb, long gt, long xb, long xt,
                             int threads) {
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
        long b = job / slabs, t = job % slabs * SLAB, n = least(SLAB, T - t);
        blocks(X, x + b * xb, xt, t - P, count, T, heads, R);
        blocks(G, g + b * gb, gt, t, SLAB, T, heads, R);
        memset(S, 0, columns * deep * W * sizeof(real));
        const real *xh = X, *gh = G;
        for (long h = 0; h < heads; h++)
          for (long c = 0; c < R; c += BLOCK, xh += count * BLOCK, gh += SLAB * BLOCK)
            for (long v = 0; v < least(BLOCK, R - c); v += W)
              for (long j = 0; j < K; j += taps) {
                real *into = S + ((lanes ? (c + v) / W : h) * deep + j) * W;
                if (taps == 4) column_few(gh + v, xh + j * BLOCK + v, n, into);
                else column_all(gh + v, xh + j * BLOCK + v, n, into);
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
      dw[h * K + j] = total;
    }
  free(sums);
}
