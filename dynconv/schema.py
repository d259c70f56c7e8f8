"""Types that check their entries, from YAML or JSON, with errors of one line.

Most files that dynconv reads back, such as meta.json of a checkpoint, are described by a dataclass
or TypedDict, against which `validated_content` checks their content.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, dataclass_transform

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from dynconv.errors import UserError
from dynconv.schema_errors import explain

MAX_INT = 2**31 - 1


def whole(low: int, high: int = MAX_INT) -> Any:
    """Return the type of a whole number from `low` to `high`."""
    return Annotated[int, Field(strict=True, ge=low, le=high)]


def finite(**bounds: Any) -> Any:
    """Return the type of a finite number within bounds: gt or ge, lt or le."""
    return Annotated[float, Field(strict=True, allow_inf_nan=False, **bounds)]


# Strict: neither true nor "3" is a number, and 3 is not true.
Flag = Annotated[bool, Field(strict=True)]
PositiveInt = whole(1)
NonNegativeInt = whole(0)
Dimension = whole(1, 10**6)
"""the size of something that is allocated, such as the width of a layer"""
PositiveLength = whole(1, 10**6)
"""a number of tokens or lines"""
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
