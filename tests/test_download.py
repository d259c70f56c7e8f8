"""`data fetch` against a server of our own: what a user meets when all is well, and when not."""

import contextlib
import gzip
import hashlib
import io
import os
import pathlib
import random
import re
import sys
import tarfile

import pytest
import urllib3
import yaml
from server import Served, serving

from dynconv import cli
from dynconv.config.files import locked
from dynconv.errors import UserError
from dynconv.text import catalog, download
from dynconv.text import fetch as fetching
from dynconv.text.fetch import fetched

CONTENT = random.Random(1).randbytes(300_000)
WRONG = b"?" * 300_000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "WAIT", 0.01)
    with serving() as http:
        yield http


@pytest.fixture
def manifest(tmp_path, monkeypatch):
    """A function that makes a data directory whose manifest holds the given files."""
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setattr(catalog, "data_dir", lambda: data)
    monkeypatch.setattr(catalog, "raw_dir", lambda: data / "raw")

    def write(*files, name="small", note=""):
        corpus = {"name": name, "languages": ["de"], "sentences": None, "files": list(files)}
        corpus |= {"kind": "-", "description": "-", "note": note}
        corpus |= {"licence": "for reading", "citation": "Reader 1999"}
        (data / "manifest.yaml").write_text(yaml.safe_dump({"corpora": [corpus]}))
        return data / "raw" / name

    return write


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
    return sorted(path.name for path in directory.iterdir())


def test_fetch_tells_the_licence_verifies_and_does_not_fetch_twice(server, manifest, capsys):
    server.files["a.tgz"] = Served(CONTENT)
    raw = manifest(described(f"{server.url}/a.tgz"), note="Ask the publisher.")
    assert fetch() == 0
    licence, cite, verified = capsys.readouterr().out.splitlines()
    assert licence == "small: licence: for reading. Ask the publisher."
    assert cite == "small: please cite Reader 1999"
    assert verified == f"{raw / 'a.tgz'}: sha256 verified"
    assert (raw / "a.tgz").read_bytes() == CONTENT
    assert fetch() == 0
    assert capsys.readouterr().out == f"{raw / 'a.tgz'}: sha256 verified\n"
    assert server.requests == [("a.tgz", None)]
    assert names(raw) == ["a.tgz"]


def test_out_is_where_it_goes(server, manifest, tmp_path):
    server.files["a.tgz"] = Served(CONTENT)
    manifest(described(f"{server.url}/a.tgz"))
    assert fetch("--out", tmp_path / "deep" / "out") == 0
    assert (tmp_path / "deep" / "out" / "a.tgz").read_bytes() == CONTENT


def test_without_a_recorded_checksum_it_says_so(server, manifest, capsys):
    server.files["a.tgz"] = Served(CONTENT)
    manifest(described(f"{server.url}/a.tgz", sha256=None))
    assert fetch() == 0
    says = f"sha256 {sha256(CONTENT)}, not verified: the manifest records none\n"
    assert capsys.readouterr().out.endswith(says)


def test_md5_verifies_where_only_that_is_known(server, manifest, capsys):
    server.files |= {"bad": Served(WRONG), "good": Served(CONTENT)}
    md5 = hashlib.md5(CONTENT).hexdigest()
    urls = [f"{server.url}/bad", f"{server.url}/good"]
    raw = manifest(described(*urls, sha256=None, md5=md5))
    assert fetch() == 0
    assert capsys.readouterr().out.endswith("md5 verified\n")
    assert (raw / "a.tgz").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "headers, facts",
    [
        ({}, {}),
        ({"ETag": '"v1"'}, {"sha256": None}),
        ({"ETag": 'W/"v1"', "Last-Modified": "Mon"}, {"sha256": None}),
    ],
)
def test_a_dying_connection_is_continued(server, manifest, headers, facts):
    server.files["a.tgz"] = Served(CONTENT, dies=[150_000, 100_000], headers=headers)
    raw = manifest(described(f"{server.url}/a.tgz", **facts))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT
    starts = [asked and int(asked[6:-1]) for _, asked in server.requests]
    assert starts[0] is None and 100_000 < starts[1] <= 150_000 < starts[2]
    assert names(raw) == ["a.tgz"]


