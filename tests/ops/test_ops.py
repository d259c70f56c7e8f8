"""Every implementation of every operator agrees with its oracle, in values and gradients.

Memory that an implementation asks for and does not fill is NaN in all of these tests.
"""

from functools import partial
from inspect import signature
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from helpers.operators import operators_with
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import func
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from dynconv import ops
from dynconv.ops.talk import causal_talk_weights

F64 = torch.float64
OPERATORS = operators_with("loop")
RECURRENT = ["diagonal_ssm", "retention", "selective_scan"]
WINDOWS = [name for name in OPERATORS if name not in [*RECURRENT, "cumulative_mean"]]
EVERY = [(name, impl) for name in OPERATORS for impl in ops.implementations(name)]


pytestmark = pytest.mark.usefixtures("poisoned_memory")


def case(name: str, B: int, T: int, C: int, H: int, K: int, pad_left: int):
    """The operator as a function of (impl, *inputs), and inputs drawn for it.

    TaLK reaches pad_left to the left and K - 1 - pad_left to the right: K positions in all. Where
    there are states, each channel has K of them.
    """
    x = torch.randn(B, T, C, dtype=F64)
    if name in RECURRENT:
        op = getattr(ops, name)
        return lambda impl, *inputs: op(*inputs, impl=impl), [x, *states(name, x, H, K)]
    if name == "cumulative_mean":
        return lambda impl, x: ops.cumulative_mean(x, impl=impl), [x]
    if name == "talk_conv":
        reach = {"max_left": pad_left, "max_right": K - 1 - pad_left}
        # Whole distances, where the gradients of the offsets jump, are never drawn.
        offsets = [torch.rand(B, T, H, dtype=F64) for _ in range(1 + (reach["max_right"] > 0))]

        def talk(impl, x, left, right=None):
            return ops.talk_conv(x, left, right, **reach, impl=impl)

        return talk, [x, *offsets]
    shape = {"depthwise_conv": (C, K), "light_conv": (H, K)}.get(name, (B, T, H, K))
    conv = partial(getattr(ops, name), pad_left=pad_left)
    return lambda impl, *inputs: conv(*inputs, impl=impl), [x, torch.randn(shape, dtype=F64)]


def states(name: str, x: torch.Tensor, H: int, N: int) -> list[torch.Tensor]:
    """What an operator with states takes besides x."""
    B, T, C = x.shape
    if name == "retention":
        return [torch.randn_like(x), torch.randn_like(x), torch.rand(H, dtype=F64)]
    A = -0.1 - torch.rand(C, N, dtype=F64)
    if name == "selective_scan":
        return [torch.rand_like(x), A, *torch.randn(2, B, T, N, dtype=F64)]
    A = torch.complex(A, 3 * torch.randn_like(A))
    return [0.1 + torch.rand(C, dtype=F64), A, torch.randn_like(A)]


def graph(op, impl: str, inputs: list, g: torch.Tensor | None) -> tuple:
    """The result and, if anything is differentiable, the gradients of all inputs."""
    inputs = [z.detach().requires_grad_() for z in inputs]
    out = op(impl, *inputs)
    return out, *torch.autograd.grad(out, inputs, torch.ones_like(out) if g is None else g)


def close(a: torch.Tensor, b: torch.Tensor, where: str) -> None:
    # Sums of up to a hundred products of magnitude 1, in a different order.
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11, msg=lambda m: f"{where}: {m}")


def all_equal_the_loop(name: str, op, inputs: list, g: torch.Tensor | None = None, shape=""):
    expected = graph(op, "loop", inputs, g)
    results = ["the output", *(f"d{z}" for z in signature(getattr(ops, name)).parameters)]
    for impl in set(ops.implementations(name)) - {"loop"}:
        actual = graph(op, impl, inputs, g)
        for what, a, b in zip(results, actual, expected, strict=False):
            close(a, b, f"{name} {impl} {what} {shape}")


GRID = {
    1: ([1, 2, 37], [0]),
    2: ([1, 2, 3, 37], [0, 1]),
    3: ([1, 2, 3, 4, 37], [0, 1, 2]),
    7: ([1, 6, 7, 8, 37], [0, 1, 2, 3, 4, 5, 6]),
    31: ([1, 30, 31, 32, 37], [0, 1, 15, 29, 30]),
}
"""lengths T and paddings on the left, keyed by K"""
HEADS = [(name, H) for name in WINDOWS for H in (1, 3, 6) if H == 6 or name != "depthwise_conv"]
"""operators with numbers of heads for 6 channels; depthwise convolution has one head per channel"""


