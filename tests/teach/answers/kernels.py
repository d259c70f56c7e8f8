"""Right and wrong answers to the exercises on CUDA kernels, as source."""

from dynconv.kernels.cuda import build
from dynconv.teach.check.kernels import SIGNATURE


def edited(code):
    """Return a function of (old, new, old, new, ...) that replaces parts of the source."""

    def edit(*texts):
        result = code
        for old, new in zip(texts[::2], texts[1::2], strict=True):
            assert old in result
            result = result.replace(old, new)
        return result

    return edit


STRIDED = (
    SIGNATURE
    + """ {
  const long long n = (long long)B * C * T, step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const int t = i % T, c = i / T % C;
    float sum = 0;
    for (int j = 0; j < K; ++j) {
      const int s = t + j - pad;
      if (0 <= s && s < T) sum += weight[c * K + j] * x[i + j - pad];
    }
    out[i] = sum;
  }
}
"""
)
IN_MEMORY = (
    SIGNATURE
    + """ {
  int i = blockIdx.x + threadIdx.x * gridDim.x;
  while (i < B * C * T) {
    const int t = i % T, row = i / T;
    out[i] = 0.f;
    for (int j = max(0, pad - t); j < min(K, T + pad - t); j++)
      out[i] += x[row * T + t + j - pad] * weight[row % C * K + j];
    i += gridDim.x * blockDim.x;
  }
}
"""
)
SYNCED = ("float sum = 0;", "float sum = 0; __syncthreads();")
SHARED = ("float sum = 0;", "__shared__ float part[9]; part[t] = 0; float sum = part[t];")
REPEATED = (  # the first and the last number beyond the ends, in place of zeros
    *("s = t + j - pad", "s = min(max(t + j - pad, 0), T - 1)"),
    *("x[i + j - pad]", "x[i - t + s]"),
)
CHANNELS_LAST = (
    *("t = i % T, c = i / T % C", "c = i % C, t = i / C % T"),
    *("x[i + j - pad]", "x[i + (j - pad) * C]"),
)
PASSED_ON = (  # through shared memory, without a barrier
    *("float sum = 0;", "__shared__ float part[64]; part[threadIdx.x % 64] = 0; float sum = 0;"),
    *("out[i] = sum;", "part[threadIdx.x % 64] = sum; out[i] = sum + 0 * part[0];"),
)
TILED = r"""
template <typename Number>
__global__ void weight_tile(const Number* g, const Number* x, Number* partial, int T, int C, int H,
                            int K, int pad, int N) {
  DYNAMIC_SHARED(Number, tile);
  auto tile_g = tile + 32 * (N + K - 1), part = tile_g + 32 * N;
  const int lane = threadIdx.x, y = threadIdx.y, R = C / H, h = blockIdx.x, first = N * blockIdx.y;
  const long long start = (long long)blockIdx.z * T * C + h * R + lane;
  for (int row = y; row < N + K - 1; row += 8) {
    const int s = first + row - pad;
    tile[32 * row + lane] = lane < R && 0 <= s && s < T ? x[start + s * C] : 0;
  }
  for (int row = y; row < N; row += 8) {
    const int t = first + row;
    tile_g[32 * row + lane] = lane < R && t < T ? g[start + t * C] : 0;
  }
  __syncthreads();
  for (int j = y; j < K; j += 8) {
    Number sum = 0;
    for (int a = 0; a < N; ++a) sum += tile_g[32 * a + lane] * tile[32 * (a + j) + lane];
    part[32 * j + lane] = sum;
  }
  __syncthreads();
  for (int j = lane + 32 * y; j < K; j += 256) {
    Number sum = 0;
    for (int i = 0; i < 32; ++i) sum += part[32 * j + i];
    partial[((long long)(blockIdx.z * gridDim.y + blockIdx.y) * H + h) * K + j] = sum;
  }
}
"""
TOTAL = TILED[TILED.index("  for (int j = lane + 32 * y") : TILED.rindex("}")]
BARRIER = "  __syncthreads();\n"
LOOP = "  for (int row = y; row < N + K - 1"
SUM = "Number sum = 0;\n    for (int a"
GLOBAL = "(lane < R && first + a < T ? g[start + (first + a) * C] : 0) *"
SHUFFLES = TILED.replace(
    "    part[32 * j + lane] = sum;\n  }\n" + BARRIER + TOTAL,
    """    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    const int n = blockIdx.z * gridDim.y + blockIdx.y;
    if (lane == 0) partial[(n * H + h) * K + j] = sum;
  }
""",
)
CUT = TILED.replace("for (int a = 0; a < N; ++a)", "for (int a = 0; a < min(N, T - first); ++a)")
CUT = CUT.replace("for (int i = 0; i < 32; ++i)", "for (int i = 0; i < R; ++i)")

