// The processor's vectors, through the vector extensions that GCC and Clang share.
//
// Compiled once per dtype: `stored` is the type in memory, `real` the type of sums.
// -DBF16 stores bfloat16 and sums in float; otherwise REAL (float or double) is both.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#ifdef BF16
typedef uint16_t stored;
typedef float real;
#else
typedef REAL stored;
typedef REAL real;
#endif

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define W ((long)(BYTES / sizeof(real)))  // lanes of a vector
typedef real vec __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

INLINE long least(long a, long b) { return a < b ? a : b; }
INLINE long most(long a, long b) { return a > b ? a : b; }
INLINE long up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

INLINE vec splat(real a) { return a - (vec){}; }
INLINE vec get(const real *p) { return *(const vec *)p; }
INLINE void put(real *p, vec v) { *(vec *)p = v; }

INLINE real read(stored a) {
#ifdef BF16
  union { uint32_t bits; float value; } u = {(uint32_t)a << 16};
  return u.value;
#else
  return a;
#endif
}

INLINE stored rounded(real a) {  // to the nearest, ties to even; NaN stays NaN
#ifdef BF16
  union { float value; uint32_t bits; } u = {a};
  return a == a ? (u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16 : 0x7fc0;
#else
  return a;
#endif
}

INLINE vec load(const stored *p) {
#ifdef BF16
  typedef uint16_t halves __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));
  typedef uint32_t words __attribute__((vector_size(BYTES)));
  return (vec)(__builtin_convertvector(*(const halves *)p, words) << 16);
#else
  return get(p);
#endif
}

INLINE void store(stored *p, vec v) {
#ifdef BF16
  typedef uint16_t halves __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));
  typedef uint32_t words __attribute__((vector_size(BYTES)));
  words bits = (words)v, nan = (words)(v != v);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  *(halves *)p = __builtin_convertvector((bits & ~nan) | (nan & 0x7fc0), halves);
#else
  put(p, v);
#endif
}

// The first n <= W lanes.
INLINE vec load_first(const stored *p, long n) {
  if (n >= W) return load(p);
  vec v = {};
  for (long i = 0; i < n; i++) v[i] = read(p[i]);
  return v;
}

INLINE void store_first(stored *p, vec v, long n) {
  if (n >= W) return store(p, v);
  for (long i = 0; i < n; i++) p[i] = rounded(v[i]);
}

// Lane i of the result is the sum of the lanes of v[i], for i < W. Each round adds neighbours of
// pairs of vectors and halves their number.
INLINE vec lane_sums(vec *v) {
#if defined(__GNUC__) && !defined(__clang__)
#ifdef BF16
  typedef int32_t lanes __attribute__((vector_size(BYTES)));
#else
  typedef __typeof__((vec){} == (vec){}) lanes;
#endif
  lanes lane;
  UNROLL for (int i = 0; i < W; i++) lane[i] = i;
  UNROLL for (int s = 1; s < W; s *= 2) {
    lanes low = lane + (((lane & s) != 0) & ((int)W - s));  // a[i], or b[i - s]
    UNROLL for (int i = 0; i < W / 2 / s; i++)
      v[i] = __builtin_shuffle(v[2 * i], v[2 * i + 1], low) +
             __builtin_shuffle(v[2 * i], v[2 * i + 1], low + s);
  }
  return v[0];
#else
  vec sums = {};
  UNROLL for (int i = 0; i < W; i++)
    for (int j = 0; j < W; j++) sums[i] += v[i][j];
  return sums;
#endif
}

// Holds v in a register. GCC would read it from memory again for each use, and the load ports,
// not the multipliers, would set the pace.
#if defined(__SSE2__)
#define HOLD(v) __asm__("" : "+v"(v))
#else
#define HOLD(v) (void)(v)
#endif

// A store past the caches, for results too large to be read from them again: it spares reading
// the old contents first, which doubles the time of a pass over memory. p is aligned to a vector.
INLINE void stream(stored *p, vec v) {
#if defined(BF16) || !defined(__SSE2__)
  store(p, v);
#elif defined(__AVX512F__)
  _mm512_stream_si512((void *)p, (__m512i)v);
#elif defined(__AVX__)
  _mm256_stream_si256((void *)p, (__m256i)v);
#else
  _mm_stream_si128((void *)p, (__m128i)v);
#endif
}

INLINE void fence(void) {  // streamed stores are done before another thread may read them
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Return whether this many elements leave the caches before they are read again.
INLINE int large(long count) { return count * (long)sizeof(stored) > 16 << 20; }

// Can y be streamed, R channels a head? Every vector must be whole and aligned.
INLINE int streams(const stored *y, long R) { return R % W == 0 && (uintptr_t)y % BYTES == 0; }

// Prefetch n elements from p on; a wrong address does no harm.
INLINE void ask(const stored *p, long n) {
  for (long i = 0; i < n; i += 64 / (long)sizeof(stored)) __builtin_prefetch(p + i, 0, 2);
}

INLINE real *room(long n) { return aligned_alloc(64, up(n * sizeof(real), 64)); }

// `groups` groups of n numbers each, side by side, into rows of `width` reals, a multiple of W;
// zeros fill them up.
INLINE void unpack(real *out, long width, const stored *x, long groups, long n) {
  for (long g = 0; g < groups; g++, out += width, x += n)
    for (long c = 0; c < width; c += W) put(out + c, c < n ? load_first(x + c, n - c) : (vec){});
}

// Rows of one job in reals: in place, or copied if their dtype or their width requires it.
typedef struct {
  const real *at;  // the first row
  long stride, width;  // from row to row, from head to head
} rows;

// n reals from p into y.
INLINE void save(stored *y, const real *p, long n) {
  long i = 0;
  for (; i + W <= n; i += W) store(y + i, get(p + i));
  if (i < n && n >= W) store(y + n - W, get(p + n - W));
  else for (; i < n; i++) y[i] = rounded(p[i]);
}

// Must rows be copied? The last vector of a head of R channels may not read past it.
INLINE int copies(long R) { return sizeof(stored) != sizeof(real) || R % W != 0; }

INLINE rows gather(real *copy, const stored *x, long stride, long count, long H, long R) {
  if (!copy) return (rows){(const real *)x, stride, R};
  long width = up(R, W);
  for (long s = 0; s < count; s++) unpack(copy + s * H * width, width, x + s * stride, H, R);
  return (rows){copy, H * width, width};
}
