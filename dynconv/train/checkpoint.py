"""Checkpoints: directories written under a temporary name, then renamed.

    checkpoints/000500/model.safetensors    the weights, by name
                       state.pt             optimizer and gradient scaler: tensors and numbers
                       meta.json            update, place in the data, scores, vocabulary's hash,
                                            and the checksums of the other two

The learning rate is a function of the update, and the random numbers of each batch are one of the
seed and its place: neither has a state to save.

Reading one executes nothing from it: safetensors holds numbers only, and state.pt is read with
`weights_only=True`.
"""

import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dynconv.config.files import replace_text, write_through
from dynconv.errors import UserError

FORMAT = "dynconv checkpoint 3"


class Checkpoint(NamedTuple):
    """A complete checkpoint on disk."""

    path: Path
    meta: dict[str, Any]

    @property
    def quality(self) -> tuple[float, float]:
        """Higher is better: the score on the validation split, then the lower loss."""
        if self.meta["score"] is None:  # not validated, or not yet
            return -math.inf, -math.inf
        return self.meta["score"], -self.meta["loss"]


def save(path: Path, model: nn.Module, state: dict | None, meta: dict[str, Any]) -> Checkpoint:
    """Write a checkpoint; it appears under its name only when it is whole.

    Raises UserError when the disk does not take it; what was saved before stays.
    """
    from safetensors.torch import save as to_bytes

    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(path.name + ".part")
    shutil.rmtree(scratch, ignore_errors=True)
    files = {"model.safetensors": to_bytes(weights(model))}
    if state is not None:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        files["state.pt"] = buffer.getbuffer()
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    meta = {"format": FORMAT, **meta, "sha256": sums}
    files["meta.json"] = json.dumps(meta, indent=1).encode()
    try:
        scratch.mkdir()
        for name, data in files.items():
            write_through(scratch / name, data)
        if path.exists():  # a damaged namesake, from which training could not go on
            shutil.rmtree(path)
        _sync(scratch)
        os.replace(scratch, path)
        _sync(path.parent)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise UserError(
            f"{path}: cannot save this checkpoint ({error.strerror}); earlier ones are untouched"
        ) from None
    return Checkpoint(path, meta)


def _sync(directory: Path) -> None:
    """Make the names in a directory survive a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's tensors by name; a shared one once."""
    return {name: p.detach().contiguous() for name, p in model.named_parameters()}


def listing(run: Path) -> list[Checkpoint]:
    """The readable checkpoints of a run, oldest first; an average comes after what it is made of.

    Left out are those that are half written, half deleted, or have a damaged meta.json.
    """
    found = []
    for path in directories(run):
        with suppress(UserError):
            found.append(opened(path))
    return sorted(found, key=lambda c: (c.meta["update"], c.path.name))


def directories(run: Path) -> list[Path]:
    """Where there are checkpoints, readable or not."""
    files = (run / "checkpoints").glob("*/meta.json")
    return [file.parent for file in files if file.parent.suffix != ".part"]


def opened(path: Path) -> Checkpoint:
    """The checkpoint in a directory; UserError when it is none of ours."""
    try:
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no checkpoint here (it has no meta.json)") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path / 'meta.json'}: not readable as JSON ({error})") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise UserError(f"{path}: not a checkpoint of dynconv (no format {FORMAT!r} in meta.json)")
    return Checkpoint(path, meta)


