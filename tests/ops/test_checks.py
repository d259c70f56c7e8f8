"""Wrong arguments raise an error that names the value and the remedy; right ones pass."""

from functools import partial
from importlib import import_module
from pkgutil import iter_modules

import pytest
import torch

from dynconv import ops
from dynconv.ops.checks import (
    check_conv,
    check_retention,
    check_selective,
    check_sequence,
    check_ssm,
    check_talk,
)

HALF, F32, F64 = torch.bfloat16, torch.float32, torch.float64
X = torch.zeros(2, 5, 6)
KERNELS = {"CK": (6, 3), "HK": (3, 3), "BTHK": (2, 5, 3, 3)}
OFFSETS = torch.zeros(2, 5, 3)


def refused(error, words, check, *arguments):
    with pytest.raises(error, match=words) as caught:
        check(*arguments)
    assert "\n" not in str(caught.value)


BAD_X = [
    (torch.zeros(5, 6), ValueError, r"x \(5, 6\) has 2 dimensions: .*\(B, T, C\)"),
    (torch.zeros(1, 2, 5, 6), ValueError, r"x \(1, 2, 5, 6\) has 4 dimensions"),
    (torch.zeros(2, 0, 6), ValueError, r"x \(2, 0, 6\) is empty: T and C must be at least 1"),
    (torch.zeros(2, 5, 0), ValueError, r"x \(2, 5, 0\) is empty"),
    (X.long(), TypeError, r"x is torch.int64: cast it to a floating dtype"),
    (X.to(torch.complex64), TypeError, r"x is torch.complex64: cast it"),
    (X.numpy(), TypeError, r"x is of type ndarray: give a torch.Tensor"),
]


@pytest.mark.parametrize(("x", "error", "words"), BAD_X)
def test_every_operator_refuses_a_bad_sequence(x, error, words):
    refused(error, words, check_sequence, x)
    refused(error, words, check_talk, x, OFFSETS, OFFSETS, 2, 2)
    refused(error, words, check_ssm, x, DT, Z, Z)
    refused(error, words, check_selective, x, x, A, WRITE, WRITE)
    for axes, shape in KERNELS.items():
        refused(error, words, check_conv, x, torch.zeros(shape), 1, axes)
    refused(error, f"^q{words.removeprefix('x')}", check_retention, x, x, x, GAMMA)


@pytest.mark.parametrize("B", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float16, HALF, F32, F64], ids=str)
def test_good_input_passes(B, dtype):
    x, offsets = X[:B].to(dtype), OFFSETS[:B].to(dtype)
    check_sequence(x)
    for pad_left in (0, 1, 2):
        check_conv(x, torch.zeros(6, 3, dtype=dtype), pad_left, "CK")
        check_conv(x, torch.zeros(3, 3, dtype=dtype), pad_left, "HK")
        check_conv(x, torch.zeros(B, 5, 3, 3, dtype=dtype), pad_left, "BTHK")
    check_talk(x, offsets, offsets, 2, 3)
    check_talk(x, offsets, None, 2, 0)
    check_talk(x, offsets, None, 0, 0)


@pytest.mark.parametrize(
    ("axes", "shape", "words"),
    [
        ("CK", (3, 3), "3 kernels for 6 channels: give one per channel"),
        ("CK", (6, 1, 3), r"weight \(6, 1, 3\) does not fit x \(2, 5, 6\): weight is \(C, K\)"),
        ("HK", (4, 3), "4 heads do not divide 6 channels"),
        ("HK", (0, 3), "0 heads do not divide 6 channels"),
        ("HK", (2, 5, 3, 3), r"weight is \(H, K\) for x \(B, T, C\)"),
        ("BTHK", (3, 3), r"weight \(3, 3\) does not fit .* weight is \(B, T, H, K\)"),
        ("BTHK", (1, 5, 3, 3), r"weight \(1, 5, 3, 3\) does not fit x \(2, 5, 6\)"),
        ("BTHK", (2, 4, 3, 3), r"weight \(2, 4, 3, 3\) does not fit x \(2, 5, 6\)"),
        ("BTHK", (2, 5, 4, 3), "4 heads do not divide 6 channels"),
    ],
)
def test_weight_must_fit_the_sequence(axes, shape, words):
    refused(ValueError, words, check_conv, X, torch.zeros(shape), 1, axes)


