// The cumulative mean (Zhang et al. 2018, section 3), y[t] = (1 / (t+1)) sum_{s<=t} x[s], and its
// gradient dx[s] = sum_{t>=s} g[t] / (t+1). Running sums are long: they are kept in double.

#include "vector.h"

void cumulative_mean(int backward, const stored *x, stored *y, long B, long T, long C, long xb,
                     long xt, int threads) {
  if (B * T * C < 1 << 14) threads = 1;
  long blocks = B < threads ? threads : 1, block = (C + blocks - 1) / blocks;  // of channels
#pragma omp parallel for num_threads(threads)
  for (long job = 0; job < B * blocks; job++) {
    long b = job / blocks, c0 = job % blocks * block, n = least(block, C - c0);
    if (n <= 0) continue;
    double *sum = calloc(n, sizeof(double));
    for (long i = 0; i < T; i++) {
      long t = backward ? T - 1 - i : i;
      const stored *row = x + b * xb + t * xt + c0;
      stored *out = y + (b * T + t) * C + c0;
      double share = 1.0 / (t + 1);
      if (backward)
        for (long c = 0; c < n; c++) out[c] = rounded(sum[c] += read(row[c]) * share);
      else
        for (long c = 0; c < n; c++) out[c] = rounded((sum[c] += read(row[c])) * share);
    }
    free(sum);
  }
}
