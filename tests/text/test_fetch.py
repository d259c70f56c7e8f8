"""`data fetch` against a server of our own, and the unpacking of what it fetched."""

import gzip
import hashlib
import io
import os
import random
import re
import resource
import subprocess
import sys
import tarfile
import time

import pytest
from helpers.server import Served, serving

from dynconv import cli
from dynconv.errors import UserError
from dynconv.files import claim, locked
from dynconv.text import fetch as fetching
from dynconv.text.fetch import unpack_corpus

CONTENT = random.Random(1).randbytes(300_000)
WRONG = b"?" * 300_000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


MD5 = hashlib.md5(CONTENT).hexdigest()
PAGE = {"Content-Type": "text/html; charset=utf-8"}
BAD_MIRRORS = {
    "gone": (None, {}, "404 Not Found"),
    "sha256": (
        Served(WRONG),
        {},
        f"sha256 is {sha256(WRONG)}, the manifest says {sha256(CONTENT)}",
    ),
    "md5": (Served(WRONG), {"sha256": None, "md5": MD5}, "md5 is "),
    "size": (
        Served(b"short", stalls=30),
        {"bytes": 300_000},
        "it has 5 bytes, the manifest says 3",
    ),
    "stalls": (Served(CONTENT, stalls=30), {}, "Read timed out."),
    "dies": (Served(CONTENT, dies_after=200_000), {"sha256": None}, ""),
    "page": (Served(b"<!DOCTYPE html>", headers=PAGE), {"sha256": None}, "it sent a page, such as"),
}


@pytest.fixture
def server():
    with serving() as http:
        yield http


def described(*urls, name="a.tgz", content=CONTENT, **facts) -> dict:
    """A file of the manifest whose checksum is known."""
    return {"name": name, "urls": list(urls), "bytes": None, "sha256": sha256(content), **facts}


def fetch(*options) -> int:
    return cli.main(["data", "fetch", "small", *map(str, options)])


def failure(capsys, *options) -> str:
    """The one line of a fetch that must fail."""
    capsys.readouterr()
    assert fetch(*options) == 2
    error = capsys.readouterr().err
    assert error.startswith("dynconv: ") and error.count("\n") == 1
    return error


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.glob("*"))  # none if there is no directory


def test_fetch_tells_the_licence_verifies_and_does_not_fetch_twice(server, manifest, capsys):
    server.files["a.tgz"] = Served(CONTENT)
    raw = manifest(described(f"{server.url}/a.tgz"), note="Ask the publisher.")
    assert fetch() == 0
    licence, cite, download, verified = capsys.readouterr().out.splitlines()
    assert licence == "small: licence: for reading. Ask the publisher."
    assert cite == "small: please cite Reader 1999"
    assert download == f"a.tgz: downloading from {server.url}/a.tgz"
    assert verified == f"{raw / 'a.tgz'}: sha256 verified"
    assert (raw / "a.tgz").read_bytes() == CONTENT
    assert fetch() == 0
    assert capsys.readouterr().out == f"{raw / 'a.tgz'}: sha256 verified\n"
    assert server.requests == names(raw) == ["a.tgz"]


def test_out_sets_the_destination_and_the_umask_its_mode(server, manifest, tmp_path):
    server.files["a.tgz"] = Served(CONTENT)
    manifest(described(f"{server.url}/a.tgz"))
    assert fetch("--out", tmp_path / "deep" / "out") == 0
    path = tmp_path / "deep" / "out" / "a.tgz"
    assert path.read_bytes() == CONTENT
    (tmp_path / "another").touch()
    assert path.stat().st_mode == (tmp_path / "another").stat().st_mode


@pytest.mark.parametrize(
    "facts, told",
    [
        ({"sha256": None}, f"sha256 {sha256(CONTENT)}, not verified: the manifest records none"),
        ({"sha256": None, "md5": MD5}, "md5 verified"),
        ({}, "sha256 verified"),
    ],
)
def test_fetch_tells_how_a_file_was_verified(server, manifest, capsys, facts, told):
    server.files["a.tgz"] = Served(CONTENT)
    raw = manifest(described(f"{server.url}/a.tgz", **facts))
    assert fetch() == 0
    assert capsys.readouterr().out.endswith(f"{raw / 'a.tgz'}: {told}\n")


