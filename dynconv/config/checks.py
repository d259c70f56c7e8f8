"""Checks that several sections of a recipe share."""


def require_positive(config: object, *names: str) -> None:
    """Raise unless each of these entries is at least 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name} {getattr(config, name)} must be at least 1")
