"""The check of the exercise on a CUDA kernel."""

import pytest

from dynconv.kernels import simulate
from dynconv.teach import check
from dynconv.teach.check.kernels import SIGNATURE

if simulate.missing():
    pytest.skip(simulate.missing(), allow_module_level=True)

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
# Another order of the work, sums in memory, limits of j in place of a condition
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
ROWS = (  # a thread for each row of out
    SIGNATURE
    + """ {
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < B * C;
       row += gridDim.x * blockDim.x)
    for (int t = 0; t < T; ++t) {
      double sum = 0;
      for (int s = t - pad; s < t - pad + K; ++s)
        sum += s < 0 || s >= T ? 0 : x[row * T + s] * weight[row % C * K + s - t + pad];
      out[row * T + t] = sum;
    }
}
"""
)


@pytest.mark.parametrize(
    "code",
    [STRIDED, IN_MEMORY, ROWS, 'extern "C" ' + STRIDED],
    ids=["strided", "in memory", "rows", "extern C"],
)
def test_depthwise_kernel_accepts_the_right(code, capsys):
    check.depthwise_kernel(code)
    assert capsys.readouterr().out == "right: 7 launches, each with its threads in 3 orders\n"


def swapped(*pairs: tuple[str, str]) -> str:
    """STRIDED with some parts replaced."""
    code = STRIDED
    for old, new in pairs:
        assert old in code
        code = code.replace(old, new)
    return code


BARRIER = ("float sum = 0;", "float sum = 0; __syncthreads();")
SHARED = ("float sum = 0;", "__shared__ float part[9]; part[t] = 0; float sum = part[t];")
REPEATED = (  # the first and the last number beyond the ends, in place of zeros
    ("s = t + j - pad", "s = min(max(t + j - pad, 0), T - 1)"),
    ("x[i + j - pad]", "x[i - t + s]"),
)
PASSED_ON = (  # through shared memory, without a barrier
    ("float sum = 0;", "__shared__ float part[64]; part[threadIdx.x % 64] = 0; float sum = 0;"),
    ("out[i] = sum;", "part[threadIdx.x % 64] = sum; out[i] = sum + 0 * part[0];"),
)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (swapped(("i += step", "i += n")), r"blocks 3.*out\[0, 2, 30\] is not written"),
        (swapped(("i < n;", "i <= n;")), r"out\[8\] is written, but out has 8 numbers"),
        (swapped(("i < n;", "i < step || i < n;")), r"out\[42\] is written, but out has 42"),
        (swapped(("out[i]", "out[i - 1]")), r"out\[-1\] is written, but out has 8"),
        (swapped(("out[i] =", "out[i] +=")), r"\[0, 0, 0\] is not written, or is added to"),
        (swapped(("float sum = 0", "((float*)x)[i] = 0; float sum = 0")), r"x\[0\] .* an input"),
        (swapped(("if (0 <= s && s < T) ", "")), r"out\[0, 0, 0\] is NaN: a number from outside"),
        (swapped(("0 <= s && ", "")), r"out\[0, 0, 0\] is NaN"),
        (swapped((" && s < T", "")), r"out\[0, 0, 7\] is NaN"),
        (swapped(*REPEATED), "T = 8.* right where no tap leaves"),
        (swapped(("c * K + j", "c * K + K - 1 - j")), "the order of a mirror"),
        (swapped(("j - pad", "j - (K - 1 - pad)")), "pad counts zeros before position 0"),
        (swapped(("weight[c * K", "weight[0 * K")), "every channel has its own K weights"),
        (swapped(("weight[c * K + j]", "weight[j * C + c]")), r"; weight is \(C, K\): the taps"),
        (swapped(("c = i / T % C", "c = i / T")), r"out\[1, 0, 0\] is NaN"),
        (
            swapped(
                ("t = i % T, c = i / T % C", "c = i % C, t = i / C % T"),
                ("x[i + j - pad]", "x[i + (j - pad) * C]"),
            ),
            "time lies side by side",
        ),
        (swapped(("= (long long)gridDim.x * blockDim.x", "= gridDim.x")), "right, but .* 330"),
        (swapped(("= (long long)gridDim.x * blockDim.x", "= blockDim.x")), "right, but .* 330"),
        (swapped(BARRIER), r"kernel.cu:\d+, but thread .* has returned"),
        (swapped(SHARED), r"T = 33.*index \d+ of an array"),
        (swapped(*PASSED_ON), r"order 'backward'.*out\[.* is NaN"),
        (swapped(("float sum = 0;", "float sum = 0")), r"does not compile: kernel.cu:\d"),
        (swapped(("depthwise(", "my_conv(")), r"no kernel __global__ void depthwise\("),
        (None, "it is None, not CUDA source"),
        (swapped(("int pad", "long long pad")), "its parameters are not those of __global__"),
        (swapped((", int pad", ""), (" - pad", "")), "its parameters are not those"),
    ],
)
def test_depthwise_kernel_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message) as caught:
        check.depthwise_kernel(wrong)
    assert "\n" not in str(caught.value)
