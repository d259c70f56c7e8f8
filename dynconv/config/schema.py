"""Types that check their entries, from YAML or JSON, with errors of one line.

A file that dynconv reads back has a dataclass or TypedDict of its own, by which `validated_content`
checks what was read.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import is_typeddict

from dynconv.config.yaml12 import shown
from dynconv.errors import UserError, nearest, shorten

MAX_INT = 2**31 - 1


def whole(low: int, high: int = MAX_INT) -> Any:
    """Return the type of a whole number from `low` to `high`."""
    return Annotated[int, Field(strict=True, ge=low, le=high)]


def finite(**bounds: Any) -> Any:
    """Return the type of a finite number within bounds: gt or ge, lt or le."""
    return Annotated[float, Field(strict=True, allow_inf_nan=False, **bounds)]


# strict: neither true nor "3" is a number, and 3 is not true
Flag = Annotated[bool, Field(strict=True)]
PositiveInt = whole(1)
NonNegativeInt = whole(0)
Dimension = whole(1, 10**6)
"""the size of something that is allocated, such as the width of a layer"""
Length = whole(0, 10**6)
"""a number of tokens or lines"""
PositiveLength = whole(1, 10**6)
VocabSize = whole(1, 10**7)
"""number of types in one vocabulary"""
Beam = whole(1, 1000)
Repeats = whole(1, 1000)
Threads = whole(1, 1024)
Count = whole(0, 2**62)
"""a count of tokens or bytes, which may exceed MAX_INT"""
Number = Annotated[float, Field(strict=True)]
"""a measured value, which may be infinite or NaN"""
Positive = finite(gt=0, le=1e12)
NonNegative = finite(ge=0, le=1e12)
Probability = finite(ge=0, lt=1)
"""a number at least 0 and below 1; every dropout is the probability with which a value is
dropped"""
Fraction = finite(gt=0, le=1)
LengthPenalty = finite(ge=-10, le=10)
"""an exponent, of lengths up to a million"""


@dataclass_transform(frozen_default=True)
def checked_dataclass(cls: type) -> type:
    """Make a frozen dataclass that raises a UserError of one line for an entry that is wrong."""
    cls = dataclass(frozen=True, config=ConfigDict(extra="forbid"))(cls)
    cls.__init__ = one_line_errors(cls)(cls.__init__)  # type: ignore[method-assign]
    return cls


def validated(schema: Any, tree: Any, where: str, section: str = "") -> Any:
    """Return the value of a type that YAML or JSON describes.

    Raises UserError: `where`, then the entry of the section that is wrong, and how.
    """
    with one_line_errors(schema, f"{where}: ", section):
        return TypeAdapter(schema).validate_python(tree)


def validated_content(schema: Any, tree: Any, path: Path | str, remedy: str) -> Any:
    """Return the value of a type that the content of a file describes.

    Raises UserError: the file, the entry that is wrong, how, and the remedy.
    """
    try:
        return validated(schema, tree, str(path))
    except UserError as error:
        raise UserError(f"{error}: {remedy}") from None


@contextmanager
def one_line_errors(schema: Any, where: str = "", section: str = "") -> Iterator[None]:
    """Raise a UserError in place of pydantic's error, whose text has many lines."""
    try:
        yield
    except ValidationError as error:
        raise UserError(f"{where}{explain(error, schema, section)}") from None


def explain(error: ValidationError, schema: Any, section: str = "") -> str:
    """Return the most specific of pydantic's errors as `section.key value must be ...`."""
    errors = error.errors()
    problem = max(errors, key=lambda each: (each["type"] == "value_error", len(each["loc"])))
    loc, reason = problem["loc"], problem["type"]
    if reason == "missing" and isinstance(loc[-1], int):  # an entry of a list that is too short
        loc, reason = loc[:-1], "too_short"
    keys, wrong = locate(schema, loc)
    key = ".".join([section, *keys] if section else keys)
    if reason == "unexpected_keyword_argument":
        _, around = locate(schema, loc[:-1])
        return f"unknown key {key}; {nearest(keys[-1], field_types(around), 'there are')}"
    if reason == "missing":
        return f"{key} is missing"
    if reason == "value_error":
        message = shorten(problem["msg"].removeprefix("Value error, "), 400)
        return f"{key}: {message}" if key else message
    tried = [each for each in errors if each["loc"][: len(keys)] == loc[: len(keys)]]
    given = min(tried, key=lambda each: len(each["loc"]))["input"]  # the shortest has all of it
    return f"{key} {shown(given)} must be {allowed_values(wrong)}".lstrip()


def locate(schema: Any, loc: Sequence[int | str]) -> tuple[list[str], Any]:
    """Return the keys that lead to a place in a value, and the type there.

    They end at a union: what follows in `loc` names the types that pydantic tried.
    """
    if not loc:
        return [], schema
    part, origin, parts = loc[0], get_origin(schema), get_args(schema)
    if types := field_types(schema):
        part = list(types)[part] if isinstance(part, int) else part  # a positional argument
        inner = types.get(part)
    elif origin is dict:
        inner = parts[1]
    elif origin in (list, tuple):
        inner = parts[int(part)] if origin is tuple and parts[-1] is not Ellipsis else parts[0]
    else:
        return [], schema
    keys, found = locate(inner, loc[1:])
    return [shorten(str(part)), *keys], found


def allowed_values(schema: Any) -> str:
    """Return in words which values a type allows."""
    origin, parts = get_origin(schema), get_args(schema)
    if origin is Annotated:
        notes = [note for info in parts[1:] for note in getattr(info, "metadata", [])]
        bounds = [
            f"{words} {getattr(note, bound):,.10g}"
            for bound, words in BOUND_WORDS.items()
            for note in notes
            if hasattr(note, bound)
        ]
        return " ".join([allowed_values(parts[0]), " and ".join(bounds)]).strip()
    if origin in (Union, UnionType):
        return " or ".join(map(allowed_values, parts))
    if origin is Literal:
        return " or ".join(map(str, parts))
    if origin in (list, tuple):
        length = "" if origin is list or parts[-1] is Ellipsis else f" of {len(parts)}"
        return f"a list{length}, with each entry {allowed_values(parts[0])}"
    if types := field_types(schema):
        return f"a mapping with {', '.join(types)}"
    return TYPE_WORDS.get(schema, "a mapping")


def field_types(schema: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass or TypedDict; {} for another type."""
    if is_typeddict(schema):
        hints = get_type_hints(schema, include_extras=True).items()
        return {key: get_args(t)[0] if get_origin(t) is NotRequired else t for key, t in hints}
    return {field.name: field.type for field in fields(schema)} if is_dataclass(schema) else {}


BOUND_WORDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
TYPE_WORDS = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "text (quote what looks like a number)",
    NoneType: "null",
}
