// Convolution as a product of matrices, on the tensor cores of sm_80 and later.
//
//     out[t + i] = sum_k A[i][k] x[t - pad + k],     A[i][i + j] = the weight of tap j at t + i
//
// For BAND = 16 positions A is a band: D blocks of 16 x 16, in which each row has K weights, one
// step further right than the row above, and zeros. One instruction multiplies a block with 16 x 8
// numbers of x. Of its 2,048 products a third have zeros at K = 31; the loop of window.cuh takes 64
// instructions for as many. Products and sums are float32, and rounded once, at the end.
//
// Map. A warp takes 8 V channels of a head, and walks along tiles of BAND positions. A block of
// rows of x is loaded once for the D tiles that need it, and each number goes straight to the lane
// that multiplies it. For each lane = 4 g + q the PTX manual says what its words hold, of two
// numbers each (see mma.m16n8k16):
//
//     a, 16 x 16   rows g and g + 8, columns 2 q, 2 q + 1; then the same 8 columns further right
//     b, 16 x 8    column g, rows 2 q and 2 q + 1; then the same 8 rows further down
//     c, 16 x 8    row g, columns 2 q, 2 q + 1; then row g + 8; float32, a number a word
//
// We choose which channel is column g of which b: lane 4 g + q loads V neighbouring channels
// of four rows, and they are column g of V matrices.
//
// Copies by cp.async would bring x no sooner. multiply_bands loads the rows of the next tile into
// registers before it multiplies the present one, so that 16 warps with V = 8 have 32 KB in flight,
// where a copy at full speed needs 7 KB per multiprocessor (Little's law, at 834 cycles of
// latency). In light_grad_band 12 warps have 24 KB of g in flight, and wait for as much of x once
// per tile. correlate_band loads nothing ahead, but 2 + 2 D rows or more at once: a warp waits
// about twice per 64 channels of a tile; while 16 warps wait they move 80 KB, twice what a copy
// does.
// Weights cannot be copied to where A has them: cp.async moves 4 aligned bytes at least, and row i
// of A begins i numbers of 2 bytes later. dynamic_conv_band waits for them in three groups of rows
// at K = 31, one after the other. By the same count that leaves 1.7 times the speed of a copy, with
// V = 4 about that speed, and at K = 64 half of it, because only 8 warps are resident.
//
// Zeros are multiplied, too: an infinity or NaN in x makes NaN of its channel at up to 31 positions
// before those whose taps meet it, and 15 after.

constexpr int BAND = 16;  // positions of a tile, rows and columns of a block; see grids.py

#ifndef SIMULATED  // simulate.h defines the instructions
#define MMA(type)                                                                             \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                         \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"         \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// c += a b
template <typename Number>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
  if constexpr (IS_BFLOAT16<Number>) MMA("bf16");
  else MMA("f16");
}

// Four matrices of 8 x 8: lane 8 m + i points to row i of matrix m, 16 bytes.
template <typename Number>
__device__ __forceinline__ void ldmatrix_x4(unsigned (&words)[4], const Number* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}

// A matrix of 8 x 8 transposed: lane 4 g + q gives numbers 2 q and 2 q + 1 of row g, and gets
// those of column g.
__device__ __forceinline__ unsigned movmatrix_trans(unsigned word) {
  unsigned transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}
#endif

// 16 more bytes for each row of A, so that eight rows' 16 bytes are in different banks.
template <int D> constexpr int PITCH = BAND * D + 8;

// Where a warp begins, and the position at which it ends
struct Walk {
  int b, t, end, c, h;  // sentence, first position, one after the last, first channel, its head
  __device__ __forceinline__ Walk(int T, int C, int H, int walk, int channels) {
    const int walks = (T + walk * BAND - 1) / (walk * BAND);
    const Place at = place(walks, C / channels, 1, threadIdx.y);  // its TILE positions are one walk
    b = at.b, t = at.t / TILE * walk * BAND, end = min(T, t + walk * BAND);
    c = at.h * channels, h = c / (C / H);
  }
};

