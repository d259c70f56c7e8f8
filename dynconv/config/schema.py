"""Dataclasses that check their entries, the types of those entries, and errors in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, dataclass_transform, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from dynconv.errors import UserError, nearest

MAX_INT = 2**31 - 1

# strict: neither true nor "3" is a number, and 3 is not true
PositiveInt = Annotated[int, Field(strict=True, ge=1, le=MAX_INT)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0, le=MAX_INT)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)]
"""at least 0 and below 1; every dropout is the probability with which a value is dropped"""
Flag = Annotated[bool, Field(strict=True)]


@dataclass_transform(frozen_default=True)
def checked_dataclass(cls: type) -> type:
    """Make a frozen dataclass that raises a UserError of one line for an entry that is wrong."""
    cls = dataclass(frozen=True, config=ConfigDict(extra="forbid"))(cls)
    cls.__init__ = one_line_errors(cls)(cls.__init__)
    return cls


def validate(schema: Any, tree: Any, where: str, section: str = "") -> Any:
    """Return the value of a type that YAML describes.

    Raises UserError: `where`, then the entry of the section that is wrong, and how.
    """
    with one_line_errors(schema, f"{where}: ", section):
        return TypeAdapter(schema).validate_python(tree)


@contextmanager
def one_line_errors(schema: Any, where: str = "", section: str = "") -> Iterator[None]:
    """Raise a UserError in place of pydantic's error, whose text has many lines."""
    try:
        yield
    except ValidationError as error:
        raise UserError(f"{where}{explain(error, schema, section)}") from None


BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


def explain(error: ValidationError, schema: Any, section: str = "") -> str:
    """Return the most specific of pydantic's errors as `section.key value: what is wrong`."""
    problem = max(error.errors(), key=lambda each: len(each["loc"]))
    keys, known = [section] if section else [], []
    for part in problem["loc"]:
        if is_dataclass(schema):
            types = {field.name: field.type for field in fields(schema)}
            known = list(types)
            part = known[part] if isinstance(part, int) else part  # a positional argument
            schema = types.get(part)
        elif isinstance(part, int):
            schema = next((each for each in get_args(schema) if is_dataclass(each)), None)
        else:
            break  # what follows names the types that were tried
        keys.append(str(part))
    key, given, kind = ".".join(keys), problem["input"], problem["type"]
    if kind == "unexpected_keyword_argument":
        return f"unknown key {key}; {nearest(keys[-1], known, 'there are')}"
    message = problem["msg"].removeprefix("Value error, ")
    if kind == "value_error" or (kind == "missing" and isinstance(problem["loc"][-1], str)):
        return f"{key}: {message}" if key else message
    if isinstance(given, dict) and schema not in (None, dict):
        return f"{key} has no entries"
    value = repr(given)
    value = value if len(value) <= 60 else f"{value[:57]}..."
    if kind in BOUNDS:
        words, bound = BOUNDS[kind]
        return f"{key} {value} must be {words} {problem['ctx'][bound]:,.10g}"
    return f"{key} {value}: {message}"
