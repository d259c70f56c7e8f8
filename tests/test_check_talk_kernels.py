"""The check of the exercise on TaLK's kernels accepts the right, and says what is wrong."""

import pytest

from dynconv.kernels import simulate
from dynconv.teach import check

if simulate.missing():
    pytest.skip(simulate.missing(), allow_module_level=True)

WARP = """
__device__ float warp_scan(float v) {
  for (int d = 1; d < 32; d *= 2) {
    const float other = __shfl_up_sync(~0u, v, d);
    if (threadIdx.x % 32 >= d) v += other;
  }
  return v;
}
"""
RIGHT = (
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
FROM_SUMS = RIGHT.replace("float carry = 0;", "").replace(
    "sums[t] = carry + v;\n    for (int w = 0; w < blockDim.x / 32; ++w) carry += totals[w];",
    "sums[t] = v + (begin ? sums[begin - 1] : 0);",
)
"""the carry is what the last chunk has written to memory"""


def without(text, by=""):
    assert text in RIGHT
    return RIGHT.replace(text, by)


@pytest.mark.parametrize("right", [RIGHT, SHARED_CARRY, FROM_SUMS])
def test_accepts(right, capsys):
    check.chunked_scan_kernel(right)
    assert capsys.readouterr().out.startswith("right: ")


TOTALS = "for (int w = 0; w < warp; ++w) v += totals[w];"
CARRY = "for (int w = 0; w < blockDim.x / 32"
ROW_CARRY = "carry += row[blockDim.x - 1];"
LAST_BARRIER = "carry += totals[w];\n    __syncthreads();"
FIRST_BARRIER = "totals[warp] = v;\n    __syncthreads();"
WRONG = {
    "no text": (None, "None, not CUDA source"),
    "syntax": (without("float carry = 0;", "float carry = 0"), "does not compile: .*error"),
    "other name": (without("void chunked_scan", "void scan"), "does not compile: .*chunked_scan"),
    "other type": (without("int T)", "long long T)"), "does not compile: .*chunked_scan takes"),
    "double": (RIGHT.replace("float", "double"), "does not compile: .*chunked_scan takes"),
    "reads behind x": (
        without("t < T ? x[t] : 0", "x[t]"),
        r"T = 40, .*reads x\[103\], but the last of 2 rows ends at x\[79\]",
    ),
    "empty": (
        "__global__ void chunked_scan(const float* x, float* sums, int T) {}",
        r"T = 1, .*sums\[0, 0\] is nan.*not written",
    ),
    "one chunk": (
        without("begin < T; begin += blockDim.x", "begin < 1; ++begin"),
        r"T = 33, .*sums\[0, 32\] is nan",
    ),
    "no carry": (without("carry + v", "v"), "T = 33, .*begins anew at t = 32.* lacks the carry"),
    "last carry": (
        without(
            "for (int w = 0; w < blockDim.x / 32",
            "carry = 0;\n    for (int w = 0; w < blockDim.x / 32",
        ),
        "T = 100|T = 200, .*last chunk alone",
    ),
    "no totals": (
        without(TOTALS),
        "T = 100, .*begins at t = 32 lacks the totals",
    ),
    "last total": (
        without(
            "for (int w = 0; w < warp; ++w) v += totals[w];", "if (warp) v += totals[warp - 1];"
        ),
        "T = 1000, .*the warp before it alone",
    ),
    "exclusive": (
        without("sums[t] = carry + v", "sums[t] = carry + v - x[t]"),
        r"T = 1, .*sums\[0, 0\] .*x\[t\] belongs to it",
    ),
    "no guard": (without("if (t < T) sums", "sums"), "behind the last one|differ"),
    "first barrier": (without(FIRST_BARRIER, "totals[warp] = v;"), "barrier is missing"),
    "carry's barrier": (
        SHARED_CARRY.replace(
            "+= row[blockDim.x - 1];\n    __syncthreads();", "+= row[blockDim.x - 1];"
        ),
        "T = 33, .*barrier is missing",
    ),
    "last barrier": (without(LAST_BARRIER, "carry += totals[w];"), "barrier is missing"),
    "barrier for some": (
        without(FIRST_BARRIER, "totals[warp] = v;\n    if (t < T) __syncthreads();"),
        "T = 1, .*same barrier|must reach",
    ),
    "writes x": (
        without("if (t < T) sums[t]", "if (t < T) const_cast<float*>(x)[t] += 1, sums[t]"),
        "writes to x",
    ),
    "twice": (without("float carry = 0", "float carry = 1"), r"sums\[0, 0\] .*a wrong sum"),
}


@pytest.mark.parametrize("case", WRONG)
def test_rejects(case):
    wrong, message = WRONG[case]
    with pytest.raises(AssertionError, match=message) as error:
        check.chunked_scan_kernel(wrong)
    assert "\n" not in str(error.value)
