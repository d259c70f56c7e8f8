"""Judges a function by the right one: what it returns, its gradients, and the likely mistake."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import Parameter, signature
from itertools import takewhile
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
import torch
from torch import Tensor

EXACT = (1e-9, 1e-12)
"""relative and absolute tolerance in float64: sums in another order differ by some 1e-16"""
FLOAT32 = (1e-5, 1e-6)
"""relative and absolute tolerance in float32"""

Cases = Mapping[str, Sequence[Any]]
Faults = Mapping[str, Callable] | Callable[..., Iterable[tuple[str, Any]]]


class Wrong(AssertionError):
    """What is wrong with an answer, in one line. Notebooks show that line and no traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class NotBegun(Wrong):
    """The line for an exercise whose function is still the one that the lesson printed."""


@contextmanager
def labelled(label: str) -> Iterator[None]:
    """Begin the message of a `Wrong` that is raised inside with the label, if there is one."""
    try:
        yield
    except NotBegun:
        raise
    except Wrong as wrong:
        raise Wrong(f"{label}: {wrong}" if label else str(wrong)) from wrong.__cause__


def judge(
    mine: Callable,
    right: Callable,
    cases: Cases,
    faults: Faults | None = None,
    *,
    explain: Callable[..., str] | None = None,
    gradients: bool = False,
    tolerance: tuple[float, float] = EXACT,
    place: Callable[..., str] | None = None,
    raises: Mapping[type[Exception], str] | None = None,
    hints: Mapping[str, str] | None = None,
    in_place: bool = False,
) -> None:
    """Compare mine(*inputs) with right(*inputs) for every case {label: inputs}.

    Raises `Wrong` at the first difference. An answer must be of the kind that `right` returns: a
    tensor, a number, a list, or a NamedTuple of these. The parameters of `right` name the inputs,
    and those that are keyword-only are passed by name. `mine` must leave its inputs as they are.

    faults      {sentence: a function with that mistake}, or a function of *inputs that yields pairs
                (sentence, what that mistake returns). The first sentence whose mistake returns the
                same as `mine` ends the message.
    explain     a function of (answer, right answer, *inputs) that returns the sentence for an
                answer with none of the faults, or ""
    gradients   also compare the gradients of all floating-point inputs, in float64
    tolerance   relative and absolute. A float32 tolerance accepts every floating-point dtype.
    place       a function of (*inputs, index) that names a place in a tensor
    raises      {exception: what it means}, for exceptions that have a likely cause
    hints       {input: what to say if its gradient is wrong}
    in_place    whether `mine` may change its inputs
    """
    for label, values in cases.items():
        names, by_name = parameter_names(right, len(values))
        inputs = dict(zip(names, map(as_leaf, values) if gradients else values, strict=True))
        given = {name: copy_value(value) for name, value in inputs.items()}
        with labelled(label):
            answer = attempt(partial(invoke, mine, given, by_name), raises)
            if not in_place:
                check_unchanged(given, inputs)
            expected = invoke(right, inputs, by_name)
            answer = require_type_of(answer, expected, any_float=tolerance[0] >= FLOAT32[0])
            where = place and partial(place, *inputs.values())
            if text := describe_difference(answer, expected, tolerance, where):
                both = answer, expected
                raise Wrong(text + find_explanation(*both, faults, explain, inputs, tolerance))
            if gradients:
                compare_gradients(answer, expected, inputs, hints or {}, tolerance)


def invoke(function: Callable, inputs: Mapping[str, Any], by_name: set[str]) -> Any:
    """Return function(*inputs), with the inputs of `by_name` as keyword arguments."""
    positional = [value for name, value in inputs.items() if name not in by_name]
    return function(*positional, **{name: inputs[name] for name in by_name})


def same(mine: Callable, theirs: Callable, *inputs: Tensor, rtol: float = EXACT[0]) -> None:
    """Compare values, and the gradients of floating-point inputs, in float64; print what agrees.

    AssertionError names the first index where the two functions differ, and both numbers.
    """
    judge(mine, theirs, {"": inputs}, gradients=True, tolerance=(rtol, EXACT[1]))
    count = sum(x.is_floating_point() for x in inputs)
    print(f"values and {count} gradient{'s' * (count != 1)} agree")


