"""The check of the exercise on prefix sums."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.teach.check.cost import Cost
from dynconv.teach.check.inputs import left_alone
from dynconv.teach.compare import compare

MOST = 500
"""tensor operations, for 2,000 boxes"""
LARGEST = 40_000
"""numbers in one tensor, for 2,000 boxes in an image of 40 x 50"""


def summed_area(mine: Callable[[Tensor, Tensor], Tensor]) -> None:
    """mine(image, boxes) sums each box of an image (Y, X) by a table, without a loop over boxes.

    boxes (N, 4) are the first row, first column, last row and last column, all inside the box.
    """
    shapes = [(7, 7), (5, 9), (1, 6)]
    for Y, X in shapes:
        image, boxes = _inputs(Y, X, 40)
        where = f"an image of {Y} x {X}"
        _compare_values(mine, image, boxes, where)
        try:
            compare(mine, _by_slices, image, boxes)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from None
    image, boxes = _inputs(40, 50, 2000)
    with Cost() as cost:
        mine(image, boxes)
    if cost.operations > MOST:
        raise AssertionError(f"2,000 boxes: {cost.operations:,} operations, a loop over the boxes")
    if cost.largest > 8 * LARGEST:
        raise AssertionError(
            f"2,000 boxes in 40 x 50: a tensor of {cost.largest // 8:,} numbers; a box needs 4"
        )
    print(f"right: values and gradients on {len(shapes)} images")


def _inputs(Y: int, X: int, N: int) -> tuple[Tensor, Tensor]:
    """A random image and N boxes: the whole of it, its corners and random ones."""
    seed = torch.Generator().manual_seed(Y)
    image = torch.randn(Y, X, generator=seed, dtype=torch.float64)
    rows = torch.randint(Y, (N - 5, 2), generator=seed).sort(dim=1).values
    columns = torch.randint(X, (N - 5, 2), generator=seed).sort(dim=1).values
    some = torch.stack([rows[:, 0], columns[:, 0], rows[:, 1], columns[:, 1]], dim=1)
    corners = [[y, x, y, x] for y in (0, Y - 1) for x in (0, X - 1)]
    return image, torch.cat([torch.tensor([[0, 0, Y - 1, X - 1], *corners]), some])


def _by_slices(image: Tensor, boxes: Tensor) -> Tensor:
    return torch.stack(
        [image[top : low + 1, left : right + 1].sum() for top, left, low, right in boxes.tolist()]
    )


def _faults(image: Tensor, boxes: Tensor) -> dict[str, Tensor]:
    """What usual mistakes give."""
    table = image.cumsum(dim=0).cumsum(dim=1)
    padded = F.pad(table, (1, 0, 1, 0))
    top, left, low, right = boxes.unbind(dim=1)

    def corners(S, top, left, low, right, both=1):
        return S[low, right] - S[top, right] - S[low, left] + both * S[top, left]

    inside = top, left, low + 1, right + 1
    along = [F.pad(image.cumsum(dim=dim), (1, 0, 1, 0)) for dim in (0, 1)]
    strips = padded[top, right] + padded[low, left]
    faults = {
        "the corner before the box is in both strips: add it back": corners(padded, *inside, 0),
        "the corner before the box is in both strips: add it back, do not take it away": corners(
            padded, *inside, -1
        ),
        "the last row and column belong to the box": corners(padded, top, left, low, right),
        "the first row and column belong to the box": corners(
            padded, top + 1, left + 1, low + 1, right + 1
        ),
        "index -1 is the last row or column of the table, not a row of zeros": corners(
            table, top - 1, left - 1, low, right
        ),
        "the last row belongs to the box": corners(padded, top, left, low, right + 1),
        "the last column belongs to the box": corners(padded, top, left, low + 1, right),
        "a strip, too, ends with the last row or column of the box": (
            padded[low + 1, right + 1] - strips + padded[top, left]
        ),
        "the zeros stand before the table, not behind it": corners(
            F.pad(table, (0, 1, 0, 1)), *inside
        ),
        "the table is summed along dim 0 only: along dim 1, too": corners(along[0], *inside),
        "the table is summed along dim 1 only: along dim 0, too": corners(along[1], *inside),
    }
    if image.shape[0] == image.shape[1]:
        faults["rows and columns are exchanged"] = _by_slices(image.T, boxes)
        faults["a box is first row, first column, last row, last column"] = corners(
            padded, top, low, left + 1, right + 1
        )
    return faults


def _compare_values(mine, image: Tensor, boxes: Tensor, where: str) -> None:
    given = image.clone(), boxes.clone()
    try:
        got = mine(*given)
    except IndexError as error:
        raise AssertionError(f"{where}: it looks outside its table: {error}") from None
    left_alone(("image", "boxes"), given, (image, boxes))
    if not isinstance(got, Tensor):
        raise AssertionError(f"it returns a {type(got).__name__}, not a tensor")
    right = _by_slices(image, boxes)
    if got.shape != right.shape:
        raise AssertionError(f"{where}: mine has shape {tuple(got.shape)}, not {(*right.shape,)}")
    wrong = ~torch.isclose(got.double(), right, rtol=1e-9, atol=1e-12)
    if not wrong.any():
        return
    n = int(wrong.nonzero()[0])
    top, left, low, last = boxes[n].tolist()
    box = f"rows {top} to {low}, columns {left} to {last}"
    why = ""
    if torch.allclose(got.double(), right, rtol=1e-4, atol=1e-5):
        why = "; as float32 they agree: mind the dtype"
    for hint, fault in _faults(image, boxes).items():
        if torch.allclose(got.double(), fault):
            why = f": {hint}"
            break
    raise AssertionError(f"{where}, {box}: mine {got[n]:.6g}, not {right[n]:.6g}{why}")
