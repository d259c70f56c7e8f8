"""Checks the contract of a mixer: `step` agrees with `forward`, and no position sees padding or,
in a causal layer, a later position.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dynconv.layers.state import select_state


def check_mixer(build: Callable[[bool], nn.Module], channels: int) -> None:
    """Raise AssertionError, in one line that names the fault, unless a mixer keeps its contract.

    build(causal)  returns a new layer of x (B, T, channels)

    Padding at either end changes no real position. In a causal layer no position sees a later one,
    and `step` returns what `forward` does, in chunks of any size and from selected rows of a state,
    and leaves the state that it is given as it was. `step` raises ValueError when it is given no
    new position, and in a layer that looks ahead always. In train mode x and all parameters get
    finite gradients. Layers are tried in float64. Noise is added to their parameters first, because
    most leaks are multiples of a bias, which often starts as zero. `forward` and `step` are also
    tried under autocast, and gradients only there, because training may run in bfloat16.
    """
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(2, 9, channels, dtype=torch.float64, generator=draw)
    for causal in (False, True):
        layer = build(causal).double().eval()
        kind = f"{type(layer).__name__} with causal={causal}"
        with torch.no_grad(), named_errors(kind):
            for p in layer.parameters():
                p.add_(0.3 * torch.randn(p.shape, dtype=torch.float64, generator=draw))
            check_padding(layer, x, kind)
            if causal:
                check_causal(layer, x, kind)
            elif hasattr(layer, "step"):
                check_looking_ahead(layer, x, kind)
        with named_errors(f"{kind}: under autocast"), torch.autocast("cpu", torch.bfloat16):
            check_autocast(layer.float(), causal, x.float(), kind)


@contextmanager
def named_errors(fault: str) -> Iterator[None]:
    """Turn an error of the layer itself into an AssertionError of one line, after `fault`."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise AssertionError(f"{fault}: {type(error).__name__}: {first}") from error


def check_padding(layer: nn.Module, x: Tensor, kind: str) -> None:
    """Check that neither the content nor the amount of padding affects real positions."""
    if layer(x).shape != x.shape:
        raise AssertionError(f"{kind}: x {tuple(x.shape)} becomes {tuple(layer(x).shape)}")
    for side, kept in {"right": slice(0, 6), "left": slice(3, None)}.items():
        pad_mask = torch.ones(2, 9, dtype=torch.bool)
        pad_mask[:, kept] = False
        for content in (x, x.masked_fill(pad_mask.unsqueeze(-1), 7.0)):
            padded = layer(content, pad_mask)[:, kept]
            check_close(
                padded, layer(x[:, kept]), f"{kind}: real positions see padding on the {side}"
            )


def check_causal(layer: Any, x: Tensor, kind: str) -> None:
    """Check a causal layer: positions see no later one, and steps give what `forward` gives."""
    whole = layer(x)
    later = x.clone()
    later[:, 5:] += 1
    check_close(layer(later)[:, :5], whole[:, :5], f"{kind}: positions see later ones")
    for sizes in ([1] * 9, [4, 5], [2, 1, 6], [9]):
        check_steps(layer, x, whole, sizes, kind)
    if not refuses(layer, x[:, :0]):
        raise AssertionError(f"{kind}: step accepts no position: begin it with check_steppable")
    _, state = layer.step(x[:, :4])
    for end in (5, 5, 9, 9):  # the second step from the same state would show a change
        y, _ = layer.step(x[:, 4:end], state)
        check_close(y, whole[:, 4:end], f"{kind}: a step changes the state that it is given")
    rows = torch.tensor([1, 0, 0])
    y, _ = layer.step(x[rows, 4:], select_state(state, rows))
    check_close(
        y, whole[rows, 4:], f"{kind}: a step from selected rows of the state differs from forward"
    )


def check_looking_ahead(layer: Any, x: Tensor, kind: str) -> None:
    """Check a layer built with causal=False: it refuses steps, unless it never looks ahead."""
    later = x.clone()
    later[:, 5:] += 1
    if not torch.allclose(layer(later)[:, :5], layer(x)[:, :5]) and not refuses(layer, x):
        raise AssertionError(
            f"{kind}: step cannot look ahead as forward does: begin it with check_steppable"
        )


def refuses(layer: Any, x: Tensor) -> bool:
    """Return whether a step over x raises ValueError."""
    try:
        layer.step(x)
    except ValueError:
        return True
    return False


def check_steps(
    layer: Any, x: Tensor, whole: Tensor, sizes: list[int], kind: str, limit: float = 1e-6
) -> None:
    """Check that steps over chunks of x, of these sizes, give `whole`, the outputs of `forward`."""
    state, parts = None, []
    for part in x.split(sizes, dim=1):
        y, state = layer.step(part, state)
        if isinstance(state, Tensor) or not (hasattr(state, "_fields") or hasattr(state, "select")):
            raise AssertionError(
                f"{kind}: the state, a {type(state).__name__}, has no select(rows): return a "
                "NamedTuple of tensors with one row per sequence"
            )
        parts.append(y)
    fault = f"{kind}: steps of {sizes} positions differ from forward"
    check_close(torch.cat(parts, 1), whole, fault, limit)


def check_gradients(layer: nn.Module, x: Tensor, kind: str) -> None:
    """Check that x and each parameter that can be trained get a finite gradient."""
    x = x.clone().requires_grad_()
    inputs = {"x": x} | {name: p for name, p in layer.named_parameters() if p.requires_grad}
    y = layer(x)
    if not y.requires_grad:
        raise AssertionError(f"{kind}: x gets no gradient")
    found = torch.autograd.grad(y.sum(), [*inputs.values()], allow_unused=True)
    for name, gradient in zip(inputs, found, strict=True):
        if gradient is None:
            raise AssertionError(f"{kind}: {name} gets no gradient")
        if not gradient.isfinite().all():
            raise AssertionError(f"{kind}: the gradient of {name} is not finite")


def check_autocast(layer: nn.Module, causal: bool, x: Tensor, kind: str) -> None:
    """Check gradients with x in float32. With x in bfloat16, check that the layer runs and, if it
    is causal, that its steps agree.

    Under autocast, a layer may be given either.
    """
    check_gradients(layer.train(), x, kind)
    layer.eval()
    x = x.bfloat16()
    with torch.no_grad():
        whole = layer(x)
        if causal:
            check_steps(layer, x, whole, [1, 1, 7], f"{kind}: under autocast", limit=0.05)


def check_close(found: Tensor, expected: Tensor, fault: str, limit: float = 1e-6) -> None:
    """Raise AssertionError with the fault, in one line, if two tensors differ."""
    if found.shape != expected.shape:
        raise AssertionError(f"{fault}: shape {tuple(found.shape)}, not {tuple(expected.shape)}")
    difference = (found.double() - expected.double()).abs().max().item()
    if not difference <= limit * (1 + expected.abs().max().item()):
        raise AssertionError(f"{fault}: the difference is {difference:.2g}")