@pytest.mark.parametrize("K", GRID)
@pytest.mark.parametrize(("name", "H"), HEADS)
def test_windows_equal_the_loop(name, H, K):
    torch.manual_seed(K)
    for T, pad_left in product(*GRID[K]):
        if name == "talk_conv" and pad_left % max(1, K // 3):
            continue  # its loop takes T steps for each position, not K
        op, inputs = case(name, 2, T, 6, H, K, pad_left)
        g = torch.randn(2, T, 6, dtype=F64)
        all_equal_the_loop(name, op, inputs, g, shape=f"{T=} {H=} {K=} {pad_left=}")


@pytest.mark.parametrize("T", [1, 2, 3, 4, 5, 36, 37])
def test_cumulative_mean_equals_the_loop(T):
    op, inputs = case("cumulative_mean", 2, T, 6, 1, 1, 0)
    all_equal_the_loop("cumulative_mean", op, inputs, torch.randn(2, T, 6, dtype=F64))


@pytest.mark.parametrize("T", [1, 2, 3, 37, 63, 64, 65, 130])
@pytest.mark.parametrize("name", RECURRENT)
def test_states_equal_the_loop(name, T):
    """Also where a chunk ends, and just before and after."""
    torch.manual_seed(T)
    for H, N in [(1, 1), (3, 4), (6, 2)]:
        op, inputs = case(name, 2, T, 6, H, N, 0)
        all_equal_the_loop(name, op, inputs, torch.randn(2, T, 6, dtype=F64), f"{T=} {H=} {N=}")


@pytest.mark.parametrize("impl", ops.implementations("diagonal_ssm"))
def test_a_state_of_the_diagonal_model_is_its_differential_equation(impl):
    """h' = A h + x, solved for an input that is 1 from 0 on: (exp(A t) - 1) / A."""
    dt, A = torch.tensor([0.3], dtype=F64), torch.tensor([[-0.5 + 2j]])
    A, C = A.to(torch.complex128), torch.ones(1, 1, dtype=torch.complex128)
    out = ops.diagonal_ssm(torch.ones(1, 50, 1, dtype=F64), dt, A, C, impl=impl)
    t = dt * torch.arange(1, 51)
    close(out.flatten(), 2 * (((A * t).exp() - 1) / A).real.flatten(), impl)


@pytest.mark.parametrize("impl", ops.implementations("retention"))
def test_retention_without_decay_is_linear_attention(impl):
    q, k, v = torch.randn(3, 2, 70, 6, dtype=F64)
    out = ops.retention(q, k, v, torch.ones(1, dtype=F64), impl=impl)
    close(out, (q @ k.transpose(1, 2)).tril() @ v, impl)


@pytest.mark.parametrize("impl", ops.implementations("selective_scan"))
def test_a_token_with_a_step_of_zero_leaves_the_states_alone(impl):
    op, (x, dt, A, B, C) = case("selective_scan", 1, 9, 6, 1, 4, 0)
    dt[:, 3:6] = 0
    some = [0, 1, 2, 6, 7, 8]
    short = op(impl, x[:, some], dt[:, some], A, B[:, some], C[:, some])
    close(op(impl, x, dt, A, B, C)[:, some], short, impl)


@pytest.mark.parametrize(("name", "impl"), [pair for pair in EVERY if pair[0] in RECURRENT])
def test_states_keep_float32_in_half_precision(name, impl):
    """The result is that of the rounded inputs, itself rounded once."""
    torch.manual_seed(0)
    op, inputs = case(name, 2, 70, 6, 3, 4, 0)
    narrow = {"diagonal_ssm": [0], "retention": [0, 1, 2], "selective_scan": [0, 1, 3, 4]}[name]
    wide = {F64: torch.float32, torch.complex128: torch.complex64}
    half = [z.bfloat16() if i in narrow else z.to(wide[z.dtype]) for i, z in enumerate(inputs)]
    exact = [z.to(torch.complex128 if z.is_complex() else F64) for z in half]
    out, expected = op(impl, *half), op("loop", *exact)
    assert out.dtype == torch.bfloat16
    error = (out.double() - expected).abs()
    assert (error <= 2**-8 * expected.abs() + 1e-4 * expected.norm()).all()


def talk_at_both_edges(impl, *inputs):
    return ops.talk_conv(*inputs, max_left=31, max_right=31, impl=impl)


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float16], ids=str)
def talk_in_half(request):
    """Inputs in half precision, a gradient, and what the loop makes of them in float64."""
    torch.manual_seed(0)
    x, left, right = torch.randn(1, 50, 4), *torch.rand(2, 1, 50, 2)
    half = [z.to(request.param) for z in (x, left, right)]
    g = torch.randn_like(x).to(request.param)
    return half, g, graph(talk_at_both_edges, "loop", [z.double() for z in half], g.double())


