"""The check of the weights' kernel accepts the right, and names the fault of the wrong."""

import pytest

from dynconv.kernels import launch, simulate
from dynconv.teach import check

if simulate.missing():
    pytest.skip(simulate.missing(), allow_module_level=True)

RIGHT = r"""
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
FILL_X = "lane < R && 0 <= s && s < T ? x[start + s * C] : 0"
FILL_G = "lane < R && t < T ? g[start + t * C] : 0"
TOTAL = RIGHT[RIGHT.index("  for (int j = lane + 32 * y") : RIGHT.rindex("}")]
BARRIER = "  __syncthreads();\n"

# Another way: the lanes add up by shuffles, without the second barrier.
SHUFFLES = RIGHT.replace(
    "    part[32 * j + lane] = sum;\n  }\n" + BARRIER + TOTAL,
    """    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    const int n = blockIdx.z * gridDim.y + blockIdx.y;
    if (lane == 0) partial[(n * H + h) * K + j] = sum;
  }
""",
)
# Without the zeros in g, and without the lanes that have no channel.
CUT = RIGHT.replace("for (int a = 0; a < N; ++a)", "for (int a = 0; a < min(N, T - first); ++a)")
CUT = CUT.replace("for (int i = 0; i < 32; ++i)", "for (int i = 0; i < R; ++i)")


def wrong(old: str, new: str, count: int = 1) -> str:
    assert RIGHT.count(old) == count
    return RIGHT.replace(old, new)


RIGHT_ONES = {
    "as in the solution": RIGHT,
    "with the header": launch.code("number.cuh") + RIGHT,
    "by shuffles": SHUFFLES,
    "without the rows and lanes that are 0": CUT,
}


@pytest.mark.parametrize("source", RIGHT_ONES.values(), ids=RIGHT_ONES)
def test_right_answers(source, capsys):
    check.weight_gradient_kernel(source)
    said = capsys.readouterr().out
    assert said.startswith("right: 7 cases in 4 orders; loads of each number: 1 of g, 1.2 of x")


FAULTS = {
    "no barrier after the tiles": (
        RIGHT.replace(BARRIER, "", 1),
        r"the plain sum.*'forward' and .* in the order.*__syncthreads\(\) is missing",
    ),
    "no barrier before the total": (
        (BARRIER).join(RIGHT.split(BARRIER)[:2]) + RIGHT.split(BARRIER)[2],
        r"the plain sum.*__syncthreads\(\) is missing",
    ),
    "a barrier that some skip": (
        wrong(
            "  for (int row = y; row < N + K - 1",
            "  if (lane >= R) return;\n  for (int row = y; row < N + K - 1",
        ),
        r"heads, whose channels.*has returned from the kernel",
    ),
    "no halo": (
        wrong("row < N + K - 1; row += 8", "row < N; row += 8"),
        r"the halo at the ends.*is NaN \(from shared memory",
    ),
    "no zeros before the sentence": (
        wrong(FILL_X, "lane < R && s < T ? x[start + s * C] : 0"),
        r"the halo at the ends of a sentence.*partial\[0, 0, 0\]",
    ),
    "no zeros after the sentence": (
        wrong(FILL_X, "lane < R && 0 <= s ? x[start + s * C] : 0"),
        r"the halo at the ends of a sentence.*partial\[0, 0, [34]\]",
    ),
    "the padding on the other side": (
        wrong("first + row - pad", "first + row - (K - 1 - pad)"),
        r"the halo between two blocks",
    ),
    "no halo from the next block": (
        wrong(FILL_X, "lane < R && 0 <= s && s < first + N ? x[start + s * C] : 0"),
        r"the halo between two blocks.*, not ",
    ),
    "eight taps alone": (
        wrong("for (int j = y; j < K; j += 8)", "for (int j = y; j < 8 && j < K; j += 8)"),
        r"more taps than rows of threads.*partial\[0, 0, 8\] is NaN",
    ),
    "no guard of the tail": (
        wrong(FILL_G, "lane < R ? g[start + t * C] : 0"),
        r"the tail, a last block with fewer than N positions",
    ),
    "always the first sentence": (
        wrong("(long long)blockIdx.z * T * C + h * R + lane", "h * R + lane"),
        r"a second sentence.*partial\[2, 0, 0\]",
    ),
    "idle lanes that take the next head's": (
        wrong(FILL_X, "0 <= s && s < T ? x[start + s * C] : 0").replace(
            "lane < R && t < T", "t < T"
        ),
        r"heads, whose channels leave lanes idle",
    ),
    "rows of another place": (
        wrong(
            "(blockIdx.z * gridDim.y + blockIdx.y) * H",
            "(blockIdx.z * gridDim.y + blockIdx.y + 1) * H",
        ),
        r"writes outside partial, which has 1 numbers, at number 1",
    ),
    "a total that is missing": (
        wrong(
            "for (int j = lane + 32 * y; j < K; j += 256)",
            "for (int j = lane + 32 * y; j < K - 1; j += 256)",
        ),
        r"the plain sum.*partial\[0, 0, 0\] is NaN as before",
    ),
    "beyond shared memory": (
        wrong("auto tile_g = tile + 32 * (N + K - 1)", "auto tile_g = tile + 32 * (N + K)"),
        r"of the dynamic shared memory",
    ),
    "without a tile": (
        wrong(
            "tile_g[32 * a + lane] *",
            "(lane < R && first + a < T ? g[start + (first + a) * C] : 0) *",
        ),
        r"the sums are right, but a number of g is loaded 12 times.*needs 1$",
    ),
    "atomics into the result": (
        RIGHT[: RIGHT.rindex(BARRIER)].replace(
            "    part[32 * j + lane] = sum;",
            "    atomicAdd(&partial[(blockIdx.y * H + h) * K + j], sum);",
        )
        + "}",
        r"the plain sum.*NaN as before \(nobody has written it; or something was only added",
    ),
    "atomics in shared memory": (
        RIGHT.replace(BARRIER, "  if (lane == 0) part[y] = part[y + 8] = 0;\n" + BARRIER, 1)
        .replace("    part[32 * j + lane] = sum;", "    atomicAdd(&part[j], sum);")
        .replace("for (int i = 0; i < 32; ++i) sum += part[32 * j + i];", "sum = part[j];"),
        r"with threads in the order 'forward' and .*, or sums are atomic",
    ),
    "a typing error": (
        wrong("Number sum = 0;\n    for (int a", "Number sum = 0\n    for (int a"),
        r"your source:\d+:.*error",
    ),
    "another name": (
        wrong("void weight_tile", "void weights"),
        "it has no kernel weight_tile<double>$",
    ),
    "no template": (
        wrong("template <typename Number>", "typedef double Number;"),
        "it has no kernel weight_tile<double>$",
    ),
    "sums in float": (
        wrong("Number sum = 0;\n    for (int a", "float sum = 0;\n    for (int a"),
        r"the plain sum.*partial.* is (\S+), not \1; only later digits differ",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault):
    source, message = FAULTS[fault]
    with pytest.raises(AssertionError, match=message) as caught:
        check.weight_gradient_kernel(source)
    assert "\n" not in str(caught.value)
