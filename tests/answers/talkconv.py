"""Right and wrong answers to the exercises on TaLK."""

from functools import partial

import torch
import torch.nn.functional as F

from dynconv import ops


def table_of(image):
    return F.pad(image.cumsum(dim=0).cumsum(dim=1), (1, 0, 1, 0))


def corners(table=table_of, order=(0, 1, 2, 3), near=0, far=(1, 1), strip=(1, 1), both=1):
    """The four look-ups of a box; the options make mistakes."""

    def answer(image, boxes):
        S, (top, left, low, right) = table(image), boxes[:, order].T
        top, left = top + near, left + near
        strips = S[top, right + strip[1]] + S[low + strip[0], left]
        return S[low + far[0], right + far[1]] - strips + both * S[top, left]

    return answer


def flat_look_ups(image, boxes):
    S = table_of(image)
    top, left, low, right = (boxes + torch.tensor([0, 0, 1, 1])).unbind(dim=1)
    at = torch.stack([low, top, low, top]) * S.shape[1] + torch.stack([right, right, left, left])
    signs = torch.tensor([1, -1, -1, 1]).to(image)
    return signs @ S.flatten()[at]


def table_by_rows(image):
    rows = [image.new_zeros(image.shape[1] + 1)]
    for row in image:
        rows.append(rows[-1] + F.pad(row.cumsum(dim=0), (1, 0)))
    return torch.stack(rows)


def by_strips(image, boxes):
    """Right, but a whole strip of the table for each box."""
    S = table_by_rows(image)
    top, left, low, right = boxes.T
    strip = S[low + 1] - S[top]
    return strip.gather(1, torch.stack([right + 1, left], dim=1)) @ image.new_tensor([1, -1])


def exchanged_in_a_rectangle(image, boxes):
    right = image.shape[0] == image.shape[1]
    return corners()(image if right else image.T, boxes)


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


def changes(answer, which):
    """A right answer that changes one of its inputs."""

    def changing(*given):
        out = answer(*given)
        with torch.no_grad():
            given[which].mul_(2).add_(1)
        return out

    return changing


def kernel(share=lambda z: z.clamp(0, 1), pad=lambda L, R: L, reach=lambda L, R: (L, R)):
    """The shares of the words in reach, as a DynamicConv's kernel; the options make mistakes."""

    def answer(x, left, right, L, R):
        d, (by_left, by_right) = torch.arange(-L, R + 1), reach(L, R)
        right = torch.zeros_like(left) if right is None else right
        smaller = torch.minimum(
            1 + d + left[..., None] * by_left, 1 - d + right[..., None] * by_right
        )
        return ops.dynamic_conv(x, share(smaller) / len(d), pad_left=pad(L, R))

    return answer