def load_weights(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name; UserError when the file is damaged."""
    from safetensors.torch import load

    return load(_intact(checkpoint, "model.safetensors"))


def load_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """What training needs beside the weights; UserError when the file is damaged."""
    data = _intact(checkpoint, "state.pt")
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # pickle's, of a file that somebody else wrote
        cause = str(error).split("\n")[0]
        path = checkpoint.path / "state.pt"
        raise UserError(f"{path}: foreign; nothing was executed ({cause})") from None


def _intact(checkpoint: Checkpoint, name: str) -> bytes:
    path = checkpoint.path / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != checkpoint.meta["sha256"].get(name):
        raise UserError(f"{path}: damaged, its checksum is not the one in meta.json")
    return data


def newest(
    run: Path, say: Callable[[str], None]
) -> tuple[Checkpoint, dict[str, Tensor], dict[str, Any]] | None:
    """The newest intact checkpoint that training left, with its weights and its state.

    Damaged ones are said and given up; None when there are no checkpoints. Raises UserError when
    there are some, all damaged.
    """
    paths = [path for path in directories(run) if path.name.isdecimal()]
    damaged = []
    for path in sorted(paths, key=lambda path: int(path.name), reverse=True):
        try:
            found = opened(path)
            intact = found, load_weights(found), load_state(found)
        except UserError as error:
            say(f"{error}; going back to the checkpoint before it")
            damaged.append(path)
            continue
        for later in damaged:  # or they would count as the newest
            (later / "meta.json").unlink()
        return intact
    if paths:
        raise UserError(f"{run}: no intact checkpoint; name another --run to begin anew")
    return None


def fill(model: nn.Module, tensors: dict[str, Tensor], where: Path) -> None:
    """Copy tensors into the model; UserError when names or shapes are of another model."""
    ours = dict(model.named_parameters())
    for name in ours.keys() | tensors.keys():
        there = tuple(tensors[name].shape) if name in tensors else "missing"
        here = tuple(ours[name].shape) if name in ours else "missing"
        if there != here:
            raise UserError(
                f"{where}: the checkpoint of another recipe: {name} is {there}, the model's {here}"
            )
    with torch.no_grad():
        for name, parameter in ours.items():
            parameter.copy_(tensors[name])


def check_vocabulary(checkpoint: Checkpoint, expected: str) -> None:
    """UserError when the hash of the vocabulary it was trained with is not the expected one."""
    if checkpoint.meta["vocabulary"] != expected:
        raise UserError(
            f"{checkpoint.path}: trained with another vocabulary than the run's vocabulary.json"
        )


def mean(checkpoints: list[Checkpoint]) -> dict[str, Tensor]:
    """The average of the weights of several checkpoints."""
    total: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        for name, tensor in load_weights(checkpoint).items():
            total[name] = total[name] + tensor if name in total else tensor
    return {name: tensor / len(checkpoints) for name, tensor in total.items()}


def validated(run: Path) -> list[Checkpoint]:
    """The checkpoints of a run that have scores, oldest first, without the average."""
    return [c for c in listing(run) if c.meta["score"] is not None and c.path.name.isdecimal()]


def score(path: Path, **scores: Any) -> None:
    """Write into a checkpoint what validation has found."""
    meta = {**opened(path).meta, **scores}
    replace_text(path / "meta.json", json.dumps(meta, indent=1))


def prune(run: Path, keep: int) -> None:
    """Delete all but the newest checkpoint, the best, and the `keep` newest validated ones.

    What a kill has left half written or half deleted goes, too.
    """
    found = listing(run)
    best = max(found, key=lambda c: c.quality)
    stay = {c.path for c in (found[-1], best, *validated(run)[-keep:])}
    for checkpoint in found:
        if checkpoint.path not in stay and checkpoint.path.name.isdecimal():
            # its meta.json goes first: what is half deleted is no checkpoint
            (checkpoint.path / "meta.json").unlink()
    for path in (run / "checkpoints").iterdir():
        if path.suffix == ".part" or not (path / "meta.json").exists():
            shutil.rmtree(path, ignore_errors=True)


def choose(run: Path, which: str) -> Checkpoint:
    """`best` on the validation split, `last`, or a checkpoint by its name (`000500`)."""
    if which not in ("best", "last"):
        return opened(run / "checkpoints" / which)
    checkpoints = listing(run)
    if not checkpoints:
        raise UserError(f"{run}: no checkpoint in it yet")
    return max(checkpoints, key=lambda c: c.quality) if which == "best" else checkpoints[-1]
