"""Every entry of every section of a recipe, with its type and bounds; and values to try."""

from dataclasses import fields, is_dataclass
from typing import Annotated, get_args, get_origin

from dynconv.config import MODEL_CONFIGS, DataConfig, DecodeConfig, TrainConfig

RECIPES = {
    "encoder-decoder": "help-de-en-dynamic",
    "convs2s": "help-de-en-convs2s",
    "language-model": "austen-dynamic",
}

SECTIONS = {"data": DataConfig, "train": TrainConfig, "decode": DecodeConfig}


def entries(section: type, prefix: str):
    """The keys of a section with their types, those of nested sections included."""
    for field in fields(section):
        if is_dataclass(field.type):
            yield from entries(field.type, f"{prefix}.{field.name}")
        else:
            yield f"{prefix}.{field.name}", field.type


def bounds(schema) -> tuple[type, dict[str, float]] | None:
    """int or float, and the bounds of the number that an entry's type allows; None for none.

    Of a number, or a list of them, the number.
    """
    for each in [schema, *get_args(schema)]:
        if get_origin(each) is Annotated and get_args(each)[0] in (int, float):
            kind, *notes = get_args(each)
            notes = [note for info in notes for note in getattr(info, "metadata", [])]
            known = ("ge", "gt", "le", "lt")
            return kind, {k: getattr(n, k) for n in notes for k in known if hasattr(n, k)}
        if each is float or each is int:
            raise AssertionError(f"{schema} has no bounds")
    return None


KEYS = [
    (RECIPES["encoder-decoder"], key, schema)
    for name, section in SECTIONS.items()
    for key, schema in entries(section, name)
] + [
    (RECIPES[architecture], key, schema)
    for architecture, section in MODEL_CONFIGS.items()
    for key, schema in entries(section, "model")
]

STRANGE = [
    "-1",
    "0",
    "1e999",
    "nan",
    ".nan",
    "-inf",
    "-.inf",
    "9" * 30,
    "-" + "9" * 30,
    "true",
    "x",
]
STRANGE += ["", "1.5", "[1]", "{a: 1}", "'3'", "null", "1e400", "x" * 5000]
"""what a user might write where a number is expected"""