@pytest.mark.parametrize("impl", ops.implementations("talk_conv"))
def test_talk_places_both_edges_exactly_in_half_precision(impl, talk_in_half):
    """Offsets in half precision, which a product in half precision would round to a whole one."""
    half, g, expected = talk_in_half
    if (impl, g.dtype) == ("cpu", torch.float16):
        pytest.skip("the C kernels do not take float16")
    actual = graph(talk_at_both_edges, impl, half, g)
    for a, b in zip(actual, expected, strict=True):
        assert (a.double() - b).norm() <= 0.01 * b.norm()


@pytest.mark.parametrize("impl", [i for i in ops.implementations("cumulative_mean") if i != "loop"])
def test_cumulative_mean_of_many_ones_is_one_in_half_precision(impl):
    half = torch.ones(1, 3000, 1, dtype=torch.bfloat16)
    assert (ops.cumulative_mean(half, impl=impl) == 1).all()


@st.composite
def shapes(draw):
    B, T, H, R = (draw(st.integers(1, top)) for top in (3, 40, 4, 20))
    K = draw(st.integers(1, 12))
    return B, T, H * R, H, K, draw(st.integers(0, K - 1))


@pytest.mark.parametrize("name", OPERATORS)
@settings(
    max_examples=12,
    deadline=None,  # compiling takes its time
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(shape=shapes(), seed=st.integers(0, 2**32 - 1))
def test_any_shape_equals_the_loop(name, shape, seed):
    torch.manual_seed(seed)
    op, inputs = case(name, *shape)
    all_equal_the_loop(name, op, inputs, torch.randn_like(inputs[0]), shape=str(shape))


def padded(z: torch.Tensor) -> torch.Tensor:
    """The same values as a slice, in every dimension, of a larger tensor full of NaN."""
    large = torch.full([n + 2 for n in z.shape], torch.nan, dtype=z.dtype)
    inner = large[tuple(slice(1, n + 1) for n in z.shape)]
    return inner.copy_(z)


LAYOUTS = {
    "time first": lambda z: z.transpose(0, 1).contiguous().transpose(0, 1),
    "channels apart": lambda z: z.transpose(-1, -2).contiguous().transpose(-1, -2),
    "every other": lambda z: z.repeat_interleave(2, -1)[..., ::2],
    "slice": padded,
    "expanded batch": lambda z: z[:1].expand_as(z),
    "expanded": lambda z: z.flatten()[:1].view((1,) * z.dim()).expand_as(z),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERATORS)
def test_strides_as_they_come(name, layout):
    """Inputs and the gradient of the result may have any strides, or overlap."""
    torch.manual_seed(0)
    op, inputs = case(name, 3, 9, 24, 2, 5, 2)
    if name == "talk_conv":
        inputs = [z.where(z != 0, 0.37) for z in inputs]
    g = torch.randn(3, 9, 24, dtype=F64)
    lay = LAYOUTS[layout]
    moved = [lay(z) if z.dim() > 1 else z for z in inputs]
    assert not any(z.is_contiguous() for z in moved if z.dim() > 1)
    copies = [z.contiguous() for z in moved]
    expected = graph(op, "loop", copies, lay(g))
    for impl in ops.implementations(name):
        for a, b in zip(graph(op, impl, moved, lay(g)), expected, strict=True):
            close(a, b, impl)


@pytest.mark.parametrize("name", OPERATORS)
def test_gradient_of_a_sum(name):
    """It is a single value, expanded."""
    op, inputs = case(name, 2, 9, 24, 2, 5, 2)
    _, *expected = graph(op, "loop", inputs, None)
    for impl in ops.implementations(name):
        moved = [z.clone().requires_grad_() for z in inputs]
        op(impl, *moved).sum().backward()
        for z, gradient in zip(moved, expected, strict=True):
            close(z.grad, gradient, impl)


@pytest.mark.parametrize(("name", "impl"), EVERY)
def test_gradients_are_those_of_finite_differences(name, impl):
    torch.manual_seed(0)
    for H, T, pad_left in [(2, 5, 1), (1, 3, 3), (4, 2, 0)]:
        op, inputs = case(name, 2, T, 4, H, 4, pad_left)
        if name == "talk_conv":  # the offsets' gradients jump at whole distances: stay away
            reaches = (pad_left, 3 - pad_left)
            inputs[1:] = [off_the_grid(z, n) for z, n in zip(inputs[1:], reaches, strict=False)]
        inputs = [z.requires_grad_() for z in inputs]
        assert gradcheck(partial(op, impl), inputs)


@pytest.mark.parametrize(("name", "impl"), EVERY)
def test_a_second_derivative_is_right_or_refused(name, impl):
    """For all inputs together and for each alone: the engine computes only what they need."""
    torch.manual_seed(0)
    op, inputs = case(name, 1, 4, 2, 1, 3, 1)
    if name == "talk_conv":
        inputs[1:] = [off_the_grid(z, 1) for z in inputs[1:]]
    for alone in (None, *range(len(inputs))):
        given = [z.detach().requires_grad_(alone in (None, i)) for i, z in enumerate(inputs)]
        needed = [z for z in given if z.requires_grad]
        try:
            out = op(impl, *given).square().sum()
            gradients = torch.autograd.grad(out, needed, create_graph=True)
            torch.autograd.grad(sum(z.abs().square().sum() for z in gradients), needed)
        except NotImplementedError as error:
            remedy = str(error).rpartition("impl=")[2].strip("'")
            assert remedy in ops.implementations(name)
        else:
            assert gradgradcheck(partial(op, impl), given)


def test_the_weights_of_causal_talk_give_the_oracle_s_sums():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, 6, dtype=F64, generator=generator)
    left = torch.rand(2, 7, 3, dtype=F64, generator=generator)
    weights = causal_talk_weights(left, 4).repeat_interleave(2, dim=2)  # (B, T, C, 5)
    windows = F.pad(x, (0, 0, 4, 0)).unfold(1, 5, 1)  # (B, T, C, 5)
    expected = ops.talk_conv(x, left, None, max_left=4, max_right=0, impl="loop")
    torch.testing.assert_close((weights * windows).sum(-1), expected)


