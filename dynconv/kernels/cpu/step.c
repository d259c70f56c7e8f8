// One decoding step of a convolution. The window of row n is scattered over `past` (slots, M, C),
// because a beam search reorders rows: tap j reads row row_of[n,j] of slot j.
//
//   y[n,c] = sum_j w[n,head(c),j] past[j, row_of[n,j], c]

#include "vector.h"

// The last vector of a head's channels reads only its own: load_first.
void conv_step(const stored *past, const int64_t *row_of, const stored *w, stored *y, long N, long M, long C,
          long H, long K, long an, long wn, long wh, int threads) {
  long R = C / H;
  if (N * C * K < 1 << 18) threads = 1;
#pragma omp parallel for num_threads(threads)
  for (long n = 0; n < N; n++)
    for (long h = 0; h < H; h++) {
      const stored *weight = w + n * wn + h * wh;
      for (long c = 0; c < R; c += 4 * W) {
        vec sum[4] = {{}, {}, {}, {}};
        for (long j = 0; j < K; j++) {
          const stored *row = past + (j * M + row_of[n * an + j]) * C + h * R + c;
          vec tap = splat(read(weight[j]));
          if (R - c >= 4 * W) {
            UNROLL for (int v = 0; v < 4; v++) sum[v] += tap * load(row + v * W);
          } else
            for (int v = 0; v < 4 && v * W < R - c; v++)
              sum[v] += tap * load_first(row + v * W, R - c - v * W);
        }
        for (int v = 0; v < 4 && v * W < R - c; v++)
          store_first(y + n * C + h * R + c + v * W, sum[v], R - c - v * W);
      }
    }
}

// Whether this library was compiled with OpenMP; without it all functions run on one thread.
int threaded(void) {
#ifdef _OPENMP
  return 1;
#else
  return 0;
#endif
}
