"""Checkpoints: directories written under a temporary name, then renamed.

    checkpoints/000500/model.safetensors    the weights, by name
                       state.pt             optimizer and gradient scaler: tensors and numbers
                       meta.json            update, place in the data, scores, those of all earlier
                                            validations, hashes of vocabulary and text, and the
                                            checksums of the other two

The learning rate is a function of the update and of those scores, and the random numbers of a batch
are a function of the seed and its place, so a checkpoint is all that resuming needs. It is written
once, before its validation, which may take long; the scores are then put into meta.json.

Reading one executes nothing from it: safetensors holds numbers only, and state.pt is read with
`weights_only=True`.
"""

import hashlib
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dynconv.config import TrainConfig
from dynconv.config.files import replace_text, sha256, write_through
from dynconv.errors import UserError
from dynconv.tasks import Validation
from dynconv.text import Prepared
from dynconv.train.data import Place
from dynconv.train.distributed import Ranks
from dynconv.train.log import read as read_log
from dynconv.train.session import Progress, Session

FORMAT = "dynconv checkpoint 3"


class Checkpoint(NamedTuple):
    """A complete checkpoint on disk."""

    path: Path
    meta: dict[str, Any]

    @property
    def scores(self) -> Validation | None:
        """Its validation; None when there was none yet."""
        if self.meta["score"] is None:
            return None
        return Validation(self.meta["loss"], self.meta["score"], self.meta.get("metric", ""))

    @property
    def quality(self) -> tuple[float, float]:
        """Higher is better: the score on the validation split, then the lower loss."""
        return self.scores.quality if self.scores else (-math.inf, -math.inf)


def save(path: Path, model: nn.Module, state: dict | None, meta: dict[str, Any]) -> Checkpoint:
    """Write a checkpoint; it appears under its name only when it is complete.

    Raises UserError when the disk refuses it; earlier checkpoints stay.
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
    """Return the model's parameters by name, a shared one once."""
    return {name: p.detach().contiguous() for name, p in model.named_parameters()}


def listing(run: Path) -> list[Checkpoint]:
    """Return the readable checkpoints of a run, oldest first; an average follows its last part.

    Those that are half written, half deleted, or have a damaged meta.json are left out.
    """
    found = []
    for path in directories(run):
        with suppress(UserError):
            found.append(opened(path))
    return sorted(found, key=lambda c: (c.meta["update"], c.path.name))


def directories(run: Path) -> list[Path]:
    """Return the directories of all checkpoints, readable or not."""
    files = (run / "checkpoints").glob("*/meta.json")
    return [file.parent for file in files if file.parent.suffix != ".part"]


def opened(path: Path) -> Checkpoint:
    """Open the checkpoint in a directory; UserError when it is none of dynconv."""
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
    """Read the weights of a checkpoint by name; UserError when the file is damaged."""
    from safetensors.torch import load

    return load(_intact(checkpoint, "model.safetensors"))


def load_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """Read the states of optimizer and scaler; UserError when the file is damaged."""
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
    """Read the newest intact checkpoint that training left: with its weights and its state.

    Reports damaged checkpoints and falls back to an older one. Returns None when there are no
    checkpoints; raises UserError when all of them are damaged.
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
    """Copy tensors into the model; UserError when names or shapes do not match."""
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


def check_vocabulary(owner: Path, digest: str, run: Path) -> None:
    """Raise UserError when `owner` was made with another vocabulary than that of the run.

    digest: sha256 of the vocabulary that it was made with. Ids mean nothing without it.
    """
    if digest != sha256(run / "vocabulary.json"):
        raise UserError(f"{owner}: made with another vocabulary than {run / 'vocabulary.json'}")


def mean(checkpoints: list[Checkpoint]) -> dict[str, Tensor]:
    """Return the average of the weights of several checkpoints."""
    total: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        for name, tensor in load_weights(checkpoint).items():
            total[name] = total[name] + tensor if name in total else tensor
    return {name: tensor / len(checkpoints) for name, tensor in total.items()}


def validated(run: Path) -> list[Checkpoint]:
    """Return the checkpoints of a run that have scores, oldest first, without the average."""
    return [c for c in listing(run) if c.meta["score"] is not None and c.path.name.isdecimal()]


def prune(run: Path, keep: int) -> None:
    """Delete all but the newest checkpoint, the best, and the `keep` newest validated ones.

    What a kill has left half written or half deleted is deleted as well.
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
    """Return the `best` on the validation split, the `last`, or one by its name (`000500`).

    The last is the average where there is one.
    """
    if which not in ("best", "last"):
        return opened(run / "checkpoints" / which)
    checkpoints = listing(run)
    if not checkpoints:
        raise UserError(f"{run}: no checkpoint in it yet")
    return max(checkpoints, key=lambda c: c.quality) if which == "best" else checkpoints[-1]