@pytest.mark.parametrize("impl", ops.implementations("talk_conv"))
def test_talk_offset_has_no_gradient_where_its_distance_is_whole(impl):
    """As in the paper's equation 6; also at the ends of the sequence, and beyond the reaches."""
    torch.manual_seed(0)
    x = torch.randn(2, 9, 6, dtype=F64)
    for offset in (0.0, 0.25, 0.5, 1.0, 1.25, -0.3, 0.3):
        left, right = torch.full((2, 2, 9, 3), offset, dtype=F64).requires_grad_()
        out = ops.talk_conv(x, left, right, max_left=4, max_right=8, impl=impl)
        t = torch.arange(9.0)
        grads = torch.autograd.grad(out.sum(), (left, right))
        for grad, reach, room in zip(grads, (4, 8), (t, 8 - t), strict=True):
            moves = torch.full((9,), offset * reach > 0 and offset * reach % 1 > 0)
            moves &= offset * reach < room
            assert torch.equal((grad != 0).all((0, 2)), moves), (offset, reach)
            assert torch.equal((grad != 0).any(2).any(0), moves), (offset, reach)


def off_the_grid(offsets: torch.Tensor, reach: int) -> torch.Tensor:
    """Offsets whose distances end in 0.2 to 0.8."""
    return ((offsets * reach).floor() + 0.2 + 0.6 * torch.rand_like(offsets)) / max(1, reach)


@pytest.mark.parametrize(("name", "impl"), EVERY)
def test_causal_operator_never_sees_the_future(name, impl):
    op, inputs = case(name, 1, 70, 6, 3, 5, 4)
    x, *others = inputs
    later = x.clone()
    later[:, 41:] += 1
    now, then = op(impl, x, *others), op(impl, later, *others)
    rounding = 1e-12 if impl == "fft" else 0  # each frequency has part of every position
    torch.testing.assert_close(now[:, :41], then[:, :41], rtol=0, atol=rounding)
    assert (now[:, 41:] != then[:, 41:]).any(1).all()


