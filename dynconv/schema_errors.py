"""Explains pydantic's errors in one line, which names the entry, its value and what would be valid.

    train: {lr: fast}            train.lr 'fast' must be a number at least 0 and at most 1e+12
    train: {betas: [0.9]}        train.betas [0.9] must be a list of 2, with each entry a number ...
    train: {betas: [0.9, 2]}     train.betas.1 2 must be a number at least 0 and below 1
    train: {shedule: cosine}     unknown key train.shedule; did you mean schedule?
    train: {warmup: 50000}       train: warmup 50000 must be within the 30000 updates

The last error is a ValueError of `__post_init__`, the others are pydantic's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ValidationError
from typing_extensions import is_typeddict

from dynconv.errors import name_hint, shorten
from dynconv.yaml12 import as_shown


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
        return f"unknown key {key}; {name_hint(keys[-1], field_types(around), 'there are')}"
    if reason == "missing":
        return f"{key} is missing"
    if reason == "value_error":
        message = shorten(problem["msg"].removeprefix("Value error, "), 400)
        return f"{key}: {message}" if key else message
    tried = [each for each in errors if each["loc"][: len(keys)] == loc[: len(keys)]]
    given = min(tried, key=lambda each: len(each["loc"]))["input"]  # the shortest has all of it
    return f"{key} {as_shown(given)} must be {allowed_values(wrong)}".lstrip()


def locate(schema: Any, loc: Sequence[int | str]) -> tuple[list[str], Any]:
    """Return the keys that lead to a place in a value, and the type there.

    They end at a union: what follows in `loc` names the types that pydantic tried.
    """
    if not loc:
        return [], schema
    part = loc[0]
    origin = get_origin(schema)
    parts = get_args(schema)
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
    return [shorten(str(part)) or "''", *keys], found


def allowed_values(schema: Any) -> str:
    """Return in words which values a type allows."""
    origin = get_origin(schema)
    parts = get_args(schema)
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
        *others, last = map(allowed_values, parts)
        single = " or ".join(others)
        if last == f"a list, with each entry {single}":  # one value, or one value per layer
            return f"{single}, or a list of these"
        return f"{single} or {last}"
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


def entry_keys(schema: Any, prefix: str = "") -> Iterator[str]:
    """Yield the key of each entry; the types of a union may yield the same one."""
    for name, kind in field_types(schema).items():
        for each in get_args(kind) if isinstance(kind, UnionType) else (kind,):
            if is_dataclass(each):
                yield from entry_keys(each, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}"


BOUND_WORDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
TYPE_WORDS = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "text (quote what looks like a number)",
    NoneType: "null",
}
