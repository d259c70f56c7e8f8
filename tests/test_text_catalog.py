"""The manifest, its table, downloads from a server of our own, and checksums."""

import hashlib
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest
import yaml

from dynconv.errors import UserError
from dynconv.text import catalog
from dynconv.text.corpus import data_dir, find_split, read_lines

CONTENT = b"eins\nzwei\n"
RIGHT = hashlib.sha256(CONTENT).hexdigest()
WRONG = hashlib.sha256(b"something else").hexdigest()


class Handler(SimpleHTTPRequestHandler):
    """Serves files quietly; of short.tgz it promises more bytes than it sends."""

    def do_GET(self):
        self.server.requests.append(self.path)
        if self.path != "/short.tgz":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "a.tgz").write_bytes(CONTENT)
    (folder / "b.tgz").write_bytes(b"other")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as http:
        http.requests = []
        http.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        yield http
        http.shutdown()
        thread.join()


@pytest.fixture
def manifest(tmp_path, monkeypatch):
    """A function that makes a data directory whose manifest holds the given files."""
    data = tmp_path / "data"
    (data / "small").mkdir(parents=True)
    monkeypatch.setattr(catalog, "data_dir", lambda: data)

    def write(*files):
        corpus = dict.fromkeys(["kind", "licence", "description", "citation"], "-")
        corpus |= {"name": "small", "languages": ["de"], "sentences": None, "files": list(files)}
        (data / "manifest.yaml").write_text(yaml.safe_dump({"corpora": [corpus]}))
        return data

    return write


def test_entries_describe_what_is_shipped():
    shipped = {entry.name: entry for entry in catalog.entries() if entry.shipped}
    on_disk = {path.parent.name for path in data_dir().glob("*/*.xz")}
    assert set(shipped) == on_disk
    assert len(on_disk) == 4
    for entry in shipped.values():
        assert {file.name for file in entry.files} == {p.name for p in entry.directory.glob("*.xz")}
        ends = {file.name.split(".")[1] for file in entry.files}
        for split, lines in entry.sentences.items():
            for end in ends:
                assert len(read_lines(find_split(entry.directory, f"{split}.{end}"))) == lines


def test_entries_that_can_be_fetched_claim_no_checksum_and_no_count():
    remote = {entry.name: entry for entry in catalog.entries() if not entry.shipped}
    assert set(remote) == {"iwslt14-de-en", "wmt14-en-de", "wmt14-en-fr", "wikitext-103"}
    for entry in remote.values():
        assert entry.sentences is None and entry.licence and entry.citation
        assert all(file.url.startswith("http") and file.sha256 is None for file in entry.files)
        assert len({file.name for file in entry.files}) == len(entry.files)


def test_listing_is_a_table_with_every_corpus():
    head, *rows = catalog.listing().split("\n")
    assert head.split()[:3] == ["name", "kind", "languages"]
    assert [row.split()[0] for row in rows] == [entry.name for entry in catalog.entries()]
    table = dict(zip([row.split()[0] for row in rows], rows, strict=True))
    german = table["libreoffice-de-en"]
    for cell in ("translation", "de-en", "27,910 / 1,000 / 1,000", "MPL-2.0"):
        assert german.index(cell) > 0
    assert german.endswith("shipped")
    assert "not counted" in table["wikitext-103"]
    assert german.index("MPL-2.0") == head.index("licence")
    assert max(map(len, rows)) <= 120


def test_listing_says_what_is_fetched(manifest):
    data = manifest(
        {"url": "http://127.0.0.1/x/a.tgz", "sha256": None},
        {"url": "http://127.0.0.1/x/b.tgz", "sha256": None},
    )
    (data / "raw" / "small").mkdir(parents=True)
    (data / "raw" / "small" / "a.tgz").touch()
    assert catalog.listing().endswith("to fetch")  # one of two
    (data / "raw" / "small" / "b.tgz").touch()
    assert catalog.listing().endswith("  fetched")


def test_fetch_verifies_and_does_not_download_twice(server, manifest, capsys):
    data = manifest({"url": f"{server.url}/a.tgz", "sha256": RIGHT})
    for _ in range(2):
        paths = catalog.fetch("small", None)
        assert paths == [data / "raw" / "small" / "a.tgz"]
        assert paths[0].read_bytes() == CONTENT
        assert capsys.readouterr().out == f"{paths[0]}: sha256 verified\n"
    assert server.requests == ["/a.tgz"]


