"""The check of the exercise on prefix sums accepts the right, and says what is wrong."""

import pytest
import torch
import torch.nn.functional as F

from dynconv.teach import check


def table_of(image):
    return F.pad(image.cumsum(dim=0).cumsum(dim=1), (1, 0, 1, 0))


def four_look_ups(image, boxes):
    S = table_of(image)
    top, left, low, right = boxes.unbind(dim=1)
    return S[low + 1, right + 1] - S[top, right + 1] - S[low + 1, left] + S[top, left]


def flat_look_ups(image, boxes):
    S = table_of(image)
    top, left, low, right = (boxes + torch.tensor([0, 0, 1, 1])).unbind(dim=1)
    at = torch.stack([low, top, low, top]) * S.shape[1] + torch.stack([right, right, left, left])
    signs = torch.tensor([1, -1, -1, 1]).to(image)
    return signs @ S.flatten()[at]


def table_by_rows(image, boxes):
    S = image.new_zeros(image.shape[0] + 1, image.shape[1] + 1)
    rows = [S[0]]
    for row in image:
        rows.append(rows[-1] + F.pad(row.cumsum(dim=0), (1, 0)))
    S = torch.stack(rows)
    top, left, low, right = boxes.T
    strip = S[low + 1] - S[top]  # refused below for its size
    return strip.gather(1, torch.stack([right + 1, left], dim=1)) @ image.new_tensor([1, -1])


def table_by_rows_looked_up(image, boxes):
    rows = [image.new_zeros(image.shape[1] + 1)]
    for row in image:
        rows.append(rows[-1] + F.pad(row.cumsum(dim=0), (1, 0)))
    S = torch.stack(rows)
    top, left, low, right = boxes.T
    return S[low + 1, right + 1] - S[top, right + 1] - S[low + 1, left] + S[top, left]


def without_the_corner(image, boxes):
    S = table_of(image)
    top, left, low, right = boxes.unbind(dim=1)
    return S[low + 1, right + 1] - S[top, right + 1] - S[low + 1, left]


def corner_taken_away(image, boxes):
    S = table_of(image)
    return without_the_corner(image, boxes) - S[boxes[:, 0], boxes[:, 1]]


def last_left_out(image, boxes):
    S = table_of(image)
    top, left, low, right = boxes.unbind(dim=1)
    return S[low, right] - S[top, right] - S[low, left] + S[top, left]


def first_left_out(image, boxes):
    S = table_of(image)[1:, 1:]
    top, left, low, right = boxes.unbind(dim=1)
    return S[low, right] - S[top, right] - S[low, left] + S[top, left]


def wrapped(image, boxes):
    S = table_of(image)[1:, 1:]
    top, left, low, right = boxes.unbind(dim=1)
    return S[low, right] - S[top - 1, right] - S[low, left - 1] + S[top - 1, left - 1]


def exchanged(image, boxes):
    return four_look_ups(image.T, boxes)


def exchanged_in_a_rectangle(image, boxes):
    right = image.shape[0] == image.shape[1]
    return four_look_ups(image, boxes) if right else exchanged(image, boxes)


def rows_only(image, boxes):
    S = F.pad(image.cumsum(dim=1), (1, 0))
    return S[boxes[:, 2], boxes[:, 3] + 1] - S[boxes[:, 0], boxes[:, 1]]


def in_float32(image, boxes):
    S = torch.zeros(image.shape[0] + 1, image.shape[1] + 1)
    S[1:, 1:] = image.cumsum(dim=0).cumsum(dim=1)
    top, left, low, right = boxes.unbind(dim=1)
    return S[low + 1, right + 1] - S[top, right + 1] - S[low + 1, left] + S[top, left]


def loop_over_boxes(image, boxes):
    S = table_of(image)
    return torch.stack(
        [
            S[low + 1, right + 1] - S[top, right + 1] - S[low + 1, left] + S[top, left]
            for top, left, low, right in boxes.tolist()
        ]
    )


