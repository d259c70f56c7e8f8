"""Checks that several sections of a recipe share."""


def each_side(vocab_size: int | tuple[int, int]) -> tuple[int, int]:
    """Types of source and target; one number is that of both."""
    return vocab_size if isinstance(vocab_size, tuple) else (vocab_size, vocab_size)


def require_shares(config: object) -> None:
    """Raise unless each entry named ...dropout is at least 0 and below 1."""
    for name, value in vars(config).items():
        if name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{name} {value} must be at least 0 and below 1")


def require_positive(config: object, *names: str) -> None:
    """Raise unless each of these entries is at least 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name} {getattr(config, name)} must be at least 1")
