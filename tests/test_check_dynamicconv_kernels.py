"""The check of the exercise on DropConnect in CUDA accepts the right, and says what is wrong."""

import pytest

from dynconv.kernels import simulate
from dynconv.teach import check

if simulate.missing():
    pytest.skip(simulate.missing(), allow_module_level=True)

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
FLOAT = CHAIN + "return float(h >> 8) / 16777216 >= p ? 1 / (1 - p) : 0;"


@pytest.mark.parametrize(
    "right", [factor(CHAIN + RESULT), factor(LONG, ""), factor(FLOAT)], ids=["32", "64", "float"]
)
def test_accepts(right, capsys):
    check.dropconnect_kernel(right)
    assert capsys.readouterr().out == (
        "right: values, shares and independence of 65,536 weights, 5 seeds\n"
    )


WRONG = {
    "nothing": (None, "None, not CUDA source"),
    "syntax": (factor(CHAIN + "return h"), r"does not compile: kernel.cu:\d+"),
    "no function": (SCRAMBLE, "does not compile: .*factor"),
    "all kept": (factor("return 1;"), r"p = 0.1: factor 0 is 1, and should be 0 or 1.111"),
    "not scaled": (factor(CHAIN + "return h >= p * 4294967296.0;"), "is 1, and should be 0 or"),
    "kept with p": (
        factor(CHAIN + "return h < (1 - p) * 4294967296.0 ? 0 : 1 / (1 - p);"),
        "p = 0.0: 100.0% of the factors are 0",
    ),
    "half the range": (
        factor(CHAIN + "return h < p * 2147483648.0 ? 0 : 1 / (1 - p);"),
        "p = 0.1: 4.9% of the factors are 0, not 10.0%",
    ),
    "nan": (
        factor(CHAIN + "return p > 0 && h % 9 == 0 ? 0.f / 0.f : 1 / (1 - p);"),
        r"p = 0.1: factor \d+ is -?nan, and",
    ),
    "a state": (
        factor("unsigned h = state = scramble(state + 1 + i);" + RESULT,
               SCRAMBLE + "static unsigned state = 1;"),
        "a second call draws another mask",
    ),
    "the thread": (
        factor("unsigned h = scramble(scramble(threadIdx.x + 1) ^ blockIdx.x);" + RESULT),
        "must depend on i, not on",
    ),
    "no seed": (
        factor("unsigned h = scramble(scramble(i) + 1);" + RESULT),
        "seeds 1 and 2 have the same draws",
    ),
    "half a seed": (
        factor("unsigned h = scramble(scramble(i) ^ scramble(seed + 1) ^ i >> 32);" + RESULT),
        "seeds 2\\^32 apart have the same draws",
    ),
    "half a number": (
        factor(CHAIN.replace("(unsigned)(i >> 32)", "0") + RESULT),
        "weights 2\\^32 apart have the same draws",
    ),
    "no hash": (
        factor("unsigned h = 2654435769u * i + scramble(scramble(seed >> 32) ^ seed ^ i >> 32);"
               + RESULT),
        "not independent: both are 0 at",
    ),
    "sum of seed and number": (
        factor("unsigned h = scramble(scramble(i + seed) ^ (i + seed) >> 32);" + RESULT),
        r"weight i of seed 3 and weight i \+ 1 of seed 2 have the same draws",
    ),
    "exchanged": (
        factor("auto z = i ^ seed; unsigned h = scramble(scramble(z) ^ z >> 32);" + RESULT),
        r"weight i of seed 3 and weight i \^ 1 of seed 2 have the same draws",
    ),
    "upper halves exchanged": (
        factor(CHAIN.replace("second ^", "scramble(first) ^ seed >> 32 ^") + RESULT),
        r"weight i of seed 1 \+ 2\^32 and weight i \+ 2\^32 of seed 1 have the same draws",
    ),
    "the seed's hash beside the number": (
        factor(CHAIN.replace("i ^ first) ^ second", "i ^ second)") + RESULT),
        r"seeds 1 and 2 have one mask .* weight i \^ \d+ of seed 2 have the same",
    ),
    "the seed's hash added": (
        factor("unsigned h = scramble(i + scramble(seed)) ^ scramble(seed >> 32) ^ i >> 32;"
               "h = scramble(h);" + RESULT),
        r"seeds 1 and 2 have one mask .* weight i [+-] \d+ of seed 2 have the same",
    ),
    "the upper half only in front": (
        factor("unsigned h = scramble(scramble(scramble(seed) ^ seed >> 32) ^ (unsigned)i);"
               "h = scramble(h ^ i >> 32 ^ (unsigned)seed);" + RESULT),
        r"seeds 1 and 1 \+ 2\^32 have one mask .* weight i \^ \d+ of seed 1 \+ 2\^32",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message) as error:
        check.dropconnect_kernel(wrong)
    assert "\n" not in str(error.value)
