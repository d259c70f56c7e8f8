"""The check of the exercise on batches an update."""

from collections.abc import Callable

CASES = [  # update_tokens, gpus, most_tokens
    (4_000, 1, 8_000),
    (458_752, 8, 3_584),
    (458_752, 1, 3_584),
    (458_752, 16, 3_584),
    (655_360, 8, 5_120),
    (458_752, 8, 41_856),
    (458_752, 3, 8_192),
    (100_000, 7, 3_000),
]


def accumulation(mine: Callable[[int, int, int], tuple[int, int]]) -> None:
    """mine(update_tokens, gpus, most_tokens) is (accumulate, batch_tokens): the fewest batches a
    GPU with which an update can hold update_tokens, none above most_tokens; then the largest
    batch with which it does not hold more."""
    for update, gpus, most in CASES:
        case = f"{update:,} tokens, {gpus} GPUs, at most {most:,} a batch"
        try:
            answer = mine(update, gpus, most)
        except ZeroDivisionError:
            raise AssertionError(f"{case}: division by zero; it takes a batch at least") from None
        try:
            accumulate, size = answer
        except (TypeError, ValueError):
            raise AssertionError(f"{case}: {answer!r} is not a pair of numbers") from None
        if type(accumulate) is not int or type(size) is not int:
            raise AssertionError(f"{case}: {answer!r}: both must be int")
        if accumulate < 1 or size < 1:
            raise AssertionError(f"{case}: {answer}: both must be at least 1")
        fewest = -(-update // (gpus * most))
        largest = update // (gpus * fewest)
        if (accumulate, size) == (largest, fewest):
            raise AssertionError(f"{case}: {answer}: the number of batches comes first")
        if size > most:
            raise AssertionError(f"{case}: a batch of {size:,} does not fit: more batches")
        together = accumulate * size * gpus
        product = f"{accumulate} x {size:,} x {gpus} = {together:,}"
        if together > update:
            raise AssertionError(f"{case}: {product} is too much")
        if accumulate > fewest:
            raise AssertionError(f"{case}: {accumulate} batches, {fewest} would do")
        if accumulate < fewest:
            raise AssertionError(f"{case}: {product} is too little, it takes {fewest} batches")
        if size < largest:
            raise AssertionError(f"{case}: {product}, a larger batch leaves less out")
    print(f"right: {len(CASES)} plans fit, and none of them could do with fewer batches")