def test_without_length_a_dying_connection_is_continued_too(server, manifest, capsys):
    server.files["a.tgz"] = Served(CONTENT, dies=[150_000], chunked=True)
    raw = manifest(described(f"{server.url}/a.tgz", bytes=len(CONTENT)))
    assert "it has 150,000 bytes, the manifest says 300,000" in failure(capsys)
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT


def test_a_short_answer_that_the_library_takes_for_whole(server, manifest, monkeypatch):
    def lenient(response, *args, **more):
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            yield from stream(response, *args, **more)

    stream = urllib3.HTTPResponse.stream
    monkeypatch.setattr(urllib3.HTTPResponse, "stream", lenient)
    server.files["a.tgz"] = Served(CONTENT, dies=[150_000])
    raw = manifest(described(f"{server.url}/a.tgz", sha256=None))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT


def test_an_answer_that_is_too_long_is_not_kept(server, manifest, monkeypatch):
    def lenient(response, *args, **more):
        yield from stream(response, *args, **more)
        if len(server.requests) == 1:
            yield b"more"

    stream = urllib3.HTTPResponse.stream
    monkeypatch.setattr(urllib3.HTTPResponse, "stream", lenient)
    server.files["a.tgz"] = Served(CONTENT, headers={"ETag": '"v1"'})
    raw = manifest(described(f"{server.url}/a.tgz", sha256=None))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT
    assert server.requests == [("a.tgz", None)] * 2


def test_two_at_once(server, manifest, capsys):
    """Of fetching and unpacking, in one directory, one goes on; the other says why it does not."""
    content = io.BytesIO()
    tarfile.open(fileobj=content, mode="w:gz").close()
    server.files["a.tgz"] = Served(content.getvalue())
    raw = manifest(described(f"{server.url}/a.tgz", content=content.getvalue()))
    raw.mkdir(parents=True)
    told = f"{raw}: another process fetches or unpacks there (process {os.getpid()} on "
    with locked(raw / ".lock", "-"):
        assert told in failure(capsys)
    assert fetch() == 0
    with locked(raw / ".lock", "-"), pytest.raises(UserError, match=re.escape(told)):
        fetched("small")
    fetched("small")
    with locked(raw / ".lock", "-"):
        fetched("small")  # which has nothing to do
    assert names(raw) == ["a", "a.tgz"]


def test_the_size_is_told_before(server, manifest, capsys):
    files = [described(f"{server.url}/{name}", name=name, sha256=None) for name in "ab"]
    server.files |= {"a": Served(CONTENT), "b": Served(CONTENT)}
    manifest(files[0] | {"bytes": len(CONTENT)}, files[1])
    assert fetch() == 0
    assert "\nsmall: 0.3 MB to fetch, and files of unknown size\n" in capsys.readouterr().out
    assert fetching._size(6_640_000_000) == "6.6 GB"


def test_dead_files_do_not_stop_the_others(server, manifest, capsys):
    server.files["there"] = Served(CONTENT)
    files = [described(f"{server.url}/{name}", name=name) for name in ("x", "there", "y")]
    raw = manifest(*files)
    message = failure(capsys)
    assert names(raw) == ["there"]
    for name in "xy":
        assert f"could not fetch {name}: {server.url}/{name}: 404 Not Found; " in message
    assert message.endswith("tries again; or get these files elsewhere and add --from DIR\n")


def test_a_read_only_place_names_another(manifest, tmp_path, capsys, monkeypatch):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    raw = manifest(described())
    (tmp_path / "a.tgz").write_bytes(CONTENT)
    assert fetch("--from", tmp_path) == 0
    monkeypatch.setattr(fetching, "locked", refuse)
    told = "Read-only file system; give data fetch --out DIR, and data prepare --raw DIR"
    with pytest.raises(UserError, match=f"small cannot be unpacked in {raw}: {told}"):
        fetched("small")
    (raw / "a.tgz").unlink()
    assert f"cannot save small in {raw}: {told}" in failure(capsys, "--from", tmp_path)


def test_a_host_that_stalls(server, manifest, monkeypatch, capsys):
    monkeypatch.setattr(download, "TIMEOUT", (1, 0.05))
    server.files |= {"stalls": Served(CONTENT, stalls=0.2), "holds": Served(CONTENT)}
    manifest(described(f"{server.url}/stalls"))
    message = f"{server.url}/stalls: the connection broke: Read timed out."
    assert message in failure(capsys)
    raw = manifest(described(f"{server.url}/stalls", f"{server.url}/holds"))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT


@pytest.mark.parametrize("facts", [{}, {"sha256": None}])
def test_a_server_without_ranges_starts_again(server, manifest, facts):
    headers = {"ETag": '"v1"'}
    server.files["a.tgz"] = Served(CONTENT, dies=[150_000], ranges=False, headers=headers)
    raw = manifest(described(f"{server.url}/a.tgz", **facts))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT
    assert server.requests[1][1].startswith("bytes=")


def test_a_rest_that_begins_elsewhere_is_not_taken(server, manifest):
    headers = {"ETag": '"v1"'}
    server.files["a.tgz"] = Served(CONTENT, dies=[150_000], block=100_000, headers=headers)
    raw = manifest(described(f"{server.url}/a.tgz", sha256=None))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT


def test_without_version_and_checksum_it_starts_again(server, manifest):
    server.files["a.tgz"] = Served(CONTENT, dies=[150_000])
    raw = manifest(described(f"{server.url}/a.tgz", sha256=None))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT
    assert server.requests == [("a.tgz", None)] * 2


def test_a_later_command_goes_on(server, manifest, capsys):
    server.files["a.tgz"] = Served(CONTENT, dies=[150_000] + [0] * 3, headers={"ETag": '"v1"'})
    raw = manifest(described(f"{server.url}/a.tgz", sha256=None))
    message = failure(capsys)
    kept = (raw / "a.tgz.part").stat().st_size
    assert 100_000 < kept <= 150_000
    assert f" ({kept:,} bytes of it are kept); the same command tries again; or get" in message
    assert len(server.requests) == download.TRIES
    assert fetch() == 0
    assert server.requests[-1] == ("a.tgz", f"bytes={kept}-")
    assert (raw / "a.tgz").read_bytes() == CONTENT


def test_what_changed_between_is_fetched_anew(server, manifest, capsys):
    served = Served(WRONG, dies=[150_000] + [0] * 3, headers={"ETag": '"v1"'})
    server.files["a.tgz"] = served
    raw = manifest(described(f"{server.url}/a.tgz", sha256=None))
    failure(capsys)
    served.content, served.headers = CONTENT, {"ETag": '"v2"'}
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT


@pytest.mark.parametrize("length", [0, 100_000, 299_999, 300_000, 300_001])
def test_any_part_becomes_the_whole(server, manifest, length):
    """Also one that was whole when the command was killed, one too long, and one of other bytes."""
    for begun in ((CONTENT + b"!")[:length], WRONG[:length]):
        server.files["a.tgz"] = Served(CONTENT)
        raw = manifest(described(f"{server.url}/a.tgz"))
        raw.mkdir(parents=True, exist_ok=True)
        (raw / "a.tgz.part").write_bytes(begun)
        (raw / "a.tgz.part.of").write_text("http://elsewhere/a.tgz\n")
        assert fetch() == 0
        assert (raw / "a.tgz").read_bytes() == CONTENT
        assert names(raw) == ["a.tgz"]
        (raw / "a.tgz").unlink()


@pytest.mark.parametrize("size, asked", [(None, ["bytes=300000-"]), (300_000, [])])
def test_a_part_that_is_whole_is_not_fetched(server, manifest, size, asked):
    server.files["a.tgz"] = Served(CONTENT)
    raw = manifest(described(f"{server.url}/a.tgz", bytes=size))
    raw.mkdir(parents=True)
    (raw / "a.tgz.part").write_bytes(CONTENT)
    (raw / "a.tgz.part.of").write_text(f"{server.url}/a.tgz\n")
    assert fetch() == 0
    assert [asked for _, asked in server.requests] == asked


def test_the_next_mirror_goes_on_where_the_first_broke_off(server, manifest):
    server.files |= {"dies": Served(CONTENT, dies=[200_000] + [0] * 9), "holds": Served(CONTENT)}
    raw = manifest(described(f"{server.url}/dies", f"{server.url}/holds"))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT
    name, asked = server.requests[-1]
    assert name == "holds" and int(asked[6:-1]) > 100_000