def test_fetch_without_a_recorded_checksum_says_so(server, manifest, tmp_path, capsys, caplog):
    pooch.get_logger().addHandler(caplog.handler)  # it is outside logging's tree
    manifest(
        {"url": f"{server.url}/a.tgz", "sha256": None},
        {"url": f"{server.url}/b.tgz", "sha256": None},
    )
    paths = catalog.fetch("small", tmp_path / "out")
    assert [path.read_bytes() for path in paths] == [CONTENT, b"other"]
    assert not caplog.records
    pooch.get_logger().removeHandler(caplog.handler)
    assert paths == [tmp_path / "out" / "a.tgz", tmp_path / "out" / "b.tgz"]
    first, _ = capsys.readouterr().out.splitlines()
    assert first == f"{paths[0]}: sha256 {RIGHT}, not verified: the manifest records none"


def failure(out=None) -> str:
    with pytest.raises(UserError) as error:
        catalog.fetch("small", out)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_fetch_refuses_a_wrong_checksum_and_keeps_nothing(server, manifest):
    data = manifest({"url": f"{server.url}/a.tgz", "sha256": WRONG})
    message = failure()
    assert message.startswith(f"wrong checksum of {server.url}/a.tgz: ")
    assert WRONG in message and RIGHT in message
    assert list((data / "raw" / "small").iterdir()) == []


# pooch leaves the socket of a broken download to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name, cause", [("nowhere.tgz", "404"), ("short.tgz", "IncompleteRead")])
def test_fetch_failing_download_keeps_nothing(server, manifest, name, cause):
    data = manifest({"url": f"{server.url}/{name}", "sha256": None})
    message = failure()
    assert message.startswith(f"could not fetch {server.url}/{name}: ") and cause in message
    assert list((data / "raw" / "small").iterdir()) == []


def test_fetch_without_network(manifest):
    url = "http://127.0.0.1:9/a.tgz"  # the discard port: nobody listens
    manifest({"url": url, "sha256": None})
    assert failure().startswith(f"could not fetch {url}: ")


def test_fetch_into_a_place_that_cannot_be_written(server, manifest, tmp_path):
    manifest({"url": f"{server.url}/a.tgz", "sha256": None})
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "below"
    assert failure(out).startswith(f"cannot save {server.url}/a.tgz in {out}: ")


def test_fetch_of_a_shipped_corpus_needs_no_download(capsys):
    paths = catalog.fetch("jane-austen", None)
    assert sorted(paths) == sorted((data_dir() / "jane-austen").glob("*.xz"))
    assert "jane-austen is shipped with dynconv and needs no fetching" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, hint", [("wikitext103", "did you mean wikitext-103?"), ("zzz", "there are libreoffice")]
)
def test_fetch_of_an_unknown_name(name, hint):
    with pytest.raises(UserError) as error:
        catalog.fetch(name, None)
    assert f"no corpus {name!r} in the manifest; {hint}" in str(error.value)


@pytest.mark.parametrize("module, remedy", [("yaml", "pyyaml"), ("pooch", "pooch")])
def test_a_missing_library_is_named(manifest, monkeypatch, module, remedy):
    manifest({"url": "http://127.0.0.1:9/a.tgz", "sha256": None})
    monkeypatch.setitem(sys.modules, module, None)
    assert failure().endswith(f": pip install {remedy}")


def test_check_accepts_what_is_shipped():
    catalog.check()


def test_check_finds_a_changed_and_a_missing_file(manifest):
    data = manifest({"path": "train.de.xz", "sha256": RIGHT})
    file = data / "small" / "train.de.xz"
    with pytest.raises(UserError, match=r"train\.de\.xz: no such file, but the manifest lists"):
        catalog.check()
    file.write_bytes(CONTENT)
    catalog.check()
    file.write_bytes(CONTENT + b"!")
    with pytest.raises(UserError, match=rf"train\.de\.xz: sha256 is .*, the manifest says {RIGHT}"):
        catalog.check()
