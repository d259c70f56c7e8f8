"""Checks values that functions and layers take: sizes, heads, probabilities and texts."""

from dynconv.errors import UserError, quoted


def check_positive(name: str, size: int) -> None:
    """Raise ValueError unless a size is at least 1."""
    if size < 1:
        raise ValueError(f"{name} {size} must be at least 1")


def check_odd(name: str, size: int) -> None:
    """Raise ValueError unless a size is odd and positive."""
    if size < 1 or size % 2 == 0:
        raise ValueError(f"{name} {size} must be odd and positive")


def check_heads(heads: int, channels: int) -> None:
    """Raise ValueError unless `heads` divides `channels`, and both are positive."""
    if heads < 1 or channels < 1 or channels % heads:
        raise ValueError(f"{heads} heads do not divide {channels} channels")


def check_reach(max_left: int, max_right: int) -> None:
    """Raise ValueError if a window of TaLK would reach a negative number of positions."""
    if max_left < 0 or max_right < 0:
        raise ValueError(f"max_left {max_left} and max_right {max_right} must not be negative")


def check_probability(name: str, value: float) -> None:
    """Raise ValueError unless a probability of dropout is at least 0 and below 1."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} {value} lies outside [0, 1)")


def is_unicode(text: object) -> bool:
    """Return whether a value is text without lone surrogates, such as bytes of no encoding."""
    return isinstance(text, str) and not any("\ud800" <= letter <= "\udfff" for letter in text)


def check_lines(lines: object) -> None:
    """Raise UserError for a text in place of a list of lines: its letters would count as lines."""
    if isinstance(lines, str):
        raise UserError(f"{quoted(lines)} is one text: give a list of lines")
