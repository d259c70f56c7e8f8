"""Checks the exercise on prefix sums: a summed-area table, their version in two dimensions."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.teach.check.cost import Cost
from dynconv.teach.judge import Wrong, attempt, judge

MOST = 500
"""tensor operations, for 2,000 boxes"""
LARGEST = 40_000
"""maximum elements of a tensor, for 2,000 boxes in an image of 40 x 50"""


def summed_area(mine: Callable[[Tensor, Tensor], Tensor]) -> None:
    """mine(image, boxes) sums each box of an image (Y, X) by a table, without a loop over boxes.

    boxes (N, 4): first row, first column, last row, last column, all inclusive.
    """

    def box(image: Tensor, boxes: Tensor, at: tuple[int]) -> str:
        return "rows {0} to {2}, columns {1} to {3}".format(*boxes[at].tolist())

    shapes = [(7, 7), (5, 9), (1, 6)]
    judge(
        mine,
        sum_slices,
        {f"an image of {Y} x {X}": image_and_boxes(Y, X, 40) for Y, X in shapes},
        box_faults,
        gradients=True,
        place=box,
        raises={IndexError: "it looks outside its table"},
    )
    with Cost() as cost:
        attempt(partial(mine, *image_and_boxes(40, 50, 2000)))
    if cost.operations > MOST:
        raise Wrong(f"2,000 boxes: {cost.operations:,} operations, a loop over the boxes")
    if cost.largest > 8 * LARGEST:
        numbers = f"{cost.largest // 8:,} numbers"
        raise Wrong(f"2,000 boxes in 40 x 50: a tensor of {numbers}; a box needs 4")
    print(f"right: values and gradients on {len(shapes)} images")


def image_and_boxes(Y: int, X: int, N: int) -> tuple[Tensor, Tensor]:
    """Return a random image and N boxes: the whole image, its corners and random ones."""
    seed = torch.Generator().manual_seed(Y)
    image = torch.randn(Y, X, generator=seed, dtype=torch.float64)
    rows = torch.randint(Y, (N - 5, 2), generator=seed).sort(dim=1).values
    columns = torch.randint(X, (N - 5, 2), generator=seed).sort(dim=1).values
    some = torch.stack([rows[:, 0], columns[:, 0], rows[:, 1], columns[:, 1]], dim=1)
    corners = [[y, x, y, x] for y in (0, Y - 1) for x in (0, X - 1)]
    return image, torch.cat([torch.tensor([[0, 0, Y - 1, X - 1], *corners]), some])


def sum_slices(image: Tensor, boxes: Tensor) -> Tensor:
    """Return the sum of each box by adding its elements."""
    return torch.stack(
        [image[top : low + 1, left : right + 1].sum() for top, left, low, right in boxes.tolist()]
    )


def box_faults(image: Tensor, boxes: Tensor) -> Iterator:
    """Yield what common mistakes return."""
    table = image.cumsum(dim=0).cumsum(dim=1)
    padded = F.pad(table, (1, 0, 1, 0))
    top, left, low, last = boxes.T
    whole = top, left, low + 1, last + 1

    def corners(S, top, left, low, last, both=1):
        return S[low, last] - S[top, last] - S[low, left] + both * S[top, left]

    add = "the corner before the box is in both strips: add it back"
    yield add, corners(padded, *whole, both=0)
    yield f"{add}, do not take it away", corners(padded, *whole, both=-1)
    yield "the last row and column belong to the box", corners(padded, top, left, low, last)
    inner = corners(padded, top + 1, left + 1, low + 1, last + 1)
    yield "the first row and column belong to the box", inner
    wrapped = corners(table, top - 1, left - 1, low, last)
    yield "index -1 is the last row or column of the table, not a row of zeros", wrapped
    yield "the last row belongs to the box", corners(padded, top, left, low, last + 1)
    yield "the last column belongs to the box", corners(padded, top, left, low + 1, last)
    short = corners(padded, top, left, low, last) + padded[low + 1, last + 1] - padded[low, last]
    yield "strips also end with the last row or column of the box", short
    behind = corners(F.pad(table, (0, 1, 0, 1)), *whole)
    yield "the table is padded with zeros at its start, not at its end", behind
    for dim in (0, 1):
        along = F.pad(image.cumsum(dim=dim), (1, 0, 1, 0))
        why = f"the table is summed along dim {dim} only: also sum it along dim {1 - dim}"
        yield why, corners(along, *whole)
    if image.shape[0] == image.shape[1]:
        yield "rows and columns are exchanged", sum_slices(image.T, boxes)
        order = "a box is first row, first column, last row, last column"
        yield order, corners(padded, top, low, left + 1, last + 1)
