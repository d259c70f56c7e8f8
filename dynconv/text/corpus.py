"""Finds corpora, shipped ones or your own, and their files."""

from pathlib import Path
from typing import NamedTuple

from dynconv.errors import UserError, did_you_mean, quoted
from dynconv.paths import data_dir
from dynconv.text.lines import OPENERS, read_lines, stream_parallel
from dynconv.text.manifest import read_manifest

SPLITS = ("train", "valid", "test")
PREPARED = "prepared"
"""the folder, in the working directory, for the corpora that `dynconv data prepare` makes"""


class NotPreparedError(UserError):
    """Reports a corpus of the manifest that `dynconv data` can fetch and prepare."""


class ParallelText(NamedTuple):
    """A parallel text: line i of `target` translates line i of `source`."""

    source: list[str]
    target: list[str]


def corpus_dir(corpus: str) -> Path:
    """Return the directory of a corpus, given its path or the name of a shipped one.

    The name of a shipped corpus always means that one: a directory of the same name in the working
    directory is `./NAME`. Given its own result as text, it returns the same directory.

    Raises NotPreparedError for a corpus of the manifest that is not prepared yet, else UserError.
    """
    if not corpus:
        raise UserError("the name of the corpus is empty: dynconv data list shows the known ones")
    shipped = {file.parent.name: file.parent for file in sorted(data_dir().glob("*/train.*.xz"))}
    if corpus in shipped:
        return shipped[corpus]
    if (path := Path(corpus)).is_dir():
        return path.absolute() if str(path) in shipped else path
    others = [name for name in read_manifest() if name not in shipped]
    if any(f"{Path(corpus).name}-".startswith(f"{name}-") for name in others):
        raise NotPreparedError(
            f"no directory {corpus}; dynconv data fetch and dynconv data prepare make "
            f"{PREPARED}/{Path(corpus).name}; the comment at the head of the recipe, or of its "
            "base, says how"
        )
    hint = did_you_mean(corpus, [*shipped, *(f"{PREPARED}/{name}" for name in others)])
    hint = hint or f"the shipped corpora are {', '.join(shipped)}"
    tried = Path(corpus).absolute()
    raise UserError(f"no corpus {quoted(corpus)}: not shipped, and no directory {tried}; {hint}")


def check_suffix(suffix: str) -> None:
    """Raise UserError unless a text can be the suffix of a file."""
    if not suffix or Path(f"train.{suffix}").name != f"train.{suffix}":
        raise UserError(f"{quoted(suffix)} is not the suffix of a file such as train.de")


def require_split(directory: Path, name: str) -> Path:
    """Return the file `name` ("train.de") in a directory, or NAME.xz, or NAME.gz.

    Raises UserError when there is none.
    """
    if (path := find_split(directory, name)) is not None:
        return path
    split, _, suffix = name.partition(".")
    splits = sorted({file.name.partition(".")[0] for file in directory.glob(f"*.{suffix}*")})
    others = sorted(file.name for file in directory.glob(f"{split}.*"))
    hint = ""
    if splits:
        hint = f"; there are the splits {', '.join(splits)}"
    elif others:
        hint = f"; there are {', '.join(others)}: name the suffixes by data.source and data.target"
    names = [name, *(name + suffix for suffix in OPENERS)]
    raise UserError(f"{directory}: no {names[0]}, {names[1]} or {names[2]} there{hint}")


def find_split(directory: Path, name: str) -> Path | None:
    """Return the file `name` in a directory, or NAME.xz, or NAME.gz; None when there is none."""
    paths = (directory / f"{name}{suffix}" for suffix in ("", *OPENERS))
    return next(filter(Path.is_file, paths), None)


def require_references(directory: Path, name: str) -> list[Path]:
    """Return the files of all references of a split: `name` ("test.summary"), then NAME1, NAME2 ...

    Raises UserError when there is none.
    """
    files = [require_split(directory, name)]
    while (file := find_split(directory, f"{name}{len(files)}")) is not None:
        files.append(file)
    return files


def load_parallel(corpus: str, source: str, target: str, split: str) -> ParallelText:
    """Read a split ("train") of a corpus with two suffixes ("de", "en"), blank lines included."""
    directory = corpus_dir(corpus)
    paths = [require_split(directory, f"{split}.{suffix}") for suffix in (source, target)]
    pairs = list(stream_parallel(*paths))
    return ParallelText([s for s, _ in pairs], [t for _, t in pairs])


def load_lines(corpus: str, suffix: str, split: str) -> list[str]:
    """Read a split ("train") of the text of a language model, blank lines included."""
    return read_lines(require_split(corpus_dir(corpus), f"{split}.{suffix}"))