// Zeros, before anything is staged: the weights of all tiles lie in the same places.
template <int D, typename Band>
__device__ __forceinline__ void clear_band(Band band) {
  const auto quads = shared_cast<Pack<unsigned, 4>>(band);
  for (int i = threadIdx.x; i < BAND * PITCH<D> / 8; i += 32) quads[i] = {};
}

// The weights of a tile in A: tap j at position i has the weight weight[i * row + j * tap].
template <int D, typename Band, typename Number>
__device__ __forceinline__ void stage_band(Band band, const Number* weight, long long row, int tap,
                                           int rows, int K) {
  __syncwarp();  // the tile before has been read
#pragma unroll
  for (int first = 0; first < BAND * (D - 1); first += 32) {
    const int j = first + threadIdx.x;
    const Number* at = weight + j * tap;
#pragma unroll
    for (int i = 0; i < BAND; ++i, at += row)
      if (j < K && i < rows) band[i * (PITCH<D> + 1) + j] = *at;
  }
  __syncwarp();
}

// The same for dx, whose tile meets weight[first + k][K - 1 - j] in column k = i + j of A. Those
// that are contiguous in memory are one below the other in A. Writes all of A.
template <int D, typename Band, typename Number>
__device__ __forceinline__ void stage_transposed(Band band, const Number* weight, long long row,
                                                 int first, int T, int K) {
  constexpr int AT_ONCE = 32 / BAND;  // columns
  const int i = threadIdx.x % BAND, k0 = threadIdx.x / BAND;
  const int from = max(i, -first), to = min(i + K, T - first);
  weight += (first + k0) * row + (K - 1 - k0 + i);
  __syncwarp();  // the tile before has been read
#pragma unroll
  for (int n = 0; n < BAND * D; n += AT_ONCE, weight += AT_ONCE * (row - 1)) {
    Number w = {};
    if (from <= k0 + n && k0 + n < to) w = *weight;
    band[i * PITCH<D> + k0 + n] = w;
  }
  __syncwarp();
}

// Block number d of A, as a fragment.
template <int D, typename Band>
__device__ __forceinline__ void read_block(unsigned (&a)[4], Band band, int d) {
  const int lane = threadIdx.x;
  ldmatrix_x4(a, band + (lane % 16 * PITCH<D> + lane / 16 * 8 + d * BAND));
}

// Number v of `above`, and number v of `below` over it.
template <typename Words>
__device__ __forceinline__ unsigned pair(const Words& above, const Words& below, int v) {
  const unsigned a = above.at[v / 2], b = below.at[v / 2];
  return v % 2 ? a >> 16 | (b & 0xffff0000) : (a & 0xffff) | b << 16;
}

// The blocks of x, BAND rows of 8 V channels, one after the other.
template <typename Number, int V>
struct Blocks {
  using Words = Pack<unsigned, V / 2>;
  const Number* x;  // of this lane: row s
  long long stride;
  int s;
  unsigned limit;  // rows from here on, as rows before 0, are not read
  Words row[4];    // on their way: s, s + 1, s + 8, s + 9

  __device__ __forceinline__ void load() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int more = i / 2 * 8 + i % 2;
      row[i] = {};
      if ((unsigned)(s + more) < limit) row[i] = *reinterpret_cast<const Words*>(x + more * stride);
    }
    x += BAND * stride, s += BAND;
  }

  // Pairs of one channel's numbers, from two rows: V fragments
  __device__ __forceinline__ void arrange(unsigned (&b)[V][2]) const {
#pragma unroll
    for (int v = 0; v < V; ++v)
#pragma unroll
      for (int i = 0; i < 2; ++i) b[v][i] = pair(row[2 * i], row[2 * i + 1], v);
  }
};

