"""The check of the exercise on position embeddings."""

from collections.abc import Callable

import torch
from torch import Tensor


def _sinusoids(t: Tensor, channels: int, *, last: int = 1) -> Tensor:
    """(T, C) of positions t (T,) in float64; the rates end at 10,000 ** (last / (C / 2) - 1)."""
    half = channels // 2
    rate = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / (half - last))
    angle = t.double()[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def _turned(p: Tensor, shift: Tensor) -> Tensor:
    """Each pair of channels i and C / 2 + i of p (T, C), turned by what `shift` (1, C) has."""
    (s, c), (a, b) = p.chunk(2, dim=1), shift.chunk(2, dim=1)
    return torch.cat([s * b + c * a, c * b - s * a], dim=1)


def moved_positions(mine: Callable[[Tensor, int], Tensor]) -> None:
    """mine(p, k) is row n of p (T, C), sinusoids of a position t_n, moved on to t_n + k.

    The channels are C / 2 sines, then as many cosines, of rates from 1 to 1 / 10,000.
    """
    cases = [([0, 1, 2, 3, 4], 8, 2), ([7, 8, 9], 16, -3), ([40, 3, 11, 3], 6, 25)]
    for positions, C, k in cases:
        t, by = torch.tensor(positions), torch.tensor([k])
        p = _sinusoids(t, C)
        out, right = mine(p.clone(), k), _sinusoids(t + k, C)
        case = f"positions {positions}, C = {C}, k = {k}: "
        if not isinstance(out, Tensor):
            raise AssertionError(f"it returns a {type(out).__name__}, not a tensor")
        if out.shape != right.shape:
            raise AssertionError(f"{case}shape {tuple(out.shape)}, not {tuple(right.shape)}")
        pairs = p.unflatten(1, (-1, 2)).mT.flatten(1)  # as if sine and cosine stood side by side
        neighbours = _turned(pairs, _sinusoids(by, C)).unflatten(1, (2, -1)).mT.flatten(1)
        (s, c), (a, b) = p.chunk(2, dim=1), _sinusoids(by, C).chunk(2, dim=1)
        faults = [
            (p, "nothing has moved"),
            (p.roll(-k, 0), "rows are not neighbours in time: turn each row, do not shift them"),
            (p.roll(k, 0), "rows are not neighbours in time: turn each row, do not shift them"),
            (_sinusoids(t - k, C), f"moved by {-k}, not {k}: it turns the wrong way"),
            (p + _sinusoids(by, C), "sin(a + b) is not sin a + sin b"),
            (
                torch.cat([s * b + c * a, c * b + s * a], dim=1),
                "cos(a + b) is cos a cos b - sin a sin b: mind the minus",
            ),
            (
                torch.cat([s * b - c * a, c * b - s * a], dim=1),
                "sin(a + b) is sin a cos b + cos a sin b: mind the plus",
            ),
            (_sinusoids(torch.arange(len(t)) + k, C), "the first row need not be position 0"),
            (
                _turned(p, _sinusoids(by, C, last=0)),
                "the rates are those of an exponent i / (C / 2), not i / (C / 2 - 1)",
            ),
            (neighbours, "the partner of channel i is C / 2 + i, not its neighbour"),
            (
                torch.cat(right.chunk(2, dim=1)[::-1], dim=1),
                "cosines come first: the halves are exchanged",
            ),
        ]
        if not _near(out, right):
            for wrong, why in faults:
                if _near(out, wrong):
                    raise AssertionError(case + why)
            n, c = (~torch.isclose(out.double(), right, atol=1e-4)).nonzero()[0].tolist()
            raise AssertionError(
                f"{case}differ first at [{n}, {c}]: mine {out[n, c]:.4f}, theirs {right[n, c]:.4f}"
            )
    print(f"right: {len(cases)} tables of positions")


def _near(a: Tensor, b: Tensor) -> bool:
    """As near as angles in float32 can be."""
    return torch.allclose(a.double(), b, atol=1e-4)