def packed(content=b"") -> bytes:
    """An archive a.tgz that holds `content` as set/train.de."""
    file = io.BytesIO()
    member = tarfile.TarInfo("set/train.de")
    member.size = len(content)
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def test_two_fetches_at_once(server, manifest, capsys):
    """Of fetching and unpacking, in one directory, one goes on; the other says why it does not."""
    server.files["a.tgz"] = Served(packed())
    raw = manifest(described(f"{server.url}/a.tgz", content=packed(), sha256=None))
    raw.mkdir(parents=True)
    told = f"{raw}: another process fetches or unpacks there (process {os.getpid()} on "
    with locked(raw / ".lock", "-"):
        assert told in failure(capsys)
    assert fetch() == 0
    with locked(raw / ".lock", "-"), pytest.raises(UserError, match=re.escape(told)):
        unpack_corpus("small")
    unpack_corpus("small")
    with locked(raw / ".lock", "-"):
        unpack_corpus("small")  # which has nothing to do
    assert names(raw) == ["a", "a.tgz"]


def test_the_size_is_reported_before(server, manifest, capsys):
    files = [described(f"{server.url}/{name}", name=name) for name in "ab"]
    server.files |= {"a": Served(CONTENT), "b": Served(CONTENT)}
    manifest(files[0] | {"bytes": len(CONTENT)}, files[1])
    assert fetch() == 0
    assert "\nsmall: 300kB to fetch, and files of unknown size\n" in capsys.readouterr().out


def test_a_file_that_no_server_has_does_not_stop_the_others(server, manifest, capsys):
    server.files["there"] = Served(CONTENT)
    files = [described(f"{server.url}/{name}", name=name) for name in ("x", "there", "y")]
    raw = manifest(*files)
    message = failure(capsys)
    assert names(raw) == ["there"]
    for name in "xy":
        assert f"could not fetch {name}: {server.url}/{name}: 404 Not Found; " in message
    assert message.endswith(
        "the same command tries again; or run dynconv data fetch with --from DIR, a directory with "
        "x, y\n"
    )


def test_a_read_only_destination_suggests_another(manifest, tmp_path, capsys, monkeypatch):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    raw = manifest(described())
    (tmp_path / "a.tgz").write_bytes(CONTENT)
    assert fetch("--from", tmp_path) == 0
    monkeypatch.setattr(fetching, "locked", refuse)
    told = (
        f"{raw}: cannot be written (Read-only file system); fetch into another directory, and "
        "prepare from there; the rest is kept"
    )
    with pytest.raises(UserError, match=re.escape(told)):
        unpack_corpus("small")
    (raw / "a.tgz").unlink()
    assert told in failure(capsys, "--from", tmp_path)


@pytest.mark.parametrize("bad, facts, reason", BAD_MIRRORS.values(), ids=BAD_MIRRORS)
def test_a_bad_mirror_is_named_and_the_next_tried(
    server, manifest, monkeypatch, capsys, bad, facts, reason
):
    monkeypatch.setattr(fetching, "TIMEOUT", (10, 1.5))
    server.files["good"] = Served(CONTENT)
    if bad:
        server.files["bad"] = bad
    urls = [f"{server.url}/bad", f"{server.url}/good"]
    raw = manifest(described(urls[0], **facts))
    assert f"could not fetch a.tgz: {urls[0]}: {reason}" in failure(capsys)
    assert names(raw) == []
    manifest(described(*urls, **facts))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT and names(raw) == ["a.tgz"]
    assert server.requests == ["bad", "bad", "good"]


FETCH = """
import sys
from pathlib import Path
from dynconv.text import fetch, manifest
data = Path(sys.argv[1])
manifest.data_dir, manifest.raw_dir = lambda: data, lambda: data / "raw"
fetch.fetch("small")
"""


def test_after_a_kill_it_starts_again(server, manifest):
    """What a killed process leaves has another name, and the next one removes it."""
    server.files["a.tgz"] = Served(CONTENT, stalls=60)
    raw = manifest(described(f"{server.url}/a.tgz"))
    process = subprocess.Popen([sys.executable, "-c", FETCH, str(raw.parents[1])])
    while not server.requests and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert server.requests == ["a.tgz"] and names(raw) == [".lock", ".part"]
    assert len(names(raw / ".part")) == 3  # the mark, the lock, and a file
    server.files["a.tgz"].stalls = 0
    assert fetch() == 0
    assert names(raw) == ["a.tgz"]


def test_a_redirection_is_followed(server, manifest):
    """Its own answer is a short page."""
    headers = {"Content-Type": "text/html", "Location": f"{server.url}/file"}
    server.files |= {"moved": Served(b"moved", status=302, headers=headers)}
    server.files |= {"file": Served(CONTENT)}
    raw = manifest(described(f"{server.url}/moved", bytes=len(CONTENT)))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT


def test_an_archive_declared_as_encoded_stays_as_it_is(server, manifest):
    content = gzip.compress(CONTENT)
    server.files["a.tgz"] = Served(content, headers={"Content-Encoding": "x-gzip"})
    raw = manifest(described(f"{server.url}/a.tgz", content=content))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == content


def test_every_mirror_that_failed_is_named_with_its_reason(server, manifest, capsys):
    server.files["there"] = Served(CONTENT)
    closed = "http://127.0.0.1:9/a.tgz"  # the discard port: nobody listens
    nowhere = "http://nowhere.invalid/a.tgz"
    raw = manifest(
        described(f"{server.url}/there", name="b.tgz"),
        described(f"{server.url}/gone", closed, nowhere),
    )
    message = failure(capsys)
    assert message.startswith(f"dynconv: could not fetch a.tgz: {server.url}/gone: 404 Not Found; ")
    assert f"{closed}: [Errno 111] Connection refused; {nowhere}: " in message
    assert names(raw) == ["b.tgz"]  # kept
    server.files["gone"] = Served(CONTENT)
    assert fetch() == 0
    assert server.requests.count("there") == 1


def test_a_changed_file_is_fetched_again(server, manifest, capsys):
    server.files["a.tgz"] = Served(CONTENT)
    raw = manifest(described(f"{server.url}/a.tgz"))
    raw.mkdir(parents=True)
    (raw / "a.tgz").write_bytes(WRONG)
    assert fetch() == 0
    told = f"sha256 is {sha256(WRONG)}, the manifest says {sha256(CONTENT)}; it will be fetched ag"
    assert told in capsys.readouterr().out
    assert (raw / "a.tgz").read_bytes() == CONTENT