@pytest.mark.parametrize("axes", KERNELS)
def test_weight_dtype_device_taps_and_padding(axes):
    weight = torch.zeros(KERNELS[axes])
    for x, bad, error, words in [
        (X, weight.double(), TypeError, "x is torch.float32, weight torch.float64: cast one"),
        (X.to(HALF), weight, TypeError, "x is torch.bfloat16, weight torch.float32: cast one"),
        (X, weight.long(), TypeError, "weight torch.int64: cast one"),
        (X, weight.to("meta"), ValueError, "x is on cpu, weight on meta: move one"),
        (X, weight[..., :0], ValueError, r"weight \(.*, 0\) has no taps: K must be at least 1"),
    ]:
        refused(error, words, check_conv, x, bad, 0, axes)
    for pad_left in (-1, 3):
        words = rf"pad_left {pad_left} lies outside \[0, 2\]"
        refused(ValueError, words, check_conv, X, weight, pad_left, axes)
    refused(TypeError, "pad_left 1.5 must be an integer", check_conv, X, weight, 1.5, axes)


def test_offsets_may_be_wider_than_half_precision():
    for dtype in (torch.float16, HALF):
        check_talk(X.to(dtype), OFFSETS, OFFSETS, 2, 2)
        check_talk(X.to(dtype), OFFSETS.to(dtype), None, 2, 0)


@pytest.mark.parametrize(
    ("x", "offsets", "words"),
    [
        (HALF, F64, "x is torch.bfloat16, left torch.float64: cast left to torch.float32"),
        (HALF, torch.float16, "left torch.float16: cast left to torch.float32"),
        (F32, HALF, "x is torch.float32, left torch.bfloat16: cast left to torch.float32"),
        (F32, torch.int64, "left torch.int64: cast left to torch.float32"),
        (F64, F32, "x is torch.float64, left torch.float32: cast left to torch.float64"),
    ],
)
def test_offsets_of_another_dtype(x, offsets, words):
    refused(TypeError, words, check_talk, X.to(x), OFFSETS.to(offsets), None, 2, 0)


L, R = OFFSETS, OFFSETS


@pytest.mark.parametrize(
    ("left", "right", "max_left", "max_right", "words"),
    [
        (L, R, -1, 2, "max_left -1 and max_right 2 must not be negative"),
        (L, R, 2, -3, "max_left 2 and max_right -3 must not be negative"),
        (L, None, 2, 1, "max_right 1 needs right"),
        (L, R, 2, 0, "max_right is 0: leave out right"),
        (L[0], R, 2, 2, r"left \(5, 3\) does not fit x \(2, 5, 6\): left is \(B, T, H\)"),
        (L, R[:1], 2, 2, r"right \(1, 5, 3\) does not fit x \(2, 5, 6\): right is \(B, T, H\)"),
        (L[..., 0], None, 2, 0, r"left \(2, 5\) does not fit"),
        (L[:, :4], R, 2, 2, r"left \(2, 4, 3\) does not fit"),
        (L[..., :0], None, 2, 0, "0 heads do not divide 6 channels"),
        (torch.zeros(2, 5, 4), torch.zeros(2, 5, 4), 2, 2, "4 heads do not divide 6 channels"),
        (L, R[..., :2], 2, 2, "left has 3 heads, right 2"),
        (L.to("meta"), None, 2, 0, "x is on cpu, left on meta"),
        (L, R.to("meta"), 2, 2, "x is on cpu, right on meta"),
    ],
)
def test_offsets_and_reaches(left, right, max_left, max_right, words):
    refused(ValueError, words, check_talk, X, left, right, max_left, max_right)


def test_an_offset_that_is_no_tensor():
    words = "left is of type NoneType: give a torch.Tensor"
    refused(TypeError, words, check_talk, X, None, None, 0, 0)
    refused(TypeError, words, check_talk, X, None, R, 2, 2)


def test_offsets_of_two_dtypes():
    words = "left is torch.float32, right torch.bfloat16: cast one"
    refused(TypeError, words, check_talk, X.to(HALF), OFFSETS, OFFSETS.to(HALF), 2, 2)


DT, A, WRITE, GAMMA = torch.zeros(6), torch.zeros(6, 4), torch.zeros(2, 5, 4), torch.zeros(3)
Z = A.to(torch.complex64)


def test_good_states_pass():
    check_ssm(X, DT, Z, Z)
    check_ssm(X.to(HALF), DT, Z, Z)
    check_ssm(X.double(), DT.double(), Z.to(torch.complex128), Z.to(torch.complex128))
    check_retention(X.to(HALF), X.to(HALF), X.to(HALF), GAMMA)
    check_selective(X.to(HALF), X.to(HALF), A, WRITE.to(HALF), WRITE.to(HALF))