@pytest.mark.parametrize(("name", "impl"), [pair for pair in EVERY if pair[0] in WINDOWS])
def test_a_position_sees_only_its_window(name, impl):
    """A change at 35 reaches 35 + pad_left and, to the left, 35 - (K - 1 - pad_left)."""
    op, inputs = case(name, 1, 70, 6, 3, 8, 5)
    x, *others = inputs
    others = [torch.ones_like(z) for z in others]  # TaLK's widest windows, too
    changed = x.clone()
    changed[:, 35] += 1
    moved = (op(impl, changed, *others) - op(impl, x, *others)).abs().amax((0, 2)) > 1e-9
    assert moved.nonzero().flatten().tolist() == list(range(33, 41))


@pytest.mark.parametrize(("name", "impl"), EVERY)
def test_sentences_of_a_batch_are_independent(name, impl):
    torch.manual_seed(0)
    op, inputs = case(name, 3, 40, 6, 3, 5, 2)
    g = torch.randn(3, 40, 6, dtype=F64)
    split = [z.shape[:2] == (3, 40) for z in inputs]  # the others are weights of all sentences
    out, *grads = graph(op, impl, inputs, g)
    for b in range(3):
        row = [z[b : b + 1] if own else z for z, own in zip(inputs, split, strict=True)]
        alone, *row_grads = graph(op, impl, row, g[b : b + 1])
        torch.testing.assert_close(out[b : b + 1], alone, rtol=1e-12, atol=1e-13)
        for whole, part, own in zip(grads, row_grads, split, strict=True):
            if own:
                torch.testing.assert_close(whole[b : b + 1], part, rtol=1e-12, atol=1e-13)
    inputs[0][1] = torch.nan  # a broken neighbour does no harm
    assert torch.equal(op(impl, *inputs)[[0, 2]], out[[0, 2]])


@pytest.mark.parametrize(("name", "impl"), EVERY)
def test_no_sentence_at_all(name, impl):
    op, inputs = case(name, 0, 5, 6, 3, 3, 1)
    out, *grads = graph(op, impl, inputs, None)
    assert out.shape == (0, 5, 6)
    for z, grad in zip(inputs, grads, strict=True):
        assert torch.equal(grad, torch.zeros_like(z))


def test_head_of_a_channel_is_contiguous():
    weight = torch.tensor([[1.0], [2.0]])
    out = ops.light_conv(torch.ones(1, 1, 4), weight, pad_left=0)
    assert out.flatten().tolist() == [1, 1, 2, 2]


def test_softmax_rows_sum_to_one():
    weight = ops.normalize_kernel(torch.randn(3, 7))
    torch.testing.assert_close(weight.sum(-1), torch.ones(3))
    with pytest.raises(ValueError, match="'l3'"):
        ops.normalize_kernel(weight, "l3")


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_dropconnect_of_everything_is_refused(dropout):
    x, logits = torch.zeros(1, 3, 4), torch.zeros(1, 3, 2, 3)
    with pytest.raises(ValueError, match=rf"dropout {dropout} lies outside \[0, 1\)"):
        ops.softmax_conv(x, logits, pad_left=1, dropout=dropout)


def test_the_parts_one_by_one_are_the_operator():
    torch.manual_seed(0)
    x, logits = torch.randn(2, 9, 8), torch.randn(2, 9, 2, 3)
    out = ops.softmax_conv(x, logits, pad_left=2)
    torch.testing.assert_close(out, ops.dynamic_conv(x, logits.softmax(-1), pad_left=2))
    ones = torch.ones(2, 400, 8)
    dropped = ops.softmax_conv(ones, torch.zeros(2, 400, 2, 3), pad_left=1, dropout=0.25)
    taps = (dropped[:, 1:-1] * 3 * 0.75).round()  # how many of three were kept
    assert abs(taps.mean() / 3 - 0.75) < 0.03 and set(taps.unique().tolist()) == {0, 1, 2, 3}


