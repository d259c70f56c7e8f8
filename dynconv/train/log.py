"""What training says: log.jsonl, TensorBoard, and a progress bar on a terminal."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from dynconv.config.files import replace_text
from dynconv.errors import UserError


def read(run: Path) -> list[dict[str, Any]]:
    """The events of a run, in order; lines that a crash has left half written are left out."""
    path = run / "log.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; is {run} a run directory?") from None
    events = []
    for line in lines:
        with suppress(ValueError):
            events.append(json.loads(line))
    return events


class Log:
    """Events of a run; those after update `done` belong to lost work and are dropped.

    So is the validation after it, unless it was `validated` for good.
    """

    def __init__(self, run: Path, done: int, total: int, validated: bool):
        from torch.utils.tensorboard import SummaryWriter
        from tqdm import tqdm

        path = run / "log.jsonl"
        if path.exists():
            kept = [e for e in read(run) if e["update"] <= done]
            if not validated:
                kept = [e for e in kept if (e["event"], e["update"]) != ("valid", done)]
            replace_text(path, "".join(json.dumps(e) + "\n" for e in kept))
        self._path, self._file = path, path.open("a", encoding="utf-8")
        self._board = SummaryWriter(run / "tensorboard", purge_step=done + 1)
        shape = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        self._bar = tqdm(initial=done, total=total, bar_format=shape, disable=None, desc="train")

    def event(self, kind: str, update: int, **values: float | str | None) -> None:
        """One line of log.jsonl, and one TensorBoard curve for each number; None is not known."""
        try:
            self._file.write(json.dumps({"event": kind, "update": update, **values}) + "\n")
            self._file.flush()
        except OSError as error:
            raise UserError(f"{self._path}: cannot be written ({error.strerror})") from None
        for name, value in values.items():
            if isinstance(value, int | float):
                self._board.add_scalar(f"{kind}/{name}", value, update)

    def progress(self, **values: str) -> None:
        """One update is done."""
        self._bar.set_postfix(values, refresh=False)
        self._bar.update()

    def say(self, text: str) -> None:
        """A line for the reader, above the bar."""
        self._bar.write(text, file=sys.stderr)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()
        self._board.close()
        self._file.close()


class Silence:
    """The log of a rank that keeps none."""

    def event(self, kind: str, update: int, **values: float | str | None) -> None: ...

    def progress(self, **values: str) -> None: ...

    def say(self, text: str) -> None: ...

    def __enter__(self) -> "Silence":
        return self

    def __exit__(self, *_) -> None: ...
