"""The check of the exercise on batches an update accepts the right, and says what is wrong."""

import math

import pytest

from dynconv.teach import check


def by_floor(update_tokens, gpus, most_tokens):
    accumulate = -(-update_tokens // (gpus * most_tokens))
    return accumulate, update_tokens // (gpus * accumulate)


def by_ceil(update_tokens, gpus, most_tokens):
    accumulate = math.ceil(update_tokens / gpus / most_tokens)
    return accumulate, int(update_tokens / gpus / accumulate)


def by_search(update_tokens, gpus, most_tokens):
    accumulate = 1
    while accumulate * gpus * most_tokens < update_tokens:
        accumulate += 1
    size = most_tokens
    while accumulate * gpus * size > update_tokens:
        size -= 1
    return accumulate, size


@pytest.mark.parametrize("right", [by_floor, by_ceil, by_search])
def test_accepts(right, capsys):
    check.accumulation(right)
    assert capsys.readouterr().out.startswith("right: ")


def without_gpus(update, gpus, most):
    return by_floor(update, 1, most)


def rounded_down(update, gpus, most):
    accumulate = max(1, update // (gpus * most))
    return accumulate, update // (gpus * accumulate)


def rounded_down_and_capped(update, gpus, most):
    accumulate = max(1, update // (gpus * most))
    return accumulate, min(most, update // (gpus * accumulate))


def rounded_up(update, gpus, most):
    accumulate = math.ceil(update / (gpus * most))
    return accumulate, math.ceil(update / (gpus * accumulate))


def one_more(update, gpus, most):
    accumulate = update // (gpus * most) + 1
    return accumulate, update // (gpus * accumulate)


def round_sizes(update, gpus, most):
    accumulate, size = by_floor(update, gpus, most)
    return accumulate, size // 64 * 64 or size


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *_: None, "None is not a pair"),
        (lambda u, g, m: by_floor(u, g, m)[0], "1 is not a pair"),
        (lambda u, g, m: (u / g / m, m), "both must be int"),
        (lambda u, g, m: (u // (g * m), m), "at least 1"),
        (lambda u, g, m: (u // (g * m), u // (g * (u // (g * m)))), "division by zero"),
        (lambda u, g, m: by_floor(u, g, m)[::-1], "the number of batches comes first"),
        (lambda u, g, m: (math.ceil(u / (g * m)), m), "1 x 8,000 x 1 = 8,000 is too much"),
        (without_gpus, "8 GPUs, .*: 128 x 3,584 x 8 = 3,670,016 is too much"),
        (rounded_down, "a batch of 57,344 does not fit"),
        (rounded_down_and_capped, "1 x 41,856 x 8 = 334,848 is too little"),
        (rounded_up, "3 GPUs, .*: 19 x 8,049 x 3 = 458,793 is too much"),
        (one_more, "8 GPUs, at most 3,584 a batch: 17 batches, 16 would do"),
        (round_sizes, "1 x 3,968 x 1 = 3,968, a larger batch"),
    ],
    ids=[
        "nothing",
        "one number",
        "a share",
        "none",
        "divided by none",
        "exchanged",
        "always the most",
        "no GPUs",
        "too large",
        "too few",
        "rounded up",
        "one too many",
        "rounded to 64",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.accumulation(wrong)