// x and out point to the sentence, at the warp's first channel. weights.stage(t) makes A for
// the tile from t on, weights.block(a, d) reads block d of it. Then weights.met(b, u) gets the
// blocks of x that the tile has met: block d is b[(u + d) % D].
template <int V, int D, typename Number, typename Weights>
__device__ __forceinline__ void multiply_bands(const Number* x, Number* out, Weights& weights,
                                               const Walk& at, int T, int C, int K, int pad,
                                               long long stride) {
  using Words = Pack<unsigned, V / 2>;
  const int g = threadIdx.x / 4, q = threadIdx.x % 4, s = at.t - pad + 2 * q;
  // Column g of the fragments is so chosen that four lanes write 4 V neighbours of a row of out.
  Blocks<Number, V> blocks{x + s * stride + (g / 2 + g % 2 * 4) * V, stride, s,
                           (unsigned)max(0, min(T, at.end + K - 1 - pad))};
  out += (long long)(at.t + g) * C + q * V;
  unsigned b[D][V][2];
#pragma unroll
  for (int d = 0; d < D; ++d) blocks.load(), blocks.arrange(b[d]);
#pragma unroll 1
  for (int t = at.t;;)
#pragma unroll
    for (int u = 0; u < D; ++u) {
      if (t >= at.end) return;
      blocks.load();
      weights.stage(t);
      float sum[V][4] = {};
#pragma unroll
      for (int d = 0; d < D; ++d) {
        unsigned a[4];
        weights.block(a, d);
#pragma unroll
        for (int v = 0; v < V; ++v) mma_m16n8k16<Number>(sum[v], a, b[(u + d) % D][v]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Words words;
#pragma unroll
        for (int v = 0; v < V; v += 2)
          words.at[v / 2] = narrow_two<Number>(sum[v][i], sum[v + 1][i]);
        if (t + g + i / 2 * 8 < T)
          *reinterpret_cast<Words*>(out + i / 2 * 8 * C + i % 2 * 4 * V) = words;
      }
      weights.met(b, u);
      blocks.arrange(b[u]);
      t += BAND, out += BAND * C;
    }
}

// P += g x' over the channels of a head, for the gradient of the weights:
//
//     P[i][k] = g[t + i] . x[t - pad + k],     dweight[t + i][j] = P[i][i + j]
//
// p are 2 D fragments c, 8 columns each; here the numbers that a product adds up are channels, and
// lane 4 g + q loads its words of rows g of both matrices as they lie in memory.
template <int V, int D, typename Number>
__device__ __forceinline__ void correlate_band(float (&p)[2 * D][4], const Number* g,
                                               const Number* x, int t, int T, int R, int pad,
                                               long long g_time, long long x_time) {
  using Words = Pack<unsigned, V / 2>;
  const int i = threadIdx.x / 4, s = t - pad + i;
  g += (t + i) * g_time + threadIdx.x % 4 * V, x += s * x_time + threadIdx.x % 4 * V;
  const auto load = [](const Number* row, bool real) {
    Words words = {};
    if (real) words = *reinterpret_cast<const Words*>(row);
    return words;
  };
#pragma unroll 1
  for (int r = 0; r < R; r += 8 * V, g += 8 * V, x += 8 * V)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Words above = load(g + half * 4 * V, t + i < T);
      const Words below = load(g + half * 4 * V + 8 * g_time, t + i + 8 < T);
      const Number* row = x + half * 4 * V;
#pragma unroll
      for (int n = 0; n < 2 * D; ++n, row += 8 * x_time) {
        const Words right = load(row, (unsigned)(s + 8 * n) < (unsigned)T);
#pragma unroll
        for (int m = 0; m < V / 2; m += 2) {
          const unsigned a[4] = {above.at[m], below.at[m], above.at[m + 1], below.at[m + 1]};
          const unsigned b[2] = {right.at[m], right.at[m + 1]};
          mma_m16n8k16<Number>(p[n], a, b);
        }
      }
    }
}

// P into shared memory, [BAND][PITCH].
template <int D, typename Products>
__device__ __forceinline__ void write_products(const float (&p)[2 * D][4], Products to) {
  __syncwarp();  // the tile before has been read
#pragma unroll
  for (int n = 0; n < 2 * D; ++n)
#pragma unroll
    for (int i = 0; i < 4; i += 2)
      *shared_cast<Pack<float, 2>>(to + ((threadIdx.x / 4 + i * 4) * PITCH<D> + 8 * n +
                                         threadIdx.x % 4 * 2)) = {p[n][i], p[n][i + 1]};
  __syncwarp();
}
