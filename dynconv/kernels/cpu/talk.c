// TaLK (Lioutas and Guo 2020, section 3), forward and backward.
//
//   y[b,t,c] = (1/N) (sum_{s=t-fl}^{t+fr} x[s] + gl x[t-fl-1] + gr x[t+fr+1]),   N = L + R + 1
//
// with the distances dl = min(left L, t) and dr = min(right R, T-1-t) of the window's edges from
// its position, fl and gl the whole and the broken part of dl. A sum over a window is the
// difference of two running sums. They restart in each tile, so they stay short and lose no digits.
// Distances, unlike positions, keep their fraction at any t.
//
//   dleft[b,t,h]  = (L/N) sum_{c of h} g[b,t,c] x[b,t-fl-1,c]    if 0 < left L < t is not whole
//   dright        likewise with R and x[b,t+fr+1,c]
//   dx            the difference array of all windows, added up along time

#include "vector.h"

#define TILE 64

typedef struct {
  long whole;
  real part;  // NaN if the offset is
  int free;   // does the edge move with its offset?
} edge;

INLINE edge edge_at(real offset, real reach, long limit) {
  real distance = offset * reach;
  real d = distance > 0 ? distance : 0;  // not NaN
  d = d < limit ? d : limit;
  long whole = (long)d;
  real part = d - whole;
  return (edge){whole, distance == distance ? part : distance, part > 0 && d == distance};
}

// The largest distance of any edge; offsets above 1 are allowed. For others it is the same in every
// batch, and so are the sums.
static long reach_of(const real *offset, long n, real reach, long T) {
  real top = 1;
  for (long i = 0; i < n; i++) top = offset[i] > top ? offset[i] : top;
  return (long)fmin(ceil((double)top * reach), T - 1);
}

// y and x as in conv.c; left and right (B,T,H) in reals, contiguous; right may be NULL when R is 0.
void talk_conv(const stored *x, const real *left, const real *right, stored *y, long B, long T,
               long C, long H, long L, long R, long xb, long xt, int threads) {
  long n = C / H, tiles = (T + TILE - 1) / TILE, width = up(n, W);
  int big = large(B * T * C), streamed = big && streams(y, n);
  real scale = 1 / (real)(L + R + 1);
  if (B * T * C < 1 << 14) threads = 1;
  long before = reach_of(left, B * T * H, L, T) + 1;
  long after = (right ? reach_of(right, B * T * H, R, T) : 0) + 1;
#pragma omp parallel num_threads(threads)
  {
    // Row i + 1 of S is the sum of the rows first .. first + i of x, which X contains.
    long row = H * width, rows_max = least(T, TILE + before + after) + 1;
    real *S = room(rows_max * row), *X = copies(n) ? room(rows_max * row) : 0;
    real *zeros = memset(room(width), 0, width * sizeof(real));
#pragma omp for
    for (long job = 0; job < B * tiles; job++) {
      long b = job / tiles, t0 = job % tiles * TILE, t1 = least(T, t0 + TILE);
      long first = most(0, t0 - before), last = least(T, t1 + after), summed = first;
      rows xs = gather(X, x + b * xb + first * xt, xt, last - first, H, n);
      memset(S, 0, row * sizeof(real));
      for (long t = t0; t < t1; t++) {
        for (; summed < least(last, t + after + 1); summed++) {
          real *s = S + (summed - first + 1) * row;
          const real *xr = xs.at + (summed - first) * xs.stride;
          for (long c = 0; c < row; c += W) put(s + c, get(s + c - row) + get(xr + c));
        }
        if (big) ask(x + b * xb + (summed + 2) * xt, C);
        for (long h = 0; h < H; h++) {
          long at = (b * T + t) * H + h;
          edge l = edge_at(left[at], L, t);
          edge r = right ? edge_at(right[at], R, T - 1 - t) : (edge){0, 0, 0};
          const real *to = S + (t + r.whole + 1 - first) * row + h * width;
          const real *from = S + (t - l.whole - first) * row + h * width;
          const real *xh = xs.at + (t - first) * xs.stride + h * xs.width;
          const real *xl = t - l.whole > 0 ? xh - (l.whole + 1) * xs.stride : zeros;
          const real *xr = t + r.whole + 1 < T ? xh + (r.whole + 1) * xs.stride : zeros;
          vec pl = splat(l.part * scale), pr = splat(r.part * scale), whole = splat(scale);
          stored *yh = y + (b * T + t) * C + h * n;
          for (long c = 0; c < n; c += W) {
            vec v = whole * (get(to + c) - get(from + c)) + pl * get(xl + c) + pr * get(xr + c);
            if (streamed) stream(yh + c, v);
            else store_first(yh + c, v, n - c);
          }
        }
      }
    }
    fence();
    free(S), free(X), free(zeros);
  }
}