def test_dropconnect_in_the_loop_and_in_the_parts_is_the_same():
    x, logits = torch.randn(2, 9, 8, dtype=F64), torch.randn(2, 9, 2, 3, dtype=F64)
    results = []
    for impl in ("loop", "separate"):
        torch.manual_seed(1)
        results.append(ops.softmax_conv(x, logits, pad_left=2, dropout=0.4, impl=impl))
    torch.testing.assert_close(*results)


X = torch.zeros(2, 4, 6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ops.light_conv(X, torch.zeros(4, 3), pad_left=1), "4 heads do not divide 6"),
        (lambda: ops.light_conv(X, torch.zeros(3, 3), pad_left=3), "pad_left 3 .* 2"),
        (lambda: ops.light_conv(X, torch.zeros(3, 3), pad_left=1, impl="fast"), "'fast': choose"),
        (lambda: ops.light_conv(X, torch.zeros(3, 3), pad_left=1, impl=None), "None: choose one"),
        (lambda: ops.cumulative_mean(X, impl="blocks"), "'blocks': did you mean blocked?"),
        (lambda: ops.depthwise_conv(X, torch.zeros(3, 3), pad_left=1), "3 kernels for 6"),
        (lambda: ops.dynamic_conv(X, torch.zeros(3, 3), pad_left=1), "does not fit"),
        (lambda: ops.dynamic_conv(X, torch.zeros(2, 4, 4, 3), pad_left=1), "4 heads"),
        (
            lambda: ops.talk_conv(X, X[..., :3], None, max_left=3, max_right=1),
            "max_right 1 needs right",
        ),
        (lambda: ops.talk_conv(X, X[..., :3], None, max_left=-1, max_right=0), "max_left -1"),
        (lambda: ops.talk_conv(X, X[:1, :, :3], None, max_left=1, max_right=0), "left .* fit"),
        (lambda: ops.implementations("mean"), "'mean': there are depthwise_conv, light_conv"),
        (lambda: ops.implementations("talkconv"), "'talkconv': did you mean talk_conv?"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("impl", ["loop", "separate"])
def test_large_logits_do_not_overflow(impl):
    x, logits = torch.randn(1, 4, 4), 200 * torch.randn(1, 4, 2, 3)
    y = ops.softmax_conv(x, logits, pad_left=1, impl=impl)
    weight = logits.double().softmax(3)
    torch.testing.assert_close(y.double(), ops.dynamic_conv(x.double(), weight, pad_left=1))


@pytest.mark.parametrize("name", OPERATORS)
def test_auto_has_the_derivatives_of_torch_func(name):
    """Gradients of each example by vmap, and the derivative in forward mode, are autograd's."""
    function, inputs = case(name, 2, 12, 4, 2, 3, pad_left=1)
    examples = [torch.stack([z, z.roll(1, 0), z]).requires_grad_() for z in inputs]

    def loss(*inputs):
        return function("auto", *inputs).square().sum()

    every = tuple(range(len(inputs)))
    gradients = torch.autograd.grad(sum(map(loss, *examples)), examples)
    found = func.vmap(func.grad(loss, argnums=every))(*examples)
    torch.testing.assert_close(found, gradients)
    steps = [torch.randn_like(z) for z in inputs]
    _, derivative = func.jvp(loss, tuple(inputs), tuple(steps))
    pairs = zip(gradients, steps, strict=True)
    expected = sum((dz[0].conj() * step).real.sum() for dz, step in pairs)
    torch.testing.assert_close(derivative, expected)


@pytest.mark.parametrize("name", operators_with("cpu"))
def test_kernels_refuse_the_transforms_of_torch_func(name):
    """In one line: without it, forward mode would leave their derivatives out."""
    function, inputs = case(name, 1, 5, 4, 2, 3, pad_left=1)
    call = partial(function, "cpu")
    words = f"impl='cpu' of {name} runs neither inside .*: use impl='auto' or "
    with pytest.raises(NotImplementedError, match=words):
        func.vmap(call)(*(z[None] for z in inputs))
    with pytest.raises(NotImplementedError, match=words), forward_ad.dual_level():
        call(*inputs)


@pytest.mark.parametrize("impl", [None, ["cpu"], "native"], ids=str)
def test_an_impl_that_is_no_name_is_refused(impl):
    words = "^cumulative_mean has no implementation .*: choose one of auto, .*, cpu"
    with pytest.raises(ValueError, match=words):
        ops.cumulative_mean(torch.zeros(1, 2, 3), impl=impl)