def save_session(session: Session) -> None:
    """Save a checkpoint that has no scores yet: rank 0 writes, the others wait."""
    config, progress, history = session.recipe.train, session.progress, session.history
    meta = {
        "update": progress.updates,
        "place": progress.place,
        "batches": config.accumulate * session.ranks.size,
        "device": session.ranks.device.type,
        "loss": None,
        "score": None,
        "history": [found._asdict() for found in history],
        "vocabulary": session.corpus.files["vocabulary.json"]["sha256"],
        "text": text_hash(session.corpus),
    }

    def write() -> None:
        state = {
            "optimizer": session.optimizer.state_dict(),
            "scaler": session.scaler.state_dict(),
        }
        save(path_of(session), session.model, state, meta)

    session.ranks.once(write)


def record_scores(session: Session, found: Validation) -> None:
    """Add a validation to the history and to the newest checkpoint, and delete old checkpoints."""

    def write() -> None:
        path = path_of(session)
        meta = opened(path).meta | found._asdict()
        replace_text(path / "meta.json", json.dumps(meta, indent=1))
        prune(session.run, session.recipe.train.keep)

    session.ranks.once(write)
    session.history.append(found)
    session.progress = session.progress._replace(validated=True)


def save_average(session: Session, found: Validation) -> None:
    """Save the model's weights, which are an average, with scores of their own."""
    meta = listing(session.run)[-1].meta | found._asdict()
    session.ranks.once(lambda: save(average_of(session.run), session.model, None, meta))


def path_of(session: Session) -> Path:
    """Return where the checkpoint of the session's progress belongs."""
    return session.run / "checkpoints" / f"{session.progress.updates:06d}"


def average_of(run: Path) -> Path:
    """Return where the average of the last checkpoints belongs."""
    return run / "checkpoints" / "average"


def average_weights(session: Session) -> None:
    """Give the model the mean weights of the last train.average validated checkpoints."""
    most = session.recipe.train.average
    last = session.ranks.once(lambda: validated(session.run)[-most:])
    fill(session.model, mean(last), session.run / "checkpoints")


def restore(session: Session) -> None:
    """Continue from the newest intact checkpoint of the run, if there is one; rank 0 finds it."""
    run = session.run

    def find() -> tuple[str, list[Validation]] | None:
        nonlocal found
        found = newest(run, lambda text: print(f"dynconv: {text}", file=sys.stderr))
        if found is None:
            return None
        prune(run, session.recipe.train.keep)
        return found[0].path.name, history_of(found[0], session.recipe.train)

    found = None
    agreed = session.ranks.once(find)
    if agreed is None:
        return
    name, session.history = agreed
    if found is None:  # not rank 0
        last = opened(run / "checkpoints" / name)
        found = last, load_weights(last), load_state(last)
    last, weights, state = found
    check_vocabulary(last.path, last.meta["vocabulary"], run)
    if last.meta["text"] != text_hash(session.corpus):
        where = session.corpus.directory
        raise UserError(f"{where}: not the text with which {last.path} was trained")
    check_machine(last, session.recipe.train, session.ranks)
    fill(session.model, weights, last.path)
    session.optimizer.load_state_dict(state["optimizer"])
    session.scaler.load_state_dict(state["scaler"])
    place = Place(*last.meta["place"])
    session.progress = Progress(last.meta["update"], place, last.scores is not None)


def history_of(last: Checkpoint, config: TrainConfig) -> list[Validation]:
    """Return all validations up to a checkpoint, oldest first.

    Checkpoints of dynconv 0.1 hold none but their own, so for them the earlier ones are read from
    log.jsonl: the only place where the log decides anything. Raises UserError when it is missing
    and the recipe depends on it.
    """
    own = [last.scores] if last.scores else []
    if "history" in last.meta:
        return [Validation(**found) for found in last.meta["history"]] + own
    run, earlier = last.path.parent.parent, []
    if (run / "log.jsonl").exists():
        events = [e for e in read_log(run) if e["event"] == "valid"]
        earlier = [e for e in events if e["update"] < last.meta["update"]]
    elif config.schedule == "plateau" or config.patience is not None:
        raise UserError(
            f"{run / 'log.jsonl'}: missing, and {last.path}, which dynconv 0.1 made, does not hold "
            "the validations that train.schedule plateau and train.patience depend on"
        )
    return [Validation(*(e[name] for name in Validation._fields)) for e in earlier] + own


def text_hash(corpus: Prepared) -> str:
    """Return the checksum of the training text: a place in it means nothing in another."""
    return corpus.files["train.tokens"]["sha256"]


def check_machine(checkpoint: Checkpoint, config: TrainConfig, ranks: Ranks) -> None:
    """Raise UserError when resuming here would change an update's size, or leave a GPU idle."""
    batches, now = checkpoint.meta["batches"], config.accumulate * ranks.size
    if now != batches:
        remedy = (
            f"give train.accumulate={batches // ranks.size}"
            if batches % ranks.size == 0
            else f"start a number of processes that divides {batches}"
        )
        raise UserError(
            f"{checkpoint.path}: its updates are of {batches} batches, and now of {now} "
            f"(train.accumulate {config.accumulate}, processes {ranks.size}): {remedy}"
        )
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    if checkpoint.meta["device"] == "cuda" and ranks.device.type == "cpu" and not chosen:
        raise UserError(
            f"{checkpoint.path}: trained on a GPU, but none is visible here: see dynconv doctor, "
            "or set CUDA_VISIBLE_DEVICES= to go on with the CPU"
        )