SCRAMBLE = """
__device__ unsigned scramble(unsigned x) {
  x = (x ^ x >> 16) * 0x85ebca6b;
  x = (x ^ x >> 13) * 0xc2b2ae35;
  return x ^ x >> 16;
}
"""


def factor(body: str, before: str = SCRAMBLE) -> str:
    head = "__device__ float factor(unsigned long long seed, unsigned long long i, float p) {"
    return f"{before}{head}\n{body}\n}}\n"


def hashed(h: str, before: str = SCRAMBLE) -> str:
    return factor(f"  unsigned h = {h};\n{RESULT}", before)


def chained(old: str, new: str) -> str:
    return factor(CHAIN.replace(old, new) + RESULT)


def dropped(where: str, dropped: str = "0", kept: str = "1 / (1 - p)") -> str:
    return factor(f"{CHAIN}  return {where} ? {dropped} : {kept};")


CHAIN = """
  const unsigned first = seed, second = scramble(seed >> 32 ^ scramble(first));
  const unsigned h = scramble(scramble((unsigned)i ^ first) ^ second ^ (unsigned)(i >> 32));
"""
RESULT = "  return h < p * 4294967296.0 ? 0 : 1 / (1 - p);"
LONG = """
  unsigned long long z = (i + seed * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return (z >> 40) * 0x1p-24f < p ? 0.f : 1.f / (1.f - p);
"""
UPPER_IN_FRONT = "scramble(scramble(scramble(seed) ^ seed >> 32) ^ (unsigned)i)"
FLOAT = CHAIN + "return float(h >> 8) / 16777216 >= p ? 1 / (1 - p) : 0;"
WARP = """
__device__ float warp_scan(float v) {
  for (int d = 1; d < 32; d *= 2) {
    const float other = __shfl_up_sync(~0u, v, d);
    if (threadIdx.x % 32 >= d) v += other;
  }
  return v;
}
"""
SCAN = (
    WARP
    + """
__global__ void chunked_scan(const float* x, float* sums, int T) {
  __shared__ float totals[32];
  x += (long long)blockIdx.x * T, sums += (long long)blockIdx.x * T;
  const int warp = threadIdx.x / 32;
  float carry = 0;
  for (int begin = 0; begin < T; begin += blockDim.x) {
    const int t = begin + threadIdx.x;
    float v = warp_scan(t < T ? x[t] : 0);
    if (threadIdx.x % 32 == 31) totals[warp] = v;
    __syncthreads();
    for (int w = 0; w < warp; ++w) v += totals[w];
    if (t < T) sums[t] = carry + v;
    for (int w = 0; w < blockDim.x / 32; ++w) carry += totals[w];
    __syncthreads();
  }
}
"""
)
SHARED_CARRY = """
__global__ void chunked_scan(const float* x, float* sums, int T) {
  __shared__ float row[1024];
  __shared__ float carry;
  const int i = threadIdx.x;
  x += (long long)blockIdx.x * T, sums += (long long)blockIdx.x * T;
  if (i == 0) carry = 0;
  for (int begin = 0; begin < T; begin += blockDim.x) {
    row[i] = begin + i < T ? x[begin + i] : 0;
    for (int d = 1; d < blockDim.x; d *= 2) {
      __syncthreads();
      const float other = i >= d ? row[i - d] : 0;
      __syncthreads();
      row[i] += other;
    }
    __syncthreads();
    if (begin + i < T) sums[begin + i] = carry + row[i];
    __syncthreads();
    if (i == 0) carry += row[blockDim.x - 1];
    __syncthreads();
  }
}
"""
FROM_SUMS = SCAN.replace("float carry = 0;", "").replace(
    "sums[t] = carry + v;\n    for (int w = 0; w < blockDim.x / 32; ++w) carry += totals[w];",
    "sums[t] = v + (begin ? sums[begin - 1] : 0);",
)
"""the carry is what the last chunk has written to memory"""