def test_a_404_and_then_a_mirror(server, manifest):
    server.files["a.tgz"] = Served(CONTENT)
    raw = manifest(described(f"{server.url}/gone", f"{server.url}/a.tgz"))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT
    assert [name for name, _ in server.requests] == ["gone", "a.tgz"]


def test_a_wrong_checksum_and_then_a_mirror(server, manifest, capsys):
    server.files |= {"bad": Served(WRONG), "good": Served(CONTENT)}
    urls = [f"{server.url}/bad", f"{server.url}/good"]
    raw = manifest(described(urls[0]))
    message = failure(capsys)
    told = f"{urls[0]}: sha256 is {sha256(WRONG)}, the manifest says {sha256(CONTENT)};"
    assert told in message
    assert names(raw) == []
    manifest(described(*urls))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT


def test_a_wrong_size_is_refused_before_it_is_fetched(server, manifest, capsys):
    server.files |= {"dies": Served(CONTENT, dies=[200_000] + [0] * 9), "short": Served(b"short")}
    urls = [f"{server.url}/dies", f"{server.url}/short"]
    raw = manifest(described(*urls, bytes=len(CONTENT)))
    message = failure(capsys)
    assert "/short: it has 5 bytes, the manifest says 300,000" in message
    assert (raw / "a.tgz.part").stat().st_size > 100_000  # of the first; it can go on
    server.files["dies"].dies.clear()
    assert fetch() == 0