// dx (B,T,C), dleft and dright (B,T,H), all contiguous. A tile of dx takes in all windows that
// reach it; what they add before the tile is added to its first row, what they add after it is
// dropped, so that tiles need nothing of each other.
void talk_conv_backward(const stored *g, const stored *x, const real *left, const real *right,
                        stored *dx, real *dleft, real *dright, long B, long T, long C, long H,
                        long L, long R, long gb, long gt, long xb, long xt, int threads) {
  long n = C / H, tile = 2 * TILE, tiles = (T + tile - 1) / tile, width = up(n, W);
  int big = large(B * T * C), streamed = big && streams(dx, n);
  real scale = 1 / (real)(L + R + 1);
  if (B * T * C < 1 << 14) threads = 1;
  long before = reach_of(left, B * T * H, L, T) + 1;
  long after = (right ? reach_of(right, B * T * H, R, T) : 0) + 1;
#pragma omp parallel num_threads(threads)
  {
    long row = H * width, most_rows = least(T, tile + before + after) + 1;
    real *D = room((tile + 1) * row);  // the last row takes what is dropped
    real *X = copies(n) ? room(most_rows * row) : 0, *G = copies(n) ? room(most_rows * row) : 0;
    real *zeros = memset(room(width), 0, width * sizeof(real));
#pragma omp for
    for (long job = 0; job < B * tiles; job++) {
      long b = job / tiles, s0 = job % tiles * tile, s1 = least(T, s0 + tile);
      long t0 = most(0, s0 - after), t1 = least(T, s1 + before);  // windows that reach the tile
      long first = most(0, s0 - before), last = least(T, s1 + after);  // rows their offsets need
      rows gs = gather(G, g + b * gb + t0 * gt, gt, t1 - t0, H, n);
      rows xs = gather(X, x + b * xb + first * xt, xt, last - first, H, n);
      memset(D, 0, (s1 - s0 + 1) * row * sizeof(real));
      for (long t = t0; t < t1; t++) {
        if (big) ask(g + b * gb + (t + 4) * gt, C), ask(x + b * xb + (t + after + 4) * xt, C);
        for (long h = 0; h < H; h++) {
          long at = (b * T + t) * H + h;
          edge l = edge_at(left[at], L, t);
          edge r = right ? edge_at(right[at], R, T - 1 - t) : (edge){0, 0, 0};
          const real *gh = gs.at + (t - t0) * gs.stride + h * gs.width;
#define ROW(s) (D + (least(most(s, s0), s1) - s0) * row + h * width)
          real *l0 = ROW(t - l.whole - 1), *l1 = ROW(t - l.whole);
          real *r0 = ROW(t + r.whole + 1), *r1 = ROW(t + r.whole + 2);
          vec pl = splat(l.part), pr = splat(r.part);
          for (long c = 0; c < width; c += W) {
            vec v = get(gh + c), vl = pl * v, vr = pr * v;
            put(l0 + c, get(l0 + c) + vl);
            put(l1 + c, get(l1 + c) + (v - vl));
            put(r0 + c, get(r0 + c) - (v - vr));
            put(r1 + c, get(r1 + c) - vr);
          }
          if (t < s0 || t >= s1) continue;
          const real *xh = xs.at + (t - first) * xs.stride + h * xs.width;
          const real *xl = l.free ? xh - (l.whole + 1) * xs.stride : zeros;
          const real *xr = r.free ? xh + (r.whole + 1) * xs.stride : zeros;
          vec suml = {}, sumr = {};
          for (long c = 0; c < width; c += W)
            suml += get(gh + c) * get(xl + c), sumr += get(gh + c) * get(xr + c);
          real dl = 0, dr = 0;
          for (long i = 0; i < W; i++) dl += suml[i], dr += sumr[i];
          dleft[at] = dl * L * scale;
          if (right) dright[at] = dr * R * scale;
        }
      }
      for (long s = s0; s < s1; s++) {
        real *d = D + (s - s0) * row;
        for (long h = 0; h < H; h++, d += width)
          for (long c = 0; c < n; c += W) {
            vec v = get(d + c);
            if (s > s0) put(d + c, v += get(d + c - row));
            stored *out = dx + (b * T + s) * C + h * n + c;
            if (streamed) stream(out, splat(scale) * v);
            else store_first(out, splat(scale) * v, n - c);
          }
      }
    }
    fence();
    free(D), free(X), free(G), free(zeros);
  }
}
