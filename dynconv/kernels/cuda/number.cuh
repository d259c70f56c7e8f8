// What every kernel needs: number types and vectors of channels.
// It includes no header, so that NVRTC compiles the kernels with nothing else installed.

#ifdef SIMULATED  // simulate.h defines DYNAMIC_SHARED and shared_cast, with checks
template <typename T> using SharedPointer = simulated::Shared<T>;
#else
template <typename T> using SharedPointer = T*;
#define DYNAMIC_SHARED(type, name)                                    \
  extern __shared__ __align__(16) unsigned char dynamic_shared[];     \
  type* name = reinterpret_cast<type*>(dynamic_shared)
template <typename To, typename From>
__device__ To* shared_cast(From* p) { return reinterpret_cast<To*>(p); }
#endif

constexpr int VECTOR_BYTES = 16;  // what one instruction of a lane reads at most; see plan.py

struct float16 { unsigned short bits; };
struct bfloat16 { unsigned short bits; };
template <typename Number> constexpr bool IS_BFLOAT16 = false;
template <> constexpr bool IS_BFLOAT16<bfloat16> = true;

// Half precision is for storage: products and sums are at least float32.
template <typename Number> struct Accumulator { using type = float; };
template <> struct Accumulator<double> { using type = double; };
template <typename Number> using Sum = typename Accumulator<Number>::type;

template <typename Number>
constexpr int QUAD = VECTOR_BYTES / sizeof(Sum<Number>);  // sums in 16 bytes

__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bfloat16 x) {
  return __uint_as_float((unsigned)x.bits << 16);
}
__device__ __forceinline__ void narrow(double x, double& y) { y = x; }
__device__ __forceinline__ void narrow(float x, float& y) { y = x; }

__device__ __forceinline__ void narrow(float x, bfloat16& y) {  // to nearest, ties to even
  const unsigned bits = __float_as_uint(x);
  y.bits = x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
}

#ifdef SIMULATED
__forceinline__ float widen(float16 x) { return __builtin_bit_cast(_Float16, x.bits); }
__forceinline__ void narrow(float x, float16& y) {
  y.bits = __builtin_bit_cast(unsigned short, (_Float16)x);
}
#else
__device__ __forceinline__ float widen(float16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ __forceinline__ void narrow(float x, float16& y) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}
#endif

// V neighbours, moved by one instruction of up to 16 bytes.
template <typename Number, int V>
struct alignas(sizeof(Number) * V) Pack { Number at[V]; };

// Two numbers of half precision in a word, the first one below: on sm_80 and later one instruction.
template <typename Number>
__device__ __forceinline__ unsigned narrow_two(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned two;
  if constexpr (IS_BFLOAT16<Number>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
#else
  Pack<Number, 2> pack;
  narrow(low, pack.at[0]), narrow(high, pack.at[1]);
  return pack.at[0].bits | (unsigned)pack.at[1].bits << 16;
#endif
}

template <typename Number, int V>
__device__ __forceinline__ void widen(const Pack<Number, V>& pack, Sum<Number> (&y)[V]) {
#pragma unroll
  for (int v = 0; v < V; ++v) y[v] = widen(pack.at[v]);
}

template <typename Number, int V>
__device__ __forceinline__ void store(Number* y, const Sum<Number> (&x)[V]) {
  if constexpr (sizeof(Number) == 2 && V % 2 == 0) {
    Pack<unsigned, V / 2> pack;
#pragma unroll
    for (int v = 0; v < V; v += 2) pack.at[v / 2] = narrow_two<Number>(x[v], x[v + 1]);
    *reinterpret_cast<Pack<unsigned, V / 2>*>(y) = pack;
  } else {
    Pack<Number, V> pack;
#pragma unroll
    for (int v = 0; v < V; ++v) narrow(x[v], pack.at[v]);
    *reinterpret_cast<Pack<Number, V>*>(y) = pack;
  }
}