PAGES = [b"<!DOCTYPE html><title>Google Drive", b"\n <HTML lang=de>", b"<?xml version='1.0'?>"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_not_the_archive(server, manifest, capsys, page):
    server.files |= {"page": Served(page, chunked=True), "file": Served(CONTENT)}
    urls = [f"{server.url}/page", f"{server.url}/file"]
    raw = manifest(described(urls[0], sha256=None))
    assert f"{urls[0]}: it sent a page, such as a warning or a log-in, not the" in failure(capsys)
    assert names(raw) == []
    manifest(described(*urls, sha256=None))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT


def test_an_archive_declared_as_encoded_stays_as_it_is(server, manifest):
    content = gzip.compress(CONTENT)
    server.files["a.tgz"] = Served(content, headers={"Content-Encoding": "x-gzip"})
    raw = manifest(described(f"{server.url}/a.tgz", content=content))
    assert fetch() == 0
    assert (raw / "a.tgz").read_bytes() == content


def test_no_mirror_has_it(server, manifest, capsys):
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
    assert message.endswith("or get the file elsewhere and add --from DIR\n")
    assert names(raw) == ["b.tgz"]  # kept
    server.files["gone"] = Served(CONTENT)
    assert fetch() == 0
    assert [name for name, _ in server.requests].count("there") == 1


def test_a_changed_file_is_fetched_again(server, manifest, capsys):
    server.files["a.tgz"] = Served(CONTENT)
    raw = manifest(described(f"{server.url}/a.tgz"))
    raw.mkdir(parents=True)
    (raw / "a.tgz").write_bytes(WRONG)
    assert fetch() == 0
    out = capsys.readouterr().out
    assert (
        f"sha256 is {sha256(WRONG)}, the manifest says {sha256(CONTENT)}; it will be fetched again"
        in out
    )
    assert (raw / "a.tgz").read_bytes() == CONTENT


def test_a_full_disk(server, manifest, capsys, monkeypatch):
    def write(file, piece):  # a disk with room for 100,000 bytes
        if file.tell() + len(piece) > 100_000:
            raise OSError(28, "No space left on device")
        return io.FileIO.write(file, piece)

    full = type("Full", (io.FileIO,), {"write": write})
    opened = pathlib.Path.open
    monkeypatch.setattr(
        pathlib.Path,
        "open",
        lambda path, mode="r", **more: (full if mode == "ab" else opened)(path, mode, **more),
    )
    server.files["a.tgz"] = Served(CONTENT)
    raw = manifest(described(f"{server.url}/a.tgz"))
    told = f"cannot save small in {raw}: No space left on device; make room, then the same command"
    assert f"{told}; what is there is kept\n" in failure(capsys)
    kept = (raw / "a.tgz.part").stat().st_size
    assert kept == 65_536
    monkeypatch.setattr(pathlib.Path, "open", opened)
    assert fetch() == 0
    assert server.requests[-1] == ("a.tgz", f"bytes={kept}-")


def test_a_place_that_cannot_be_written(manifest, tmp_path, capsys):
    manifest(described("http://127.0.0.1:9/a.tgz"))
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "below"
    assert f"cannot save small in {out}: Not a directory" in failure(capsys, "--out", out)


def test_from_takes_local_copies(server, manifest, tmp_path, capsys):
    raw = manifest(described(f"{server.url}/a.tgz"), described(f"{server.url}/b", name="b.txt"))
    given = tmp_path / "given"
    given.mkdir()
    (given / "a.tgz").symlink_to(tmp_path / "elsewhere.tgz")
    (tmp_path / "elsewhere.tgz").write_bytes(CONTENT)
    message = failure(capsys, "--from", given)
    assert f"{given} has no b.txt; what it has is taken. dynconv data fetch small " in message
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


def test_from_copies_where_it_cannot_link(manifest, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    raw = manifest(described())
    (tmp_path / "a.tgz").write_bytes(CONTENT)
    assert fetch("--from", tmp_path) == 0
    assert (raw / "a.tgz").read_bytes() == CONTENT and names(raw) == ["a.tgz"]


def test_from_takes_a_directory_of_what_is_in_the_archive(manifest, tmp_path, capsys):
    raw = manifest(described())
    (tmp_path / "given" / "a").mkdir(parents=True)
    (tmp_path / "given" / "a" / "train.de").write_text("eins\n")
    (raw / "a.part").mkdir(parents=True)  # of a run that was killed
    assert fetch("--from", tmp_path / "given") == 0
    assert [p.read_text() for p in fetched("small").rglob("train.de")] == ["eins\n"]
    assert names(raw) == ["a"]
    assert fetch() == 0
    assert capsys.readouterr().out.endswith(f"{raw / 'a'}: unpacked already\n")


def test_what_only_licensees_get(manifest, tmp_path, capsys):
    files = [described(name=name, sha256=None) for name in ("input.txt", "ref.txt")]
    raw = manifest(*files, note="Apply at https://publisher.example.")
    message = failure(capsys)
    assert (
        "small cannot be downloaded. Apply at https://publisher.example. Then: dynconv" in message
    )
    assert message.endswith("data fetch small --from DIR, with input.txt, ref.txt in DIR\n")
    (tmp_path / "input.txt").write_text("eins\n")
    message = failure(capsys, "--from", tmp_path)
    assert f"{tmp_path} has no ref.txt; what it has is taken. Apply at https://publ" in message
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
    assert capsys.readouterr().out.endswith(f"sha256 verified, from {raw.parent}/whole/a.tgz\n")
    assert server.requests == []


def test_fetched_unpacks_once(manifest, tmp_path, capsys):
    raw = manifest(described(sha256=None), described(name="list.txt", sha256=None))
    with pytest.raises(UserError, match="has no a.tgz, list.txt: dynconv data fetch small first"):
        fetched("small")
    raw.mkdir(parents=True)
    (tmp_path / "train.de").write_text("eins\n")
    with tarfile.open(raw / "a.tgz", "w:gz") as packed:
        packed.add(tmp_path / "train.de", "set/train.de")
    (raw / "list.txt").touch()
    assert fetched("small") == raw
    assert (raw / "a" / "set" / "train.de").read_text() == "eins\n"
    assert capsys.readouterr().out == f"{raw / 'a.tgz'}: unpacking\n"
    (raw / "a.tgz").unlink()  # to save room
    assert fetched("small") == fetched("small", raw) == raw
    assert capsys.readouterr().out == ""


def test_fetch_of_a_shipped_corpus_needs_no_download(capsys):
    assert cli.main(["data", "fetch", "jane-austen"]) == 0
    assert "jane-austen is shipped with dynconv and needs no fetching" in capsys.readouterr().out


def test_the_bar_is_for_terminals(server, manifest, tmp_path, capsys, monkeypatch):
    server.files["a.tgz"] = Served(CONTENT)
    manifest(described(f"{server.url}/a.tgz"))
    assert fetch("--out", tmp_path / "file") == 0 and capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert fetch("--out", tmp_path / "terminal") == 0
    assert "a.tgz: 100%" in capsys.readouterr().err
