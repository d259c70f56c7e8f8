"""Archives are unpacked whole or refused, and no entry lands outside the directory."""

import gzip
import io
import os
import random
import tarfile
import zipfile

import pytest

from dynconv.errors import UserError
from dynconv.text.archive import unpack

FILES = {"set/train.de": b"eins\n" * 9000, "set/deep/train.en": os.urandom(90_000)}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "raw"


def made(path, files=FILES, members=()):
    """A whole archive, of the kind that its name says, and further members of a tar."""
    path.parent.mkdir(exist_ok=True)
    if path.name == "a.gz":
        path.write_bytes(gzip.compress(b"".join(files.values())))
        return path
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in files.items():
                packed.writestr(name, content)
        return path
    with tarfile.open(path, "w:" if path.suffix == ".tar" else "w:gz") as packed:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
        for member in members:
            packed.addfile(member)
    return path


def refusal(path) -> str:
    """The one line; and nothing has been written but below the directory that was asked for."""
    top, into = path.parent.parent, path.parent / "x"
    before = set(top.rglob("*"))
    with pytest.raises(UserError) as error:
        unpack(path, into)
    assert {p for p in top.rglob("*") if not p.is_relative_to(into)} == before
    assert "\n" not in str(error.value) and str(error.value).startswith(f"{path}: ")
    return str(error.value)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz", "a.zip"])
def test_every_kind_of_archive_unpacks_to_the_same_files(folder, name):
    unpack(made(folder / name), folder / "a")
    found = {p.relative_to(folder / "a").as_posix(): p for p in (folder / "a").rglob("*.*")}
    assert {name: path.read_bytes() for name, path in found.items()} == FILES
    assert sorted(p.name for p in folder.iterdir()) == ["a", name]


def test_unpack_one_file(folder):
    folder.mkdir()
    (folder / "train.en.gz").write_bytes(gzip.compress(b"one\n"))
    unpack(folder / "train.en.gz", folder / "train.en")
    assert (folder / "train.en" / "train.en").read_bytes() == b"one\n"


def member(name, kind=tarfile.REGTYPE, target=""):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "entry",
    [
        member("../evil"),
        member("a/../../evil"),
        member("link", tarfile.SYMTYPE, "../../evil"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.LNKTYPE, "../../evil"),
        member("link", tarfile.LNKTYPE, "/etc/passwd"),
        member("device", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda entry: f"{entry.name}-{entry.type.decode()}{entry.linkname}",
)
def test_a_malicious_tar(folder, entry):
    message = refusal(made(folder / "a.tgz", members=[entry]))
    assert f"its entry {entry.name!r} leads out of the directory" in message


def test_a_link_with_a_long_name_is_refused(folder):
    """CVE-2025-4517: below names beyond PATH_MAX, tarfile's filter takes any link to be inside."""
    entries, path = [], ""
    for letter in "abcdefghijklmnop":
        deep = letter * 247
        entries.append(member(f"{path}{deep}", tarfile.DIRTYPE))
        entries.append(member(f"{path}{letter}", tarfile.SYMTYPE, deep))
        path += f"{letter}/"
    entries.append(member(f"{path}{'l' * 254}", tarfile.SYMTYPE, "../" * 16))
    entries.append(member("escape", tarfile.SYMTYPE, f"{path}{'l' * 254}/../../evil"))
    entries.append(member("escape/evil"))
    assert "its entry 'a' " in refusal(made(folder / "a.tgz", members=entries))


def test_a_link_that_stays_inside_is_refused(folder):
    link = member("link", tarfile.SYMTYPE, "set/train.de")
    assert "its entry 'link' " in refusal(made(folder / "a.tgz", members=[link]))


def test_a_tar_cannot_write_through_a_link_of_its_own(folder):
    link = member("out", tarfile.SYMTYPE, str(folder.parent))
    refusal(made(folder / "a.tgz", members=[link, member("out/evil")]))


def test_an_absolute_name_in_a_tar_stays_inside(folder, tmp_path):
    unpack(made(folder / "a.tar", {f"{tmp_path}/evil": b"!"}), folder / "a")
    assert not (tmp_path / "evil").exists()
    assert [p.read_bytes() for p in (folder / "a").rglob("evil")] == [b"!"]


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/etc/evil", "..\\evil", "a/../b"])
def test_a_malicious_zip(folder, name):
    assert f"its entry {name!r} leads out" in refusal(made(folder / "a.zip", {name: b"!"}))


@pytest.mark.parametrize("share", [0.001, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.zip", "a.gz"])
def test_a_truncated_archive(folder, name, share):
    path = made(folder / name)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert "truncated or corrupt" in refusal(path)


def test_a_tar_cut_between_two_entries(folder):
    path = made(folder / "a.tar")
    path.write_bytes(path.read_bytes()[: 512 + 45_056])  # one entry and its padding
    assert "truncated or corrupt (it has no end mark)" in refusal(path)


@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.zip", "a.gz"])
def test_a_page_instead_of_an_archive(folder, name):
    folder.mkdir()
    (folder / name).write_bytes(b"<!DOCTYPE html><html>Google Drive can't scan it</html>" * 40)
    assert "truncated or corrupt" in refusal(folder / name)


@pytest.mark.parametrize("name", ["a.tgz", "a.zip", "a.gz"])
@pytest.mark.parametrize("place", [45, 60_000], ids=["the codes", "what they code"])
def test_an_archive_with_changed_bytes_is_refused(folder, name, place):
    path = made(folder / name, {"train.en": random.Random(1).randbytes(100_000).hex().encode()})
    archived = bytearray(path.read_bytes())
    archived[place : place + 9] = bytes(9)
    path.write_bytes(archived)
    assert "truncated or corrupt" in refusal(path)