def by_table(
    x, left, right, max_left, max_right, *, clamp=True, edge=lambda p: p, end=0, repeat="bthr->bthr"
):
    """Prefix sums, looked up between their entries; the options make mistakes."""
    T, C = x.shape[1:]
    right = torch.zeros_like(left) if right is None else right
    t = torch.arange(T)[:, None]
    table = F.pad(x.cumsum(dim=1), (0, 0, 1, 0))

    def look_up(place):
        place = edge(place.clamp(0, T) if clamp else place)[..., None]
        place = torch.einsum(repeat, place.expand(*place.shape[:3], C // left.shape[2])).flatten(2)
        low, high = (z.long() % (T + 1) for z in (place.floor(), place.ceil()))
        return torch.lerp(table.gather(1, low), table.gather(1, high), place - place.floor())

    total = look_up(t + 1 + right * max_right + end) - look_up(t - left * max_left)
    return total / (max_left + max_right + 1)


def mean_of_the_window(x, *others):
    return by_table(x, *others) / by_table(torch.ones_like(x), *others)


def exchanged(x, left, right, max_left, max_right):
    return by_table(x, *((left, right) if right is None else (right, left)), max_left, max_right)


def other_reaches(x, left, right, max_left, max_right):
    reaches = (max_left, max_right) if right is None else (max_right, max_left)
    return by_table(x, left, right, *reaches)


def offsets_rounded(x, left, right, L, R):
    right = torch.zeros_like(left) if right is None else (right * R).round() / max(R, 1)
    return by_table(x, (left * L).round() / L, right, L, R)


def by_autograd(g, x, left, right, max_left, max_right):
    inputs = [z.clone().requires_grad_() for z in (x, left, right)]
    out = ops.talk_conv(*inputs, max_left=max_left, max_right=max_right, impl="table")
    return torch.autograd.grad(out, inputs, g)


def by_hand(g, x, left, right, max_left, max_right, *, further=1, held=True, whole=True):
    """Matrices of shares; `further`, `held` and `whole` make the faults of an offset's gradient."""
    T, H, K = x.shape[1], left.shape[2], max_left + max_right + 1
    t = torch.arange(T)
    distances = [left * max_left, right * max_right]
    rooms = [t[:, None].expand_as(left), (T - 1 - t)[:, None].expand_as(left)]
    cut = [torch.minimum(d, room) for d, room in zip(distances, rooms, strict=True)]
    ahead = (t - t[:, None])[..., None]  # (T, T, 1)
    shares = (1 + ahead + cut[0][:, :, None]).clamp(0, 1)  # (B, T, T, H)
    shares = torch.minimum(shares, (1 - ahead + cut[1][:, :, None]).clamp(0, 1))
    heads = [z.unflatten(2, (H, -1)) for z in (g, x)]  # (B, T, H, R)
    dx = torch.einsum("btsh,bthr->bshr", shares, heads[0]).flatten(2) / K
    products = torch.einsum("bthr,bshr->btsh", *heads)
    grads = []
    sides = zip(distances, cut, rooms, (-1, 1), (max_left, max_right), strict=True)
    for distance, d, room, sign, reach in sides:
        place = d if held else distance
        token = t[:, None] + sign * (place.floor().long() + further)
        moves = (token >= 0) & (token < T) & (distance < room) if held else torch.tensor(True)
        if whole:
            moves = moves & (place != place.floor())
        picked = products.gather(2, token.clamp(0, T - 1)[:, :, None])[:, :, 0]  # (B, T, H)
        grads.append((picked * moves) * reach / K)
    return dx, *grads


def column_by_column(g, x, left, right, max_left, max_right):
    """Lists of numbers, one sentence and one head at a time."""
    (B, T, C), H = x.shape, left.shape[2]
    R, K = C // H, max_left + max_right + 1
    dx, dleft, dright = (torch.zeros_like(z) for z in (x, left, right))
    for b, t, h in torch.cartesian_prod(*map(torch.arange, (B, T, H))).tolist():
        c = slice(h * R, h * R + R)
        low = max(t - left[b, t, h].item() * max_left, 0)
        high = min(t + right[b, t, h].item() * max_right, T - 1)
        for s in range(T):
            share = min(1, max(0, 1 - low + s), max(0, 1 - s + high))
            dx[b, s, c] += share * g[b, t, c] / K
        if low % 1:
            dleft[b, t, h] = max_left / K * g[b, t, c] @ x[b, int(low), c]
        if high % 1:
            dright[b, t, h] = max_right / K * g[b, t, c] @ x[b, int(high) + 1, c]
    return [dx, dleft, dright]


def changed(**change):
    """The right gradients, some of them replaced by a function of it and of all the inputs."""

    def answer(*inputs):
        parts = zip(("dx", "dleft", "dright"), by_autograd(*inputs), strict=True)
        return tuple(change.get(name, lambda z, *_: z)(z, *inputs) for name, z in parts)

    return answer


def K_of(*inputs):
    return inputs[-2] + inputs[-1] + 1


def untransposed(dx, g, x, left, right, max_left, max_right):
    return ops.talk_conv(g, left, right, max_left=max_left, max_right=max_right)


def first_head(dx, g, x, left, right, *reach):
    return by_autograd(g, x, left[..., :1], right[..., :1], *reach)[0]


def interleaved(dx, g, x, left, *rest):
    order = torch.arange(6).view(-1, left.shape[2]).T.flatten()
    return by_autograd(g[..., order], x[..., order], left, *rest)[0][..., order.argsort()]


def sums(x, left, right, max_left, max_right):
    y = ops.talk_conv(x, left, right, max_left=max_left, max_right=max_right)
    return y * (max_left + max_right + 1)


def by_ones(x, *window):
    return sums(x, *window) / sums(torch.ones_like(x), *window)


def distances(left, right, max_left, max_right, cut=True):
    t = torch.arange(left.shape[1])[:, None]
    room = (t, len(t) - 1 - t) if cut else (1000, 1000)
    to_right = torch.zeros_like(left) if right is None else right * max_right
    return (left * max_left).clamp(max=room[0]), to_right.clamp(max=room[1])


def by_edges(x, left, *rest, cut=True, itself=1, round=lambda z: z, spread=None):
    """The width from the edges; the options make mistakes."""
    width = round(sum(distances(left, *rest, cut=cut)) + itself)
    R = x.shape[2] // left.shape[2]
    width = spread(width, R) if spread else width.repeat_interleave(R, 2)
    return sums(x, left, *rest) / width


def by_shares(x, left, right, max_left, max_right):
    to_left, to_right = distances(left, right, max_left, max_right)
    t = torch.arange(x.shape[1])
    ahead = (t - t[:, None])[None, :, :, None]  # (1, T, T, 1)
    share = torch.minimum(1 + ahead + to_left[:, :, None], 1 - ahead + to_right[:, :, None])
    share = share.clamp(0, 1)
    share = (share / share.sum(dim=2, keepdim=True)).permute(0, 3, 1, 2)  # (B, H, T, T)
    heads = x.unflatten(2, (left.shape[2], -1)).transpose(1, 2)
    return (share @ heads).transpose(1, 2).flatten(2)


RIGHT = {
    "summed_area": [corners(), flat_look_ups, corners(table_by_rows)],
    "talk": [
        kernel(),
        by_table,
        ops.talk.talk_conv_window,
        ops.talk.talk_conv_blocked,
        lambda *given: by_table(*given).float(),
    ],
    "talk_gradient": [by_autograd, by_hand, column_by_column],
    "true_width": [by_ones, by_edges, by_shares],
}
WHOLE = "^an image of 7 x 7: values differ first at rows 0 to 6, columns 0 to 6: mine .*; "
WORDS, INSIDE = "^windows of whole words: values differ", "^edges inside of words: values differ"
WRONG = {
    "summed_area": [
        (lambda image, boxes: image.sum(), r"7 x 7: it returns .* shape \(\), not \(40,\)"),
        (corners(both=0), "^an image of 7 x 7: .*in both strips: add it back$"),
        (corners(both=-1), "add it back, do not take it away"),
        (corners(far=(0, 0), strip=(0, 0)), f"{WHOLE}the last row and column belong"),
        (corners(near=1), f"{WHOLE}the first row and column belong"),
        (
            corners(lambda z: table_of(z)[1:, 1:], near=-1, far=(0, 0), strip=(0, 0)),
            "columns 0 to 6: .* index -1 is the last row",
        ),
        (lambda image, boxes: corners()(image.T, boxes), "rows and columns are exchanged"),
        (exchanged_in_a_rectangle, "5 x 9: it raises IndexError.*; it looks outside its table"),
        (rows_only, r"7 x 7: .* rows 0 to 6, columns 0 to 6: mine [-.\d]+, right [-.\d]+$"),
        (corners(order=(0, 2, 1, 3)), "7 x 7: .*; a box is first row, first column, last row"),
        (corners(far=(0, 1), strip=(0, 1)), "7 x 7: .*; the last row belongs to the box"),
        (corners(far=(1, 0), strip=(1, 0)), "7 x 7: .*; the last column belongs to the box"),
        (corners(strip=(0, 0)), "7 x 7: .*; a strip, too, ends with the last row or column"),
        (corners(lambda z: F.pad(table_of(z)[1:, 1:], (0, 1, 0, 1))), "zeros stand before the"),
        (corners(lambda z: F.pad(z.cumsum(0), (1, 0, 1, 0))), "along dim 0 only: along dim 1"),
        (corners(lambda z: F.pad(z.cumsum(1), (1, 0, 1, 0))), "along dim 1 only: along dim 0"),
        (changes(corners(), 0), "it changes `image` in place"),
        (changes(corners(), 1), "it changes `boxes` in place"),
        (corners(table_in_float32), "torch.float32, not torch.float64: mind the dtype"),
        (
            lambda *z: corners(table_in_float32)(*z).double(),
            "in float32 they agree: mind the dtype",
        ),
        (lambda image, boxes: corners()(image.detach(), boxes), "7 x 7: gradients of image"),
        (loop_over_boxes, "2,000 boxes: .* a loop over the boxes"),
        (by_masks, "a tensor of 4,000,000 numbers; a box needs 4"),
        (by_strips, "a tensor of 102,000 numbers"),
    ],
    "talk": [
        (lambda *g: by_table(*g) * (g[3] + g[4] + 1), f"{WORDS}.*; it is not divided by max_left"),
        (lambda *g: by_table(*g) * (g[3] + g[4] + 1) / (g[3] + g[4]), f"{WORDS}.*counts, too"),
        (mean_of_the_window, f"{WORDS}.*; divide by .*, not by the window's own width"),
        (partial(by_table, end=-1), f"{WORDS}.*; the word itself, .* belongs to the window"),
        (exchanged, f"{WORDS}.*; left and right are exchanged"),
        (other_reaches, "^max_left 4, max_right 2: .*; max_left and max_right are exchanged"),
        (partial(by_table, edge=torch.floor), f"{INSIDE}.*; an edge is rounded"),
        (partial(by_table, edge=torch.round), f"{INSIDE}.*; an edge is rounded"),
        (offsets_rounded, f"{INSIDE}.*; an edge is rounded"),
        (kernel(reach=lambda L, R: (1, 1)), f"{WORDS}.*; an offset is a share of max_left"),
        (kernel(pad=lambda L, R: R), "^max_left 4, max_right 2: .*; .* pad_left is max_left"),
        (kernel(pad=lambda L, R: 0), f"{WORDS}.*; .* pad_left is max_left"),
        (kernel(pad=lambda L, R: L + R), f"{WORDS}.*; .* pad_left is max_left"),
        (kernel(share=lambda z: z), f"{WORDS}.*; the share of a word lies between 0 and 1"),
        (kernel(share=lambda z: z.clamp(max=1)), f"{WORDS}.*lies between 0 and 1"),
        (kernel(share=lambda z: z.clamp(min=0)), f"{WORDS}.*lies between 0 and 1"),
        (changes(kernel(), 0), "it changes `x` in place"),
        (changes(kernel(), 1), "it changes `left` in place"),
        (changes(kernel(), 2), "it changes `right` in place"),
        (partial(by_table, repeat="bthr->btrh"), "two heads: .*; channel c belongs to head c // "),
        (partial(by_table, clamp=False), "beyond both ends: .*; only where a window leaves"),
        (lambda x, a, b, L, R: by_table(x, a, b * 1, L, R), "causal: it raises TypeError.*None"),
        (lambda *g: by_table(*g).roll(1, 1), f"{WORDS}[^;]*$"),
        (lambda *g: by_table(*g)[:, 1:], r"words: .* \(2, 8, 6\), not \(2, 9, 6\)"),
    ],
    "talk_gradient": [
        (lambda *z: by_autograd(*z)[:2], r"it returns a tuple, not \(dx, dleft, dright\)"),
        (changed(dright=lambda z, *_: None), "dright is None, not a tensor"),
        (changed(dleft=lambda z, *_: z[..., 0]), r"dleft is a tensor of shape \(2, 7\), not"),
        (changed(dx=lambda z, *_: z.float()), "dx is a tensor of torch.float32, not torch.float64"),
        (changes(by_autograd, 2), "it changes `left` in place"),
        (changed(dx=lambda z, *a: z * K_of(*a)), "dx .*; divide by"),
        (changed(dx=lambda z, *_: -z), "dx .*; the sign"),
        (changed(dx=untransposed), "T = 7.*dx .*; transpose the shares"),
        (changed(dx=first_head), "T = 9.*dx .*; each head has windows of its own"),
        (changed(dx=interleaved), "T = 9.*dx .*; channel c belongs to head c // R"),
        (changed(dleft=lambda z, *_: -z), "dleft .*; the sign is turned"),
        (changed(dright=lambda z, *_: -z), "dright .*; the sign is turned"),
        (changed(dleft=lambda z, *a: z * K_of(*a)), "dleft .*; divide by"),
        (changed(dleft=lambda z, *a: z / a[-2]), "dleft .*; the edge moves 3 tokens per unit"),
        (
            changed(dright=lambda z, *_: z.sum(2, keepdim=True).expand_as(z)),
            "T = 9.*dright .*; a head has its own channels alone",
        ),
        (changed(dleft=lambda z, *_: z * z.shape[2] / 6), "; sum over the channels"),
        (partial(by_hand, further=0), "dleft .*; that token is in the window"),
        (partial(by_hand, further=2), "dleft .*; one token too far"),
        (partial(by_hand, held=False), "dleft .*; 0 where the sentence ends"),
        (partial(by_hand, whole=False), "T = 9.*dleft .*; 0 where the distance is"),
        (
            lambda *z: [by_autograd(*z)[i] for i in (0, 2, 1)],
            r"dleft differs first at \[0, 0, 0\]: mine .*, right 0$",
        ),
    ],
    "true_width": [
        (sums, "H = 1, .*; this is the sum, not divided"),
        (lambda *a: sums(*a) / (a[3] + a[4] + 1), "divides by max_left .* as the paper does"),
        (partial(by_edges, cut=False), "which no end of the sentence cuts"),
        (partial(by_edges, itself=0), "lacks the word itself"),
        (partial(by_edges, round=torch.round), "rounded to whole words"),
        (lambda *a: by_ones(*a) / (a[3] + a[4] + 1), "; this divides by K as well as by the width"),
        (partial(by_edges, spread=lambda w, R: w.repeat(1, 1, R)), "H = 3, .*; each head"),
        (
            lambda x, *w: sums(x, *w) / sums(torch.ones_like(x), *w).detach(),
            "gradients of left differ .* too: is it detached",
        ),
        (lambda *a: by_ones(*a).float(), "it returns .*torch.float32, not torch.float64"),
        (changes(by_ones, 1), "it changes `left` in place"),
        (lambda *a: by_ones(*a)[:, -1:], r"a tensor of shape \(2, 1, 6\)"),
    ],
}