def attempt(call: Callable[[], Any], raises: Mapping[type[Exception], str] | None = None) -> Any:
    """Return call(); an exception of the learner's code becomes a `Wrong` that names its line.

    A NotImplementedError without a message is the one in an exercise that nobody has begun.
    """
    try:
        return call()
    except Wrong:
        raise
    except Exception as error:
        frames = extract_tb(error.__traceback__)
        package = str(Path(__file__).parent)
        frames = [frame for frame in frames if not frame.filename.startswith(package)]
        learners = [frame for frame in frames if frame.filename == frames[0].filename]
        if isinstance(error, NotImplementedError) and not error.args and learners:
            raise NotBegun(f"{learners[-1].name} is not written yet") from error
        line = f" in line {learners[-1].lineno} of {learners[-1].name}" if learners else ""
        message = str(error).partition("\n")[0]
        why = [text for known, text in (raises or {}).items() if isinstance(error, known)]
        text = "; ".join([f"it raises {type(error).__name__}{line}: {message}", *why])
        raise Wrong(text) from error


def parameter_names(function: Callable, count: int) -> tuple[list[str], set[str]]:
    """Return the names of the first `count` parameters, and which of them are keyword-only."""
    try:
        declared = signature(function).parameters.values()
    except ValueError:  # a built-in function
        declared = []
    named = [*takewhile(lambda p: p.kind is not Parameter.VAR_POSITIONAL, declared)][:count]
    names = [p.name for p in named] + [f"input {i}" for i in range(len(named), count)]
    return names, {p.name for p in named if p.kind is Parameter.KEYWORD_ONLY}


def as_leaf(value: Any) -> Any:
    """Return a floating-point tensor as a float64 leaf that wants a gradient, all else as it is."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_()
    return value


def copy_value(value: Any) -> Any:
    """Return a copy of tensors and of containers of them; the copy of a leaf is not a leaf."""
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) in (list, set):
        return type(value)(map(copy_value, value))
    return value


def check_unchanged(given: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Raise `Wrong`, with its name, for the first input that has changed."""
    for name, now in given.items():
        if not is_near(now, before[name], 0, 0):
            raise Wrong(f"it changes `{name}` in place: work on a copy")


def describe_type(value: Any) -> str:
    """Return what a value is, as in "an ndarray"."""
    if value is None:
        return "None"
    name = "tensor" if isinstance(value, Tensor) else type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def require_type_of(
    value: Any, right: Any, what: str = "it returns", any_float: bool = False
) -> Any:
    """Return the value in the form of the right one; raise `Wrong` if its type differs."""
    if isinstance(right, Tensor):
        if not isinstance(value, Tensor):
            raise Wrong(f"{what} {describe_type(value)}, not a tensor")
        if value.shape != right.shape:
            shapes = tuple(value.shape), tuple(right.shape)
            raise Wrong(f"{what} a tensor of shape {shapes[0]}, not {shapes[1]}")
        floats = value.is_floating_point() and right.is_floating_point()
        if value.dtype != right.dtype and not (any_float and floats):
            raise Wrong(f"{what} a tensor of {value.dtype}, not {right.dtype}: mind the dtype")
    elif isinstance(right, float | int):
        if isinstance(value, Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1:
            value = value.item()
        expected = (int, "an int") if isinstance(right, int) else (float | int, "a number")
        if not isinstance(value, expected[0]):
            raise Wrong(f"{what} {describe_type(value)}, not {expected[1]}")
    elif isinstance(right, tuple):
        parts = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(parts, tuple | list) or len(parts) != len(right):
            raise Wrong(f"{what} {describe_type(value)}, not ({', '.join(right._fields)})")
        named = zip(parts, right, right._fields, strict=True)
        value = type(right)(
            *(require_type_of(a, b, f"{name} is", any_float) for a, b, name in named)
        )
    elif not isinstance(value, type(right)):
        raise Wrong(f"{what} {describe_type(value)}, not {describe_type(right)}")
    return value


def describe_difference(
    mine: Any,
    right: Any,
    tolerance: tuple[float, float] = EXACT,
    place: Callable[[tuple[int, ...]], str] | None = None,
    what: str | None = None,
) -> str | None:
    """Return where two answers of one type differ first, with both numbers; None if they agree."""
    rtol, atol = tolerance
    if isinstance(right, tuple):
        named = zip(right._fields, mine, right, strict=True)
        texts = (
            describe_difference(a, b, tolerance, place, f"{name} differs") for name, a, b in named
        )
        return next(filter(None, texts), None)
    if is_near(mine, right, rtol, atol):
        return None
    if isinstance(right, Tensor):
        wrong = ~torch.isclose(mine.double(), right.double(), rtol=rtol, atol=atol)
        at = tuple(wrong.nonzero()[0].tolist())
        where = f" first at {place(at) if place else list(at)}" if at else ""
        return f"{what or 'values differ'}{where}: mine {mine[at]:.6g}, right {right[at]:.6g}"
    if isinstance(right, list):
        pairs = enumerate(zip(mine, right, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(mine), len(right)))
        return f"values differ first at [{at}]: mine {short_repr(mine)}, right {short_repr(right)}"
    return f"{what or 'the value differs'}: mine {mine:.6g}, right {right:.6g}"


def short_repr(value: Any) -> str:
    """Return the repr, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_near(a: Any, b: Any, rtol: float, atol: float) -> bool:
    """Return whether two values are equal within a tolerance; in tensors NaN is equal to NaN."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        a, b = (z.detach().double() for z in (a, b))
        return a.shape == b.shape and torch.allclose(a, b, rtol, atol, equal_nan=True)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(lambda *z: is_near(*z, rtol, atol), a, b))
    if isinstance(a, float | int) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=rtol, abs_tol=atol)
    return a is b or (type(a) is type(b) and a == b)


