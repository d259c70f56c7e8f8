"""Types that check their entries, as YAML or JSON describes them, and errors in one line.

A file that dynconv reads back has a dataclass or TypedDict of its own, and `read_json` checks it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import is_typeddict

from dynconv.errors import UserError, nearest

MAX_INT = 2**31 - 1

# strict: neither true nor "3" is a number, and 3 is not true
PositiveInt = Annotated[int, Field(strict=True, ge=1, le=MAX_INT)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0, le=MAX_INT)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**62)]
"""of tokens or bytes, of which there may be more than MAX_INT"""
Number = Annotated[float, Field(strict=True)]
"""that was measured, so it may be infinite or NaN"""
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
    """Return the value of a type that YAML or JSON describes.

    Raises UserError: `where`, then the entry of the section that is wrong, and how.
    """
    with one_line_errors(schema, f"{where}: ", section):
        return TypeAdapter(schema).validate_python(tree)


def read_json(path: Path, remedy: str) -> Any:
    """Return the content of a JSON file.

    Raises UserError that ends with the remedy when it cannot be read; FileNotFoundError as it is.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON ({error}): {remedy}") from None


def validate_json(schema: Any, tree: Any, path: Path | str, remedy: str) -> Any:
    """Return the value of a type that a file's JSON describes.

    Raises UserError: the file, the entry that is wrong, how, and the remedy.
    """
    try:
        return validate(schema, tree, str(path))
    except UserError as error:
        raise UserError(f"{error}: {remedy}") from None


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
        if types := field_types(schema):
            known = list(types)
            part = known[part] if isinstance(part, int) else part  # a positional argument
            schema = types.get(part)
        elif isinstance(part, int):
            schema = next((each for each in get_args(schema) if field_types(each)), None)
        elif get_origin(schema) is dict:
            schema = get_args(schema)[1]
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
    return f"{key} {value}: {message}".lstrip()


def field_types(schema: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass or TypedDict; {} for another type."""
    if is_typeddict(schema):
        return get_type_hints(schema)
    return {field.name: field.type for field in fields(schema)} if is_dataclass(schema) else {}
