"""The check of the exercise on TaLK's windows accepts the right, and says what is wrong."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from dynconv import ops
from dynconv.teach import check


def as_kernel(x, left, right, max_left, max_right):
    """The solution: the shares of the words in reach, as a DynamicConv's kernel."""
    d = torch.arange(-max_left, max_right + 1)
    share = 1 + d + left[..., None] * max_left
    if right is not None:
        share = torch.minimum(share, 1 - d + right[..., None] * max_right)
    return ops.dynamic_conv(x, share.clamp(0, 1) / len(d), pad_left=max_left)


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


def kernel_with(share=lambda z: z.clamp(0, 1), pad=lambda L, R: L, reach=lambda L, R: (L, R)):
    """The solution with a mistake."""

    def answer(x, left, right, L, R):
        d, (by_left, by_right) = torch.arange(-L, R + 1), reach(L, R)
        right = torch.zeros_like(left) if right is None else right
        smaller = torch.minimum(
            1 + d + left[..., None] * by_left, 1 - d + right[..., None] * by_right
        )
        return ops.dynamic_conv(x, share(smaller) / len(d), pad_left=pad(L, R))

    return answer


def offsets_rounded(x, left, right, L, R):
    right = torch.zeros_like(left) if right is None else (right * R).round() / max(R, 1)
    return by_table(x, (left * L).round() / L, right, L, R)


def changes(which):
    def answer(*given):
        out = as_kernel(*given)
        given[which].mul_(2)
        return out

    return answer


@pytest.mark.parametrize(
    "right",
    [
        as_kernel,
        kernel_with(),
        by_table,
        ops.talk.talk_conv_window,
        ops.talk.talk_conv_blocked,
        lambda *given: by_table(*given).float(),
    ],
    ids=["kernel", "other kernel", "table", "window", "blocked", "float32"],
)
def test_accepts(right, capsys):
    check.talk(right)
    assert capsys.readouterr().out == "right: the values agree on 7 cases\n"


WHOLE, INSIDE = "windows of whole words: differs first", "edges inside of words: differs first"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *g: by_table(*g) * (g[3] + g[4] + 1), f"{WHOLE}.*; it is not divided by max_left"),
        (lambda *g: by_table(*g) * (g[3] + g[4] + 1) / (g[3] + g[4]), f"{WHOLE}.*counts, too"),
        (mean_of_the_window, f"{WHOLE}.*; divide by .*, not by the window's own width"),
        (partial(by_table, end=-1), f"{WHOLE}.*; the word itself, .* belongs to the window"),
        (exchanged, f"{WHOLE}.*; left and right are exchanged"),
        (other_reaches, "^max_left 4, max_right 2: .*; max_left and max_right are exchanged"),
        (partial(by_table, edge=torch.floor), f"{INSIDE}.*; an edge is rounded"),
        (partial(by_table, edge=torch.round), f"{INSIDE}.*; an edge is rounded"),
        (offsets_rounded, f"{INSIDE}.*; an edge is rounded"),
        (kernel_with(reach=lambda L, R: (1, 1)), f"{WHOLE}.*; an offset is a share of max_left"),
        (kernel_with(pad=lambda L, R: R), "^max_left 4, max_right 2: .*; .* pad_left is max_left"),
        (kernel_with(pad=lambda L, R: 0), f"{WHOLE}.*; .* pad_left is max_left"),
        (kernel_with(pad=lambda L, R: L + R), f"{WHOLE}.*; .* pad_left is max_left"),
        (kernel_with(share=lambda z: z), f"{WHOLE}.*; the share of a word lies between 0 and 1"),
        (kernel_with(share=lambda z: z.clamp(max=1)), f"{WHOLE}.*lies between 0 and 1"),
        (kernel_with(share=lambda z: z.clamp(min=0)), f"{WHOLE}.*lies between 0 and 1"),
        (changes(0), "it changes `x` in place"),
        (changes(1), "it changes `left` in place"),
        (changes(2), "it changes `right` in place"),
        (partial(by_table, repeat="bthr->btrh"), "two heads: .*; channel c belongs to head c // "),
        (partial(by_table, clamp=False), "beyond both ends: .*; only where a window leaves"),
        (lambda x, a, b, L, R: by_table(x, a, b * 1, L, R), "causal: it raises TypeError: .*None"),
        (lambda *g: by_table(*g).roll(1, 1), f"{WHOLE}[^;]*$"),
        (lambda *g: None, "windows of whole words: it returns a NoneType, not a tensor"),
        (lambda *g: by_table(*g)[:, 1:], r"words: it returns \(2, 8, 6\), not \(2, 9, 6\)"),
    ],
    ids=[
        "not divided",
        "divided by one less",
        "mean of the window",
        "own word missing",
        "offsets exchanged",
        "reaches exchanged",
        "rounded down",
        "rounded",
        "offsets rounded",
        "offsets as words",
        "pad_left max_right",
        "pad_left 0",
        "pad_left K - 1",
        "share not clipped",
        "share below 0",
        "share above 1",
        "x changed",
        "left changed",
        "right changed",
        "heads interleaved",
        "not clamped",
        "causal forgotten",
        "one position late",
        "nothing",
        "too short",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message) as error:
        check.talk(wrong)
    assert "\n" not in str(error.value)


def test_an_answer_not_yet_written_says_so():
    def not_yet(x, left, right, max_left, max_right):
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        check.talk(not_yet)
