"""The state of a convolution: its buffer is written in place, but no older state changes."""

import pytest
import torch

from dynconv.kernels.cpu import build as cpu
from dynconv.layers import DynamicConv, LightConv, TaLKConv
from dynconv.layers.history import History
from dynconv.ops.step import conv_step, conv_step_gather, conv_step_loop

SIZE, C = 4, 6


def inputs(rows: int, count: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, count, C, generator=torch.Generator().manual_seed(seed))


def test_window_is_the_last_inputs_with_zeros_before():
    x, state = inputs(3, 20, 0), None
    for t in range(20):
        state = History.extended(state, x[:, t : t + 1], SIZE)
        expected = torch.cat([torch.zeros(3, SIZE, C), x[:, : t + 1]], dim=1)[:, -SIZE - 1 :]
        assert torch.equal(state.last(SIZE + 1), expected)


def test_random_reorderings_equal_a_plain_buffer():
    """Rows repeat, vanish and come back in another order, as in a beam search."""
    draw = torch.Generator().manual_seed(0)
    state, plain = None, None
    for t in range(40):
        rows = 2 if t == 0 else len(plain)
        x = inputs(rows, 1 + t % 3, t)
        plain = torch.zeros(rows, SIZE, C) if plain is None else plain
        state, plain = History.extended(state, x, SIZE), torch.cat([plain, x], dim=1)
        assert torch.equal(state.last(SIZE), plain[:, -SIZE:])
        size = 1 + int(torch.randint(8, (1,), generator=draw))
        order = torch.randint(rows, (size,), generator=draw)
        state, plain = state.select(order), plain[order]


def test_two_futures_of_one_state_do_not_meet():
    base = History.extended(None, inputs(2, 3, 0), SIZE)
    first = History.extended(base, inputs(2, 1, 1), SIZE)
    second = History.extended(base, inputs(2, 1, 2), SIZE)
    assert torch.equal(first.last(1), inputs(2, 1, 1))
    assert torch.equal(second.last(1), inputs(2, 1, 2))
    assert torch.equal(base.last(3), inputs(2, 3, 0))


def test_the_gathered_windows_equal_the_loop():
    past, row_of = torch.randn(5, 9, 6).double(), torch.randint(9, (7, 5))
    weight = torch.randn(7, 2, 5).double()
    torch.testing.assert_close(
        conv_step_gather(past, row_of, weight), conv_step_loop(past, row_of, weight)
    )


@pytest.mark.parametrize("R", [1, 8, 20, 64, 70, 200])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_c_kernel_of_a_step_equals_the_gathered_windows(dtype, R):
    if cpu.why_unavailable():
        pytest.skip(cpu.why_unavailable())
    K, H, N = 5, 2, 7
    past = torch.randn(K, N + 2, H * R, dtype=dtype)
    row_of = torch.randint(N + 2, (N, K))
    weight = torch.randn(N, H, K, dtype=dtype)
    expected = conv_step_gather(past.double(), row_of, weight.double())
    limit = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(
        conv_step(past, row_of, weight).double(), expected, rtol=limit, atol=limit
    )


def test_steps_with_reordering_equal_the_whole_of_each_beam():
    """After reordering, the layer returns what it would return for each row's own past."""
    torch.manual_seed(0)
    layer = DynamicConv(16, 2, 5, causal=True).double().eval()
    past, state = torch.empty(3, 0, 16, dtype=torch.float64), None
    for _ in range(12):
        x = torch.randn(3, 1, 16, dtype=torch.float64)
        past = torch.cat([past, x], dim=1)
        y, state = layer.step(x, state)
        torch.testing.assert_close(y, layer(past)[:, -1:])
        rows = torch.randint(3, (3,))
        past, state = past[rows], state.select(rows)


def test_talk_state_is_as_long_as_its_reach():
    layer, state = TaLKConv(12, 3, 6, 0).eval(), None
    for _ in range(50):
        _, state = layer.step(torch.randn(2, 1, 12), state)
    assert len(state.slots.data) == 2 * 6 + 1


@pytest.mark.parametrize(("heads", "n"), [(2, 1), (4, 1), (2, 2)])
def test_steps_give_a_kernel_no_gradient(heads, n):
    """Neither the kernel in C nor PyTorch, whichever computes the step."""
    layer = LightConv(16, heads, 3, causal=True).eval()
    y, _ = layer.step(torch.randn(2, n, 16))
    y.sum().backward()
    assert layer.weight.grad is None


PAST, ROW_OF, WEIGHT = torch.randn(5, 4, 32), torch.randint(4, (3, 5)), torch.randn(3, 2, 5)


@pytest.mark.parametrize("impl", ["auto", "gather", "loop"])
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((PAST, ROW_OF, WEIGHT.double()), TypeError, "past is torch.float32, weight torch.float64"),
        ((PAST, ROW_OF.int(), WEIGHT), TypeError, "row_of is torch.int32: cast it to torch.int64"),
        (
            (PAST.long(), ROW_OF, WEIGHT.long()),
            TypeError,
            "past is torch.int64: cast it to a floating",
        ),
        ((PAST, ROW_OF.to("meta"), WEIGHT), ValueError, "past is on cpu, row_of on meta"),
        ((PAST, ROW_OF, WEIGHT.to("meta")), ValueError, "past is on cpu, weight on meta"),
        (
            (PAST[:4], ROW_OF, WEIGHT),
            ValueError,
            r"row_of \(3, 5\) does not fit: .* is \(3, 4\) here",
        ),
        (
            (PAST, ROW_OF[:2], WEIGHT),
            ValueError,
            r"row_of \(2, 5\) does not fit: .* is \(3, 5\) here",
        ),
        ((PAST, ROW_OF, WEIGHT[..., 1:]), ValueError, r"weight \(3, 2, 4\) does not fit: "),
        (
            (PAST, ROW_OF, WEIGHT[:, 0]),
            ValueError,
            r"weight \(3, 5\) has 2 dimensions: give it three",
        ),
        ((PAST[0], ROW_OF, WEIGHT), ValueError, r"past \(4, 32\) has 2 dimensions: give it three"),
        ((PAST[..., 1:], ROW_OF, WEIGHT), ValueError, "2 heads do not divide 31 channels"),
    ],
)
def test_a_step_refuses_arguments_that_do_not_fit(arguments, error, words, impl):
    conv_step(PAST, ROW_OF, WEIGHT, impl=impl)
    with pytest.raises(error, match=f"^{words}"):
        conv_step(*arguments, impl=impl)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("channels", [2, 32])
def test_a_history_shorter_than_the_kernel_is_refused(channels, n):
    """The C kernel would read past it."""
    state = History.extended(None, torch.randn(2, n, channels), 1)
    with pytest.raises(ValueError, match="^5 taps need 4 earlier positions: History.extended"):
        state.convolve(torch.ones(2, n, 1, 5))


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("channels", [2, 32])
def test_a_kernel_of_another_dtype_is_refused(channels, n):
    state = History.extended(None, torch.randn(2, n, channels).bfloat16(), 4)
    with pytest.raises((TypeError, RuntimeError), match="(?i)bfloat16"):
        state.convolve(torch.ones(2, n, 1, 5))