TOTALS = "for (int w = 0; w < warp; ++w) v += totals[w];"
CARRY = "for (int w = 0; w < blockDim.x / 32"
LAST_BARRIER = "carry += totals[w];\n    __syncthreads();"
FIRST_BARRIER = "totals[warp] = v;\n    __syncthreads();"
strided, tiled, scan = map(edited, (STRIDED, TILED, SCAN))

RIGHT = {
    "depthwise_kernel": [STRIDED, IN_MEMORY, 'extern "C" ' + STRIDED],
    "weight_gradient_kernel": [TILED, build.inline_headers("number.cuh") + TILED, SHUFFLES, CUT],
    "dropconnect_kernel": [factor(CHAIN + RESULT), factor(LONG, ""), factor(FLOAT)],
    "chunked_scan_kernel": [SCAN, SHARED_CARRY, FROM_SUMS],
}
WRONG = {
    "depthwise_kernel": [
        (strided("i += step", "i += n"), r"blocks 3.*out\[0, 2, 30\] is NaN as before"),
        (strided("i < n;", "i <= n;"), r"out\[8\] is written, but out has 8 numbers"),
        (strided("i < n;", "i < step || i < n;"), r"out\[42\] is written, but out has 42"),
        (strided("out[i]", "out[i - 1]"), r"out\[-1\] is written, but out has 8"),
        (strided("out[i] =", "out[i] +="), r"\[0, 0, 0\] is NaN as before .*or only added"),
        (strided("float sum = 0", "((float*)x)[i] = 0; float sum = 0"), r"x\[0\] .* an input"),
        (strided("if (0 <= s && s < T) ", ""), r"out\[0, 0, 0\] is NaN \(from outside"),
        (strided("0 <= s && ", ""), r"out\[0, 0, 0\] is NaN"),
        (strided(" && s < T", ""), r"out\[0, 0, 7\] is NaN"),
        (strided(*REPEATED), "T = 8.* right where no tap leaves"),
        (strided("c * K + j", "c * K + K - 1 - j"), "the taps are reversed"),
        (strided("j - pad", "j - (K - 1 - pad)"), "pad counts zeros before position 0"),
        (strided("weight[c * K", "weight[0 * K"), "every channel has its own K weights"),
        (strided("weight[c * K + j]", "weight[j * C + c]"), r"; weight is \(C, K\): the taps"),
        (strided("c = i / T % C", "c = i / T"), r"out\[1, 0, 0\] is NaN"),
        (strided(*CHANNELS_LAST), "time is the contiguous axis"),
        (strided("= (long long)gridDim.x * blockDim.x", "= gridDim.x"), "right, but .* 330"),
        (strided("= (long long)gridDim.x * blockDim.x", "= blockDim.x"), "right, but .* 330"),
        (strided(*SYNCED), r"kernel.cu:\d+, but thread .* has returned"),
        (strided(*SHARED), r"T = 33.*index \d+ of an array"),
        (strided(*PASSED_ON), r"out\[.* and NaN .* in the order 'backward'"),
        (strided("float sum = 0;", "float sum = 0"), r"does not compile: kernel.cu:\d"),
        (strided("depthwise(", "my_conv("), r"no kernel __global__ void depthwise\("),
        (strided("int pad", "long long pad"), "its parameters differ from __global__"),
        (strided(", int pad", "", " - pad", ""), "its parameters differ from"),
    ],
    "weight_gradient_kernel": [
        (TILED.replace(BARRIER, "", 1), r"the plain sum.*'forward' and .* in the order.*a __sync"),
        ("".join(TILED.rsplit(BARRIER, 1)), r"the plain sum.*__syncthreads\(\) is missing"),
        (tiled(LOOP, "  if (lane >= R) return;\n" + LOOP), "heads, .*has returned from the"),
        (tiled("row < N + K - 1; row += 8", "row < N; row += 8"), "halo at the ends.*is NaN .from"),
        (tiled("lane < R && 0 <= s &&", "lane < R &&"), r"halo at the ends.*partial\[0, 0, 0\]"),
        (tiled("0 <= s && s < T", "0 <= s"), r"halo at the ends.*partial\[0, 0, [34]\]"),
        (tiled("first + row - pad", "first + row - (K - 1 - pad)"), "the halo between two blocks"),
        (tiled("&& s < T", "&& s < first + N"), "the halo between two blocks.*, not "),
        (tiled("j = y; j < K", "j = y; j < 8 && j < K"), r"more taps than rows .*0, 8\] is NaN"),
        (tiled("lane < R && t < T", "lane < R"), "the tail, a last block with fewer than N"),
        (tiled("blockIdx.z * T * C + h", "h"), r"a second sentence.*partial\[2, 0, 0\]"),
        (tiled("lane < R && 0", "0", "lane < R && t", "t"), "heads, whose channels leave lanes"),
        (tiled("blockIdx.y) * H", "blockIdx.y + 1) * H"), r"partial\[1\] is written, but"),
        (tiled("j < K; j += 256", "j < K - 1; j += 256"), r"partial\[0, 0, 0\] is NaN as before"),
        (tiled("tile + 32 * (N + K - 1)", "tile + 32 * (N + K)"), "of the dynamic shared memory"),
        (tiled("tile_g[32 * a + lane] *", GLOBAL), r"number of g is loaded 12 times.*needs 1$"),
        (
            TILED[: TILED.rindex(BARRIER)].replace(
                "    part[32 * j + lane] = sum;",
                "    atomicAdd(&partial[(blockIdx.y * H + h) * K + j], sum);",
            )
            + "}",
            r"the plain sum.*NaN as before \(it is not written, or only added",
        ),
        (
            TILED.replace(BARRIER, "  if (lane == 0) part[y] = part[y + 8] = 0;\n" + BARRIER, 1)
            .replace("    part[32 * j + lane] = sum;", "    atomicAdd(&part[j], sum);")
            .replace("for (int i = 0; i < 32; ++i) sum += part[32 * j + i];", "sum = part[j];"),
            r"with threads in the order 'forward' and .*, or sums are atomic",
        ),
        (tiled(SUM, SUM.replace(";", "")), r"your source:\d+:.*error"),
        (tiled("void weight_tile", "void weights"), "it has no kernel weight_tile<double>$"),
        (tiled("template <typename Number>", "typedef double Number;"), "no kernel weight_tile<"),
        (tiled(SUM, SUM.replace("Number", "float")), r"is (\S+), not \1; in float32 they agree"),
    ],
    "dropconnect_kernel": [
        (factor(CHAIN + "return h"), r"does not compile: kernel.cu:\d+"),
        (SCRAMBLE, "does not compile: .*factor"),
        (factor("return 1;"), r"p = 0.1: factor \[0\] is 1, and should be 0 or 1.111"),
        (dropped("h >= p * 4294967296.0", "1", "0"), "is 1, and should be 0 or"),
        (dropped("h < (1 - p) * 4294967296.0"), "p = 0.0: dropped are 100.0% of 65,536 draws"),
        (dropped("h < p * 2147483648.0"), "p = 0.1: dropped are 4.9% of 65,536 draws, not 10.0%"),
        (dropped("p > 0 && h % 9 == 0", "0.f / 0.f"), r"p = 0.1: factor \[\d+\] is -?nan, and"),
        (
            hashed("state = scramble(state + 1 + i)", SCRAMBLE + "static unsigned state = 1;"),
            "a second call draws another mask",
        ),
        (hashed("scramble(scramble(threadIdx.x + 1) ^ blockIdx.x)"), "must depend on i, not on"),
        (hashed("scramble(scramble(i) + 1)"), "seeds 1 and 2 have the same draws"),
        (hashed("scramble(scramble(i) ^ scramble(seed + 1) ^ i >> 32)"), r"seeds 2\^32 apart have"),
        (chained("(unsigned)(i >> 32)", "0"), r"weights 2\^32 apart have the same draws"),
        (
            hashed("2654435769u * i + scramble(scramble(seed >> 32) ^ seed ^ i >> 32)"),
            "independent",
        ),
        (hashed("scramble(scramble(i + seed) ^ (i + seed) >> 32)"), r"i \+ 1 of seed 2 have the"),
        (hashed("scramble(scramble(i ^ seed) ^ (i ^ seed) >> 32)"), r"i \^ 1 of seed 2 have the"),
        (chained("second ^", "scramble(first) ^ seed >> 32 ^"), r"i \+ 2\^32 of seed 1 have"),
        (chained("i ^ first) ^ second", "i ^ second)"), r"one mask .* i \^ \d+ of seed 2"),
        (
            hashed("scramble(scramble(i + scramble(seed)) ^ scramble(seed >> 32) ^ i >> 32)"),
            r"seeds 1 and 2 have one mask .* weight i [+-] \d+ of seed 2 have the same",
        ),
        (
            hashed(f"scramble({UPPER_IN_FRONT} ^ i >> 32 ^ (unsigned)seed)"),
            r"\^ \d+ of seed 1 \+ 2",
        ),
    ],
    "chunked_scan_kernel": [
        (scan("float carry = 0;", "float carry = 0"), "does not compile: .*error"),
        (scan("void chunked_scan", "void scan"), "does not compile: .*chunked_scan"),
        (scan("int T)", "long long T)"), "does not compile: .*chunked_scan takes"),
        (SCAN.replace("float", "double"), "does not compile: .*chunked_scan takes"),
        (scan("t < T ? x[t] : 0", "x[t]"), r"T = 40, .*reads x\[103\], but .* ends at x\[79\]"),
        ("__global__ void chunked_scan(const float* x, float* sums, int T) {}", "NaN as before"),
        (
            scan("begin < T; begin += blockDim.x", "begin < 1; ++begin"),
            r"sums\[0, 32\] is NaN as before",
        ),
        (scan("carry + v", "v"), "T = 33, .*begins anew with each chunk of 32: it lacks the carry"),
        (scan(CARRY, "carry = 0;\n    " + CARRY), "T = 100|T = 200, .*last chunk alone"),
        (scan(TOTALS, ""), "T = 100, .*a warp lacks the totals"),
        (scan(TOTALS, "if (warp) v += totals[warp - 1];"), "T = 1000, .*the warp before it alone"),
        (scan("sums[t] = carry + v", "sums[t] = carry + v - x[t]"), r"T = 1, .*x\[t\] also"),
        (scan("if (t < T) sums", "sums"), r"is written, but sums has|in the order"),
        (scan(FIRST_BARRIER, "totals[warp] = v;"), r"__syncthreads\(\) is missing"),
        (
            SHARED_CARRY.replace(
                "+= row[blockDim.x - 1];\n    __syncthreads();", "+= row[blockDim.x - 1];"
            ),
            r"T = 33, .*__syncthreads\(\) is missing",
        ),
        (scan(LAST_BARRIER, "carry += totals[w];"), r"__syncthreads\(\) is missing"),
        (scan(FIRST_BARRIER, "totals[warp] = v;\n    if (t < T) __syncthreads();"), "same barrier"),
        (
            scan("if (t < T) sums[t]", "if (t < T) const_cast<float*>(x)[t] += 1, sums[t]"),
            "an input",
        ),
        (scan("float carry = 0", "float carry = 1"), r"sums\[0, 0\] is [\d.]+, not [\d.]+$"),
    ],
}