@pytest.fixture
def full_disk():
    """Writing beyond 100,000 bytes of a file fails."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk(server, manifest, capsys, full_disk):
    server.files |= {"a.tgz": Served(CONTENT), "small": Served(packed())}
    raw = manifest(
        described(f"{server.url}/small", name="small.tgz", content=packed(), sha256=None),
        described(f"{server.url}/a.tgz"),
    )
    told = f"{raw}: cannot be written (File too large); the rest is kept\n"
    assert told in failure(capsys)
    assert names(raw) == ["small.tgz"]


def test_a_full_disk_while_unpacking(manifest, full_disk):
    raw = manifest(described(sha256=None))
    raw.mkdir(parents=True)
    (raw / "a.tgz").write_bytes(packed(b"eins\n" * 90_000))
    with pytest.raises(UserError, match=rf"{raw}: cannot be written \(File too large\); the rest"):
        unpack_corpus("small")
    assert names(raw) == ["a.tgz"]


def test_an_unwritable_destination(manifest, tmp_path, capsys):
    manifest(described("http://127.0.0.1:9/a.tgz"))
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "below"
    assert f"{out}: cannot be written (Not a directory)" in failure(capsys, "--out", out)


def test_from_takes_local_copies(server, manifest, tmp_path, capsys):
    raw = manifest(described(f"{server.url}/a.tgz"), described(f"{server.url}/b", name="b.txt"))
    given = tmp_path / "given"
    given.mkdir()
    (given / "a.tgz").symlink_to(tmp_path / "elsewhere.tgz")
    (tmp_path / "elsewhere.tgz").write_bytes(CONTENT)
    message = failure(capsys, "--from", given)
    assert message.endswith(f"{given} has no b.txt; dynconv data fetch small downloads the rest\n")
    assert names(raw) == ["a.tgz"]
    (given / "b.txt").write_bytes(WRONG)
    assert f"{given / 'b.txt'}: sha256 is {sha256(WRONG)}, the man" in failure(
        capsys, "--from", given
    )
    (given / "b.txt").write_bytes(CONTENT)
    assert fetch("--from", given) == 0
    assert f"{raw / 'b.txt'}: sha256 verified\n" in capsys.readouterr().out
    assert not (raw / "a.tgz").is_symlink()
    assert [(raw / name).read_bytes() for name in names(raw)] == [CONTENT] * 2
    assert server.requests == []


def test_from_a_directory_that_is_not_there(manifest, tmp_path, capsys):
    manifest(described())
    message = failure(capsys, "--from", tmp_path / "nowhere")
    assert f"{tmp_path / 'nowhere'}: no such directory" in message


def killed(raw):
    """Leave what a killed process does."""
    claim(raw / ".part", "-")
    (raw / ".part" / "a" / "of a killed process").mkdir(parents=True)


def test_from_takes_a_directory_of_what_is_in_the_archive(manifest, tmp_path, capsys):
    raw = manifest(described())
    (tmp_path / "given" / "a").mkdir(parents=True)
    (tmp_path / "given" / "a" / "train.de").write_text("eins\n")
    killed(raw)
    assert fetch("--from", tmp_path / "given") == 0
    assert [p.read_text() for p in unpack_corpus("small").rglob("train.de")] == ["eins\n"]
    assert names(raw) == ["a"]
    assert fetch() == 0
    assert capsys.readouterr().out.endswith(f"{raw / 'a'}: unpacked already, not verified\n")


def test_files_without_a_mirror_are_reported_with_how_to_get_them(manifest, tmp_path, capsys):
    files = [described(name=name, sha256=None) for name in ("input.txt", "ref.txt")]
    raw = manifest(*files, note="Apply at https://publisher.example.")
    assert fetch() == 2
    said = capsys.readouterr()
    assert (said.out + said.err).count("Apply at") == 1 and not raw.exists()
    message = failure(capsys)
    assert "could not fetch input.txt: it has no mirror; " in message
    remedy = (
        "Apply at https://publisher.example. Then run dynconv data fetch with --from DIR, a "
        "directory with "
    )
    assert message.endswith(f"{remedy}input.txt, ref.txt\n")
    (tmp_path / "input.txt").write_text("eins\n")
    message = failure(capsys, "--from", tmp_path)
    assert message.endswith(f"{tmp_path} has no ref.txt; {remedy}ref.txt\n")
    (tmp_path / "ref.txt").write_text("one\n")
    assert fetch("--from", tmp_path) == 0
    assert names(raw) == ["input.txt", "ref.txt"]


def test_what_another_corpus_has_is_not_fetched_again(server, manifest, capsys):
    raw = manifest(described(f"{server.url}/a.tgz"))
    for other, content in {"damaged": WRONG, "whole": CONTENT}.items():
        (raw.parent / other).mkdir(parents=True)
        (raw.parent / other / "a.tgz").write_bytes(content)
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT
    assert capsys.readouterr().out.endswith(f"sha256 verified, from {raw.parent}/whole\n")
    assert server.requests == []


def test_archives_are_unpacked_once(manifest):
    said = []
    raw = manifest(described(sha256=None), described(name="list.txt", sha256=None))
    with pytest.raises(UserError, match="has no a.tgz, list.txt: dynconv data fetch small first"):
        unpack_corpus("small")
    raw.mkdir(parents=True)
    (raw / "a.tgz").write_bytes(packed(b"eins\n"))
    (raw / "list.txt").touch()
    assert unpack_corpus("small", say=said.append) == raw
    assert (raw / "a" / "set" / "train.de").read_text() == "eins\n"
    assert said == [f"{raw / 'a.tgz'}: unpacking"]
    (raw / "a.tgz").unlink()  # to save room
    assert unpack_corpus("small") == unpack_corpus("small", raw, say=said.append) == raw
    assert len(said) == 1


def test_nothing_of_a_corrupt_archive_stays(manifest):
    raw = manifest(described(sha256=None))
    raw.mkdir(parents=True)
    (raw / "a.tgz").write_bytes(packed(os.urandom(90_000))[:60_000])
    killed(raw)
    with pytest.raises(UserError, match="a.tgz: truncated or corrupt"):
        unpack_corpus("small")
    assert names(raw) == ["a.tgz"]
    (raw / "a.tgz").write_bytes(packed(b"eins\n"))
    killed(raw)
    assert names(unpack_corpus("small") / "a") == ["set"]


def test_fetch_of_a_shipped_corpus_needs_no_download(capsys):
    assert cli.main(["data", "fetch", "jane-austen"]) == 0
    assert "jane-austen is shipped with dynconv and needs no fetching" in capsys.readouterr().out


def test_the_bar_is_for_terminals(server, manifest, tmp_path, capsys, monkeypatch):
    server.files["a.tgz"] = Served(CONTENT)
    manifest(described(f"{server.url}/a.tgz"))
    assert fetch("--out", tmp_path / "file") == 0 and capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert fetch("--out", tmp_path / "terminal") == 0
    assert "100%" in capsys.readouterr().err
