"""log.jsonl, the events of a run: which fields are read back, and how."""

import json
from pathlib import Path
from typing import NotRequired

from pydantic import ConfigDict
from typing_extensions import TypedDict

from dynconv.errors import UserError
from dynconv.files import unreadable_error
from dynconv.schema import NonNegativeInt, Number, validated_content

LOG = "log.jsonl"


class Event(TypedDict):
    """The fields of a line of log.jsonl that are read back."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    event: str
    update: NonNegativeInt
    loss: NotRequired[Number]
    score: NotRequired[Number]
    metric: NotRequired[str]
    lr: NotRequired[Number]
    norm: NotRequired[Number]
    tokens_per_s: NotRequired[Number]


def read_log(run: Path) -> list[Event]:
    """Return the events of a run in order, without lines that a crash left half written.

    Raises UserError for a line of JSON that is not an event.
    """
    path = run / LOG
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; is {run} a run directory?") from None
    except OSError as error:
        raise unreadable_error(path, error) from None
    events = []
    for number, line in enumerate(lines, 1):
        try:
            tree = json.loads(line)
        except (ValueError, RecursionError):
            continue
        where, remedy = f"{path}, line {number}", "remove it; training does not need it"
        events.append(validated_content(Event, tree, where, remedy))
    return events