def by_masks(image, boxes):
    y, x = (torch.arange(size) for size in image.shape)
    top, left, low, right = boxes[:, :, None].unbind(dim=1)
    rows, columns = (top <= y) & (y <= low), (left <= x) & (x <= right)
    return ((rows[:, :, None] & columns[:, None]) * image).sum(dim=(1, 2))


def corners(table=table_of, order=(0, 1, 2, 3), far=(1, 1), strip=(1, 1)):
    """The solution with a mistake."""

    def answer(image, boxes):
        S, (top, left, low, right) = table(image), boxes[:, order].T
        strips = S[top, right + strip[1]] + S[low + strip[0], left]
        return S[low + far[0], right + far[1]] - strips + S[top, left]

    return answer


def changes(which):
    def answer(*given):
        out = four_look_ups(*given)
        given[which].add_(1)
        return out

    return answer


@pytest.mark.parametrize(
    "right", [four_look_ups, corners(), flat_look_ups, table_by_rows_looked_up]
)
def test_accepts(right, capsys):
    check.summed_area(right)
    assert capsys.readouterr().out == "right: values and gradients on 3 images\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda image, boxes: None, "returns a NoneType, not a tensor"),
        (lambda image, boxes: image.sum(), r"7 x 7: mine has shape \(\), not \(40,\)"),
        (without_the_corner, "7 x 7, .*in both strips: add it back$"),
        (corner_taken_away, "add it back, do not take it away"),
        (last_left_out, "rows 0 to 6, columns 0 to 6: .* the last row and column belong"),
        (first_left_out, "rows 0 to 6, columns 0 to 6: .* the first row and column belong"),
        (wrapped, "columns 0 to 6: .* index -1 is the last row"),
        (exchanged, "7 x 7, .* rows and columns are exchanged"),
        (exchanged_in_a_rectangle, "5 x 9: it looks outside its table: index"),
        (rows_only, r"7 x 7, rows 0 to 6, columns 0 to 6: mine [-.\d]+, not [-.\d]+$"),
        (corners(order=(0, 2, 1, 3)), "7 x 7, .*: a box is first row, first column, last row"),
        (corners(far=(0, 1), strip=(0, 1)), "7 x 7, .*: the last row belongs to the box"),
        (corners(far=(1, 0), strip=(1, 0)), "7 x 7, .*: the last column belongs to the box"),
        (corners(strip=(0, 0)), "7 x 7, .*: a strip, too, ends with the last row or column"),
        (corners(lambda z: F.pad(table_of(z)[1:, 1:], (0, 1, 0, 1))), "zeros stand before the"),
        (corners(lambda z: F.pad(z.cumsum(0), (1, 0, 1, 0))), "along dim 0 only: along dim 1"),
        (corners(lambda z: F.pad(z.cumsum(1), (1, 0, 1, 0))), "along dim 1 only: along dim 0"),
        (changes(0), "it changes `image` in place"),
        (changes(1), "it changes `boxes` in place"),
        (in_float32, "as float32 they agree: mind the dtype"),
        (lambda image, boxes: four_look_ups(image.detach(), boxes), "7 x 7: gradients"),
        (loop_over_boxes, "2,000 boxes: .* a loop over the boxes"),
        (by_masks, "a tensor of 4,000,000 numbers; a box needs 4"),
        (table_by_rows, "a tensor of 102,000 numbers"),
    ],
    ids=[
        "nothing",
        "shape",
        "corner left out",
        "corner taken away",
        "last left out",
        "first left out",
        "wrapped",
        "exchanged",
        "exchanged in a rectangle",
        "rows only",
        "order",
        "last row left out",
        "last column left out",
        "short strips",
        "zeros behind",
        "down only",
        "along only",
        "image changed",
        "boxes changed",
        "float32",
        "detached",
        "loop",
        "masks",
        "strips",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message) as error:
        check.summed_area(wrong)
    assert ("float32" in str(error.value)) == ("float32" in message)
