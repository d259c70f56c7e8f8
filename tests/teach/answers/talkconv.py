"""Right and wrong answers to the exercises on TaLK."""

from functools import partial

import torch
import torch.nn.functional as F

from dynconv import ops


def table_of(image):
    return F.pad(image.cumsum(dim=0).cumsum(dim=1), (1, 0, 1, 0))


def corners(image, boxes, table=table_of):
    S, (top, left, low, right) = table(image), boxes.T
    strips = S[top, right + 1] + S[low + 1, left]
    return S[low + 1, right + 1] - strips + S[top, left]


def by_strips(image, boxes):
    """Right, but a whole strip of the table for each box."""
    S = table_of(image)
    top, left, low, right = boxes.T
    strip = S[low + 1] - S[top]
    return strip.gather(1, torch.stack([right + 1, left], dim=1)) @ image.new_tensor([1, -1])


def exchanged_in_a_rectangle(image, boxes):
    right = image.shape[0] == image.shape[1]
    return corners(image if right else image.T, boxes)


def rows_only(image, boxes):
    S = F.pad(image.cumsum(dim=1), (1, 0))
    return S[boxes[:, 2], boxes[:, 3] + 1] - S[boxes[:, 0], boxes[:, 1]]


def table_in_float32(image):
    S = torch.zeros(image.shape[0] + 1, image.shape[1] + 1)
    S[1:, 1:] = image.cumsum(dim=0).cumsum(dim=1)
    return S


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


def by_table(x, left, right, max_left, max_right, *, clamp=True):
    """Prefix sums, looked up between their entries."""
    T, C = x.shape[1:]
    right = torch.zeros_like(left) if right is None else right
    t = torch.arange(T)[:, None]
    table = F.pad(x.cumsum(dim=1), (0, 0, 1, 0))

    def look_up(place):
        place = (place.clamp(0, T) if clamp else place).repeat_interleave(C // left.shape[2], dim=2)
        low, high = (z.long() % (T + 1) for z in (place.floor(), place.ceil()))
        return torch.lerp(table.gather(1, low), table.gather(1, high), place - place.floor())

    total = look_up(t + 1 + right * max_right) - look_up(t - left * max_left)
    return total / (max_left + max_right + 1)


def by_autograd(g, x, left, right, max_left, max_right):
    inputs = [z.clone().requires_grad_() for z in (x, left, right)]
    out = ops.talk_conv(*inputs, max_left=max_left, max_right=max_right, impl="table")
    return torch.autograd.grad(out, inputs, g)


def changed(**change):
    """The right gradients, some of them replaced by a function of it and of all the inputs."""

    def answer(*inputs):
        parts = zip(("dx", "dleft", "dright"), by_autograd(*inputs), strict=True)
        return tuple(change.get(name, lambda z, *_: z)(z, *inputs) for name, z in parts)

    return answer


def where_cut(dleft, g, x, left, right, max_left, max_right):
    t = torch.arange(x.shape[1])[:, None]
    return dleft + (left * max_left > t)


def where_whole(dleft, g, x, left, right, max_left, max_right):
    return dleft + (left * max_left == (left * max_left).round())


def sums(x, left, right, max_left, max_right):
    y = ops.talk_conv(x, left, right, max_left=max_left, max_right=max_right)
    return y * (max_left + max_right + 1)


def by_ones(x, *window):
    return sums(x, *window) / sums(torch.ones_like(x), *window)


RIGHT = {
    "summed_area": [corners],
    "talk": [
        by_table,
        ops.talk.talk_conv_band,
        ops.talk.talk_conv_blocked,
        lambda *given: by_table(*given).float(),
    ],
    "talk_gradient": [by_autograd, lambda *z: list(by_autograd(*z))],
    "true_width": [by_ones],
}
WRONG = {
    "summed_area": [
        (exchanged_in_a_rectangle, "5 x 9: it raises IndexError.*; it looks outside its table"),
        (rows_only, r"7 x 7: .* rows 0 to 6, columns 0 to 6: mine [-.\d]+, right [-.\d]+$"),
        (
            lambda *z: corners(*z, table=table_in_float32).double(),
            "in float32 they agree: mind the dtype",
        ),
        (lambda image, boxes: corners(image.detach(), boxes), "7 x 7: gradients of image"),
        (loop_over_boxes, "2,000 boxes: .* a loop over the boxes"),
        (by_masks, "a tensor of 4,000,000 numbers; a box needs 4"),
        (by_strips, "a tensor of 102,000 numbers"),
    ],
    "talk": [
        (partial(by_table, clamp=False), "beyond both ends: .*; only where a window leaves"),
        (lambda x, a, b, L, R: by_table(x, a, b * 1, L, R), "causal: it raises TypeError.*None"),
        (lambda *z: by_table(*z).roll(1, 1), "^windows of whole words: values differ[^;]*$"),
    ],
    "talk_gradient": [
        (lambda *z: by_autograd(*z)[:2], r"it returns a tuple, not \(dx, dleft, dright\)"),
        (changed(dright=lambda z, *_: None), "dright is None, not a tensor"),
        (changed(dleft=lambda z, *_: z[..., 0]), r"dleft is a tensor of shape \(2, 7\), not"),
        (changed(dx=lambda z, *_: z.float()), "dx is a tensor of torch.float32, not torch.float64"),
        (changed(dx=lambda z, *_: -z, dleft=lambda z, *_: z + 1), "dx .*; the sign is turned$"),
        (changed(dleft=where_cut), "dleft .*; 0 where the sentence ends"),
        (changed(dleft=where_whole), "T = 9.*dleft .*; 0 where the distance is"),
        (
            lambda *z: [by_autograd(*z)[i] for i in (0, 2, 1)],
            r"dleft differs first at \[0, 0, 0\]: mine .*, right 0$",
        ),
    ],
    "true_width": [
        (
            lambda x, *w: sums(x, *w) / sums(torch.ones_like(x), *w).detach(),
            "gradients of left differ .* is it detached",
        ),
    ],
}