DYNAMIC, ROW_OF = torch.zeros(KERNELS["BTHK"]), torch.zeros(2, 3, dtype=torch.long)
TENSORS = {
    "depthwise_conv": (X, torch.zeros(6, 3)),
    "light_conv": (X, torch.zeros(3, 3)),
    "dynamic_conv": (X, DYNAMIC),
    "softmax_conv": (X, DYNAMIC),
    "talk_conv": (X, OFFSETS, OFFSETS),
    "cumulative_mean": (X,),
    "diagonal_ssm": (X, DT, Z, Z),
    "retention": (X, X, X, GAMMA),
    "selective_scan": (X, X, A, WRITE, WRITE),
    "conv_step": (torch.zeros(3, 2, 6), ROW_OF, torch.zeros(2, 3, 3)),
}
"""good tensors for every operator"""
SIZES = {name: {"pad_left": 1} for name in TENSORS if name.endswith("_conv")}
SIZES["talk_conv"] = {"max_left": 2, "max_right": 2}


def test_every_operator_refuses_mixed_dtypes():
    """Also those that are missing from the registry: every file of ops/ that ends in OPERATOR."""
    modules = [import_module(f"dynconv.ops.{each.name}") for each in iter_modules(ops.__path__)]
    found = [module for module in modules if hasattr(module, "OPERATOR")]
    assert {module.OPERATOR.name for module in found} == TENSORS.keys()
    other = {F32: F64, torch.complex64: torch.complex128, torch.int64: torch.int32}
    for module in found:
        name = module.OPERATOR.name
        call = partial(getattr(module, name), **SIZES.get(name, {}))
        call(*TENSORS[name])
        for i, tensor in enumerate(TENSORS[name]):
            dtype = torch.int64 if name == "cumulative_mean" else other[tensor.dtype]
            wrong = [*TENSORS[name]]
            wrong[i] = tensor.to(dtype)
            with pytest.raises(TypeError, match="cast"):
                call(*wrong)


@pytest.mark.parametrize(
    ("error", "words", "check", "arguments"),
    [
        (TypeError, "A torch.float32: cast A to torch.complex64", check_ssm, (X, DT, A, Z)),
        (
            TypeError,
            "dt torch.bfloat16: cast dt to torch.float32",
            check_ssm,
            (X, DT.to(HALF), Z, Z),
        ),
        (
            ValueError,
            r"dt \(5,\) does not fit: \(channels,\) is \(6\)",
            check_ssm,
            (X, DT[:5], Z, Z),
        ),
        (ValueError, r"A \(5, 4\) does not fit x .* A is \(6, N\)", check_ssm, (X, DT, Z[:5], Z)),
        (ValueError, r"A \(6, 0\) does not fit", check_ssm, (X, DT, Z[:, :0], Z)),
        (ValueError, r"C \(6, 3\) does not fit: .* is \(6, 4\)", check_ssm, (X, DT, Z, Z[:, :3])),
        (
            TypeError,
            "^q is torch.float32, gamma torch.float64: cast gamma to torch.float32",
            check_retention,
            (X, X, X, GAMMA.double()),
        ),
        (ValueError, "^q is on cpu, gamma on meta", check_retention, (X, X, X, GAMMA.to("meta"))),
        (ValueError, r"k \(2, 4, 6\) does not fit", check_retention, (X, X[:, :4], X, GAMMA)),
        (
            TypeError,
            "q is torch.float32, v torch.bfloat16",
            check_retention,
            (X, X, X.to(HALF), GAMMA),
        ),
        (ValueError, "4 heads do not divide 6", check_retention, (X, X, X, torch.zeros(4))),
        (
            ValueError,
            r"gamma \(1, 3\) does not fit: it is",
            check_retention,
            (X, X, X, GAMMA[None]),
        ),
        (
            ValueError,
            r"B \(2, 4, 4\) does not fit",
            check_selective,
            (X, X, A, WRITE[:, :4], WRITE),
        ),
        (
            ValueError,
            r"dt \(2, 5, 5\) does not fit",
            check_selective,
            (X, X[..., :5], A, WRITE, WRITE),
        ),
        (TypeError, "C torch.float64: cast", check_selective, (X, X, A, WRITE, WRITE.double())),
        (ValueError, "C on meta: move", check_selective, (X, X, A, WRITE, WRITE.to("meta"))),
    ],
)
def test_states_must_fit(error, words, check, arguments):
    refused(error, words, check, *arguments)


@pytest.mark.parametrize("dynamic", [False, True])
def test_checks_leave_one_graph(dynamic):
    def checked(x, weight, left):
        check_conv(x, weight, 1, "BTHK")
        check_conv(x, weight[0, 0], 1, "HK")
        check_talk(x, left, left, 2, 3)
        return x + 1

    torch.compiler.reset()
    graph = torch.compile(checked, fullgraph=True, dynamic=dynamic, backend="eager")
    for T in (5, 7, 8):
        x = torch.zeros(2, T, 6)
        assert torch.equal(graph(x, torch.zeros(2, T, 3, 3), torch.zeros(2, T, 3)), x + 1)