def find_explanation(
    mine: Any,
    right: Any,
    faults: Faults | None,
    explain: Callable[..., str] | None,
    inputs: Mapping[str, Any],
    tolerance: tuple[float, float],
) -> str:
    """Return "; " and the sentence of the fault that returns the same as `mine`, or ""."""
    near = partial(is_near, rtol=max(tolerance[0], FLOAT32[0]), atol=max(tolerance[1], FLOAT32[1]))
    values = list(inputs.values())
    if isinstance(right, Tensor) and right.dtype == torch.float64 and near(mine, right):
        return "; in float32 they agree: mind the dtype"
    for why, wrong in faulty_results(faults or {}, values):
        if shows_fault(mine, right, wrong, near):
            return f"; {why}"
    why = explain(mine, right, *values) if explain else ""
    return f"; {why}" if why else ""


def faulty_results(faults: Faults, values: Sequence[Any]) -> Iterable[tuple[str, Any]]:
    """Return pairs (sentence, what that mistake returns for these inputs)."""
    if callable(faults):
        return faults(*values)
    return ((why, fault(*values)) for why, fault in faults.items())


def shows_fault(mine: Any, right: Any, wrong: Any, near: Callable[[Any, Any], bool]) -> bool:
    """Return whether `mine` has the values of a wrong answer.

    In a NamedTuple, every field that the mistake changes must agree, also the first wrong one.
    """
    if not isinstance(right, tuple):
        return near(mine, wrong)

    def changes(answer: tuple) -> list[int]:
        return [i for i in range(len(right)) if not near(answer[i], right[i])]

    changed = changes(wrong)
    first_is_known = any(i in changed for i in changes(mine)[:1])
    return first_is_known and all(near(mine[i], wrong[i]) for i in changed)


def compare_gradients(
    mine: Tensor,
    right: Tensor,
    inputs: Mapping[str, Any],
    hints: Mapping[str, str],
    tolerance: tuple[float, float],
) -> None:
    """Raise `Wrong` unless both answers pass the same gradient on to each float64 input."""
    leaves = {k: z for k, z in inputs.items() if isinstance(z, Tensor) and z.requires_grad}
    g = torch.randn(right.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def backward(out: Tensor) -> tuple[Tensor, ...]:
        # The zeros tie each input to the output, also where no tap meets it: its gradient is 0.
        tied = out + sum(0 * z.sum() for z in leaves.values())
        return torch.autograd.grad(tied, list(leaves.values()), g)

    theirs = backward(right)
    for name, a, b in zip(leaves, attempt(lambda: backward(mine)), theirs, strict=True):
        if text := describe_difference(a, b, tolerance, what=f"gradients of {name} differ"):
            raise Wrong("; ".join([text, *([hints[name]] if name in hints else [])]))


def label_sizes(**values: Any) -> str:
    """Return a case's label, such as "T = 5, pad_left = 2"."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())
