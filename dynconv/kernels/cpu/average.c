// The cumulative mean (Zhang et al. 2018, section 3), y[t] = (1 / (t+1)) sum_{s<=t} x[s], and its
// gradient dx[s] = sum_{t>=s} g[t] / (t+1). Running sums are long: they are kept in double.

#include "vector.h"

#define BLOCK 256  // channels of a job

void cumulative_mean(int backward, const stored *x, stored *y, long B, long T, long C, long xb,
                     long xt, int threads) {
  long blocks = (C + BLOCK - 1) / BLOCK;
  if (B * T * C < 1 << 14) threads = 1;
#pragma omp parallel for num_threads(threads)
  for (long job = 0; job < B * blocks; job++) {
    long b = job / blocks, c0 = job % blocks * BLOCK, n = least(BLOCK, C - c0);
    double sum[BLOCK] = {0};
    for (long i = 0; i < T; i++) {
      long t = backward ? T - 1 - i : i;
      const stored *xt_ = x + b * xb + t * xt + c0;
      stored *yt = y + (b * T + t) * C + c0;
      double share = 1.0 / (t + 1);
      if (backward)
        for (long c = 0; c < n; c++) yt[c] = rounded(sum[c] += read(xt_[c]) * share);
      else
        for (long c = 0; c < n; c++) yt[c] = rounded((sum[c] += read(xt_[c])) * share);
    }
  }
}
