"""The raw files of a corpus: from mirrors or local copies into one directory, unpacked there."""

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from dynconv.config.files import locked, refusal
from dynconv.errors import UserError
from dynconv.text.archive import ELSEWHERE, stem, unpack
from dynconv.text.catalog import CorpusFile, Entry, find
from dynconv.text.download import discard, download


def fetch(name: str, out: Path | None = None, source: Path | None = None) -> list[Path]:
    """Get a corpus into `out` (default: data/raw/NAME) from its mirrors, or from local copies.

    Files that are there and without fault are kept. `source` is a directory that has the files by
    the names of the manifest, or in place of the archive STEM.tgz a directory STEM of what is in
    it; with it nothing is downloaded. Raises UserError when a file cannot be had, which says what
    to do next; what was fetched stays.
    """
    entry = find(name)
    if entry.shipped:
        print(f"{name} is shipped with dynconv and needs no fetching: {entry.directory}")
        return [entry.directory / file.name for file in entry.files]
    directory = out or entry.directory
    try:
        wanted = [file for file in entry.files if not _is_kept(file, directory)]
        if wanted:
            print(f"{name}: licence: {entry.licence}. {entry.note}".rstrip())
            print(f"{name}: please cite {entry.citation}")
            directory.mkdir(parents=True, exist_ok=True)
            with _alone(directory):
                if source:
                    _take(entry, wanted, source, directory)
                else:
                    _get(entry, wanted, directory)
    except OSError as error:
        raise UserError(
            f"cannot save {name} in {directory}: {refusal(error, ELSEWHERE)}; what is there is kept"
        ) from None
    return [directory / file.name for file in entry.files]


def _is_kept(file: CorpusFile, directory: Path) -> bool:
    path, unpacked = directory / file.name, directory / stem(file.name)
    if path.is_file():
        fault = file.fault(path)
        print(f"{path}: {f'{fault}; it will be fetched again' if fault else file.verified(path)}")
        return not fault
    if unpacked.is_dir():
        print(f"{unpacked}: unpacked already")
    return unpacked.is_dir()


def _alone(directory: Path) -> AbstractContextManager:
    return locked(directory / ".lock", f"{directory}: another process fetches or unpacks there")


def _get(entry: Entry, files: list[CorpusFile], directory: Path) -> None:
    if licensed := ", ".join(file.name for file in files if not file.urls):
        raise UserError(
            f"{entry.name} cannot be downloaded. {entry.note} Then: dynconv data fetch "
            f"{entry.name} --from DIR, with {licensed} in DIR"
        )
    if known := sum(file.bytes or 0 for file in files):
        more = "" if all(file.bytes for file in files) else ", and files of unknown size"
        print(f"{entry.name}: {_size(known)} to fetch{more}", flush=True)
    failures = []
    for file in files:  # another corpus may have it
        beside = entry.directory.parent.glob(f"*/{file.name}") if file.verifiable else ()
        same = next((path for path in beside if not file.fault(path)), None)
        try:
            path = _link(same, directory / file.name) if same else download(file, directory)
        except UserError as error:
            failures.append(str(error))
        else:
            print(f"{path}: {file.verified(path)}{f', from {same}' if same else ''}")
    if failures:
        raise UserError(
            f"{'; '.join(failures)}; the same command tries again; or get "
            f"{'the file' if len(failures) == 1 else 'these files'} elsewhere and add --from DIR"
        )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _take(entry: Entry, files: list[CorpusFile], source: Path, directory: Path) -> None:
    lacking = []
    for file in files:
        given, unpacked = source / file.name, source / stem(file.name)
        if given.is_file():
            if fault := file.fault(given):
                raise UserError(f"{given}: {fault}; it is damaged, or another file of that name")
            print(f"{_link(given, directory / file.name)}: {file.verified(given)}")
        elif unpacked.is_dir():
            part = directory / f"{unpacked.name}.part"
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(unpacked, part, copy_function=_second_name)
            os.replace(part, directory / unpacked.name)
            print(f"{directory / unpacked.name}: what is in {unpacked}, not verified")
        else:
            lacking.append(file)
    if lacking:
        names = ", ".join(file.name for file in lacking)
        public = all(file.urls for file in lacking)
        advice = f"dynconv data fetch {entry.name} downloads the rest" if public else entry.note
        raise UserError(f"{source} has no {names}; what it has is taken. {advice}")


def _link(path: Path, target: Path) -> Path:
    """Give a file a second name, which is there when the file is whole."""
    part = target.with_name(target.name + ".part")
    discard(part)
    _second_name(path, part)
    os.replace(part, target)
    return target


def _second_name(path: str | Path, target: str | Path) -> None:
    try:
        os.link(os.path.realpath(path), target)
    except OSError:  # the file system has none, or this is another one
        shutil.copyfile(path, target)


def fetched(name: str, out: Path | None = None) -> Path:
    """The directory of a fetched corpus: each archive STEM.tgz is unpacked into STEM/ there.

    `out` is where `fetch` put it. Nothing is fetched; raises UserError when a file is missing.
    """
    entry = find(name)
    directory = out or entry.directory
    if missing := ", ".join(file.name for file in entry.missing(directory)):
        where = f" --out {out}" if out else ""
        raise UserError(f"{directory} has no {missing}: dynconv data fetch {name}{where} first")
    pairs = [(directory / file.name, directory / stem(file.name)) for file in entry.files]
    packed = [(file, into) for file, into in pairs if file != into and not into.is_dir()]
    if not packed:
        return directory
    try:
        with _alone(directory):
            for archive, into in packed:
                print(f"{archive}: unpacking", flush=True)
                unpack(archive, into)
    except OSError as error:
        raise UserError(
            f"{name} cannot be unpacked in {directory}: {refusal(error, ELSEWHERE)}"
        ) from None
    return directory
