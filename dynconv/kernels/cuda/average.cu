// Average attention's core, the mean of all tokens so far, and its gradient.
//
//     out[t] = 1 / (t + 1) sum_{s <= t} x[s]           dx[s] = sum_{t >= s} g[t] / (t + 1)
//
// Backward is forward from the other end, with the division before the sum instead of after it.
//
// No implementation can move less than 2 |x|; this one moves 3 |x|, in two launches. Not measured.

#include "number.cuh"

// Position i of a walk that begins at the first token, or at the last.
template <bool BACKWARD>
__device__ __forceinline__ int token(int i, int T) { return BACKWARD ? T - 1 - i : i; }

// v1. Each thread walks one channel of a whole sentence: B C threads, too few for a GPU.
template <typename Number, bool BACKWARD>
__global__ void cumulative_mean_v1(const Number* x, Number* out, int B, int T, int C,
                                   long long x_batch, long long x_time) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x, b = i / C;
  if (b >= B) return;
  const int c = i % C;
  Sum<Number> sum = 0;
  for (int i = 0; i < T; ++i) {
    const int t = token<BACKWARD>(i, T);
    const Sum<Number> y = widen(x[b * x_batch + t * x_time + c]);
    sum += BACKWARD ? y / (t + 1) : y;
    narrow(BACKWARD ? sum : sum / (t + 1), out[(b * T + t) * C + c]);
  }
}

// The version in use walks pieces of `stretch` positions at the same time, in two launches:
//
//   stretch_sums      the sum of each piece, (B, pieces, C)
//   cumulative_mean   each piece, from the sum of all pieces before it
//
// A thread takes V channels of one piece. Block (n), n threads side by side.
//
//   bytes        3 |x|: x twice. At most B (T / stretch) C more for the sums.
//   operations   2 a number
//   v1 -> this   T / stretch times as many threads, for half as many bytes again
template <typename Number, int V, bool BACKWARD>
struct Piece {
  const Number* x;
  long long x_time, b;
  int T, C, c, number, pieces, begin, end;

  __device__ __forceinline__ Piece(const Number* x, int T, int C, int stretch, long long x_batch,
                                   long long x_time)
      : x_time(x_time), T(T), C(C) {
    const int columns = (C + blockDim.x * V - 1) / (blockDim.x * V), rest = blockIdx.x / columns;
    pieces = (T + stretch - 1) / stretch;
    c = (blockIdx.x % columns * blockDim.x + threadIdx.x) * V;
    number = rest % pieces, b = rest / pieces;
    begin = number * stretch, end = min(begin + stretch, T);
    this->x = x + b * x_batch + c;
  }

  // sum += x[t], or g[t] / (t + 1)
  __device__ __forceinline__ void add(int t, Sum<Number> (&sum)[V]) const {
    Sum<Number> y[V];
    const auto pack = *reinterpret_cast<const Pack<Number, V>*>(x + t * x_time);
    widen(pack, y);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += BACKWARD ? y[v] / (t + 1) : y[v];
  }
};

template <typename Number, int V, bool BACKWARD>
__global__ void __launch_bounds__(128)
stretch_sums(const Number* __restrict__ x, Sum<Number>* __restrict__ sums, int T, int C,
             int stretch, long long x_batch, long long x_time) {
  const Piece<Number, V, BACKWARD> piece(x, T, C, stretch, x_batch, x_time);
  if (piece.c >= C) return;
  Sum<Number> sum[V] = {};
#pragma unroll 8
  for (int i = piece.begin; i < piece.end; ++i) piece.add(token<BACKWARD>(i, T), sum);
  store<Sum<Number>, V>(sums + (piece.b * piece.pieces + piece.number) * C + piece.c, sum);
}

template <typename Number, int V, bool BACKWARD>
__global__ void __launch_bounds__(128)
cumulative_mean(const Number* __restrict__ x, const Sum<Number>* __restrict__ sums,
                Number* __restrict__ out, int T, int C, int stretch, long long x_batch,
                long long x_time) {
  const Piece<Number, V, BACKWARD> piece(x, T, C, stretch, x_batch, x_time);
  if (piece.c >= C) return;
  Sum<Number> sum[V] = {};
#pragma unroll 8
  for (int i = 0; i < piece.number; ++i) {
    const Sum<Number>* before = sums + (piece.b * piece.pieces + i) * C + piece.c;
    const auto pack = *reinterpret_cast<const Pack<Sum<Number>, V>*>(before);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += pack.at[v];
  }
#pragma unroll 4
  for (int i = piece.begin; i < piece.end; ++i) {
    const int t = token<BACKWARD>(i, T);
    piece.add(t, sum);
    Sum<Number> mean[V];
#pragma unroll
    for (int v = 0; v < V; ++v) mean[v] = BACKWARD ? sum[v] : sum[v] / (t + 1);
    store<Number, V>(out + (piece.b * T + t) * C + piece.c, mean);
  }
}
