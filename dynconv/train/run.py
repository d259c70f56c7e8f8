"""The run directory: everything that is needed to resume and to reproduce a run.

recipe.yaml         the resolved recipe
bpe.json            the vocabulary
environment.json    versions, commit and device, a list with one entry for each start
log.jsonl           one line an event; tensorboard/ has the same curves
checkpoints/        see `dynconv.train.checkpoint`
"""

import hashlib
import json
import platform
import subprocess
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import torch

from dynconv import recipe as recipes
from dynconv.config import Recipe
from dynconv.errors import UserError
from dynconv.models import Seq2Seq, build
from dynconv.text import BPE
from dynconv.train import checkpoint as checkpoints
from dynconv.train.checkpoint import Checkpoint
from dynconv.train.data import learn_bpe
from dynconv.train.files import replace_text


def open_run(run: Path, recipe: Recipe) -> tuple[Recipe, BPE]:
    """The recipe and vocabulary to train with: new ones, or those of the run to go on with.

    Raises UserError when the directory holds the run of another recipe.
    """
    if not (run / "recipe.yaml").exists():
        bpe = learn_bpe(recipe)
        run.mkdir(parents=True, exist_ok=True)
        bpe.save(run / "bpe.json")
        return recipe, bpe
    there = recipes.load(run / "recipe.yaml")
    if recipe.train.precision == "auto":  # it was decided when the run began
        recipe = with_precision(recipe, there.train.precision)
    if changed := recipes.differences(recipe, there):
        raise UserError(
            f"{run} holds the run of another recipe ({'; '.join(changed)}): "
            "name another --run, or give the same values to go on"
        )
    return recipe, BPE.load(run / "bpe.json")


def default_device() -> torch.device:
    """The first GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def with_precision(recipe: Recipe, precision: str) -> Recipe:
    """The recipe with its train.precision decided."""
    return replace(recipe, train=replace(recipe.train, precision=precision))


def record(run: Path, recipe: Recipe, device: torch.device) -> None:
    """Write the resolved recipe, and add this start to environment.json."""
    replace_text(run / "recipe.yaml", recipes.dump(recipe))
    path = run / "environment.json"
    cuda = device.type == "cuda"
    start = {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("dynconv", "torch", "tokenizers", "numpy")},
        "commit": _commit(),
        "device": torch.cuda.get_device_name(device) if cuda else _processor(),
        "threads": torch.get_num_threads(),
    }
    starts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    replace_text(path, json.dumps([*starts, start], indent=1))


class Trained(NamedTuple):
    """What a run directory gives to those who use its model."""

    recipe: Recipe
    bpe: BPE
    model: Seq2Seq
    checkpoint: Checkpoint


def load_model(run: Path, which: str = "best") -> Trained:
    """A run's model in eval mode, with the weights of a checkpoint: "best", "last" or a name.

    Raises UserError when a file is missing, truncated, foreign or of another recipe.
    """
    if not (run / "recipe.yaml").exists():
        raise UserError(f"{run}: no run directory (it has no recipe.yaml)")
    recipe, bpe = recipes.load(run / "recipe.yaml"), BPE.load(run / "bpe.json")
    checkpoint = checkpoints.choose(run, which)
    checkpoints.check_vocabulary(checkpoint, vocabulary_hash(run))
    model = build(recipe.model).to(default_device())
    checkpoints.fill(model, checkpoints.load_weights(checkpoint), checkpoint.path)
    return Trained(recipe, bpe, model.eval(), checkpoint)


def vocabulary_hash(run: Path) -> str:
    """sha256 of bpe.json: weights mean nothing with another vocabulary."""
    return hashlib.sha256((run / "bpe.json").read_bytes()).hexdigest()


def _commit() -> str | None:
    """The commit of dynconv's working tree, with `+changes`; None when git does not track it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # fails inside another's repository
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
