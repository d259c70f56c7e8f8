"""Reading text, and what is promised about the shipped corpora."""

import gzip
import lzma
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dynconv import paths
from dynconv.errors import UserError
from dynconv.paths import data_dir, raw_dir
from dynconv.text.corpus import NotPreparedError, corpus_dir, load_parallel, require_split
from dynconv.text.lines import read_lines, stream_lines
from dynconv.text.manifest import read_manifest
from dynconv.train.run_corpus import prepared_dir

PAIRS = [
    ("libreoffice-de-en", "de", {"train": 27_910, "valid": 1_000, "test": 1_000}),
    ("libreoffice-fr-en", "fr", {"train": 26_377, "valid": 1_000, "test": 1_000}),
]
SHIPPED = [name for name, entry in read_manifest().items() if entry.shipped]
PACK = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress}


def write(path, data: bytes):
    path.write_bytes(PACK[path.suffix](data) if path.suffix in PACK else data)
    return path


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize(
    "text, lines",
    [
        ("eins\nzwei äöü\n\ndrei\n", ["eins", "zwei äöü", "", "drei"]),
        ("a\u2028b\x0cc\x85d\re\r\nlast\r", ["a\u2028b\x0cc\x85d\re", "last"]),
        ("\na\n\n", ["", "a", ""]),
        ("\ufeffa\nb\n", ["a", "b"]),
    ],
    ids=["plain", "separators", "blank at both ends", "byte-order mark"],
)
def test_lines_end_only_at_line_breaks(tmp_path, suffix, text, lines):
    path = write(tmp_path / f"text{suffix}", text.encode())
    assert read_lines(path) == list(stream_lines(path)) == lines


def test_reading_stops_at_the_first_line_that_is_asked_for(tmp_path):
    lines = stream_lines(write(tmp_path / "text", b"good\n" * 100_000 + b"\xff\n"))
    assert next(lines) == "good"  # the bad line has not been read
    with pytest.raises(UserError, match=r"text, line 100001: not valid UTF-8"):
        list(lines)


def test_read_lines_missing_and_unreadable_file(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.de: no such file"):
        read_lines(tmp_path / "nowhere.de")
    with pytest.raises(UserError, match="is a directory; name a file"):
        read_lines(tmp_path)


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"], ids=["no-mark", "mark"])
def test_read_lines_empty_file(tmp_path, suffix, content):
    with pytest.raises(UserError, match=rf"void{suffix}: the file is empty"):
        read_lines(write(tmp_path / f"void{suffix}", content))
    assert read_lines(tmp_path / f"void{suffix}", may_be_empty=True) == []


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["no-mark", "mark"])
def test_read_lines_names_the_line_that_is_not_utf8(tmp_path, suffix, mark):
    data = mark + "gut\ngrün\n".encode() + "schön\n".encode("latin-1")
    with pytest.raises(UserError, match=rf"bad{suffix}, line 3: not valid UTF-8"):
        read_lines(write(tmp_path / f"bad{suffix}", data))


@pytest.mark.parametrize("suffix", [".xz", ".gz"])
@pytest.mark.parametrize("damage", ["truncated", "foreign", "start", "middle"])
def test_read_lines_damaged_compression(tmp_path, suffix, damage):
    good = PACK[suffix](b"one line of text\n" * 1000)
    at = {"start": 10, "middle": len(good) // 2}.get(damage, 0)
    flipped = good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :]
    data = {"truncated": good[:-9], "foreign": b"not compressed at all\n"}.get(damage, flipped)
    path = tmp_path / f"text{suffix}"
    path.write_bytes(data)
    with pytest.raises(UserError, match=rf"text{suffix}: truncated or corrupt {suffix} file"):
        read_lines(path)


def place_package(root, monkeypatch):
    """Pretend that the package lies in `root`."""
    monkeypatch.setattr(paths, "PACKAGE", root / "dynconv")
    (root / "dynconv" / "data").mkdir(parents=True)
    (root / "data").mkdir()


def test_data_dir_prefers_the_repository_then_the_wheel(tmp_path, monkeypatch):
    place_package(tmp_path, monkeypatch)
    inside, beside = tmp_path / "dynconv" / "data", tmp_path / "data"
    (inside / "manifest.yaml").touch()
    assert data_dir() == inside
    (beside / "manifest.yaml").touch()
    assert data_dir() == beside


def test_data_dir_without_any_data(tmp_path, monkeypatch):
    place_package(tmp_path, monkeypatch)
    with pytest.raises(UserError, match="no shipped corpora: no manifest.yaml in"):
        data_dir()


def test_raw_files_go_to_the_checkout_or_below_the_working_directory(tmp_path, monkeypatch):
    place_package(tmp_path, monkeypatch)
    (tmp_path / "dynconv" / "data" / "manifest.yaml").touch()
    assert raw_dir() == Path("data/raw")  # an installed package
    (tmp_path / "data" / "manifest.yaml").touch()
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "_toc.yml").touch()
    assert raw_dir() == tmp_path / "data" / "raw"


def test_what_is_not_prepared_names_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("iwslt14-de-en", "prepared/iwslt14-de-en", "prepared/wmt14-en-de-words"):
        words = f"no directory {name}; dynconv data fetch .* make prepared/{Path(name).name}; "
        with pytest.raises(NotPreparedError, match=words):
            corpus_dir(name)
    with pytest.raises(UserError, match=r"did you mean prepared/iwslt14-de-en\?") as error:
        corpus_dir("prepared/iwslt14-de-enn")
    assert not isinstance(error.value, NotPreparedError)


def test_corpus_dir_by_name_and_by_path(tmp_path):
    assert corpus_dir("jane-austen") == data_dir() / "jane-austen"
    assert corpus_dir(str(tmp_path)) == tmp_path


def test_a_prepared_directory_named_like_a_shipped_corpus(prepared, recipe, tmp_path, monkeypatch):
    """Training, its text and evaluation read the same one: the shipped; ./NAME is the other."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(prepared.directory, name := "libreoffice-de-en")
    run = tmp_path / "run"

    def directory(corpus: str) -> Path:
        return prepared_dir(run, replace(recipe, data=replace(recipe.data, corpus=corpus)))

    assert corpus_dir(name) == data_dir() / name and directory(name) == run / "data"
    own = directory(f"./{name}")
    assert own.samefile(name) and own == corpus_dir(f"./{name}") == corpus_dir(str(own))
    assert load_parallel(str(own), "de", "en", "valid") != load_parallel(name, "de", "en", "valid")


def test_corpus_dir_names_the_nearest_and_the_path_tried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        corpus_dir("libreofice-de-en")
    assert "did you mean libreoffice-de-en?" in str(error.value)
    assert f"no directory {tmp_path / 'libreofice-de-en'};" in str(error.value)


@pytest.mark.parametrize("name", ["zzz", "raw", "results"])
def test_corpus_dir_lists_the_shipped_ones_when_nothing_is_near(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    shipped = ", ".join(sorted(SHIPPED))
    with pytest.raises(UserError, match=f"the shipped corpora are {shipped}$"):
        corpus_dir(name)


def test_find_split_prefers_plain_then_xz_then_gz(tmp_path):
    for suffix in (".gz", ".xz", ""):
        path = write(tmp_path / f"train.de{suffix}", b"x\n")
        assert require_split(tmp_path, "train.de") == path


def test_find_split_lists_what_was_looked_for(tmp_path):
    (tmp_path / "train.de").mkdir()  # a directory is not a split
    with pytest.raises(UserError, match=r"no train\.de, train\.de\.xz or train\.de\.gz there") as e:
        require_split(tmp_path, "train.de")
    assert str(tmp_path) in str(e.value)


def test_find_split_names_the_suffixes_that_are_there(tmp_path):
    for name in ("train.num", "train.words.gz", "valid.num"):
        (tmp_path / name).write_bytes(b"")
    words = "there are train.num, train.words.gz: name the suffixes by data.source and data.target"
    with pytest.raises(UserError, match=words):
        require_split(tmp_path, "train.de")
    with pytest.raises(UserError, match="there are the splits train, valid$"):
        require_split(tmp_path, "test.num")


def test_load_parallel_reads_a_users_own_text(tmp_path):
    (tmp_path / "valid.de").write_bytes("Haus\n\nschöner Tag\n".encode())
    write(tmp_path / "valid.en.gz", b"house\nblank there\nnice day\n")
    text = load_parallel(str(tmp_path), "de", "en", "valid")
    assert text.source == ["Haus", "", "schöner Tag"]
    assert text.target == ["house", "blank there", "nice day"]


def test_load_parallel_refuses_different_lengths(tmp_path):
    (tmp_path / "train.de").write_bytes(b"eins\nzwei\ndrei\n")
    (tmp_path / "train.en").write_bytes(b"one\ntwo\n")
    with pytest.raises(UserError, match=r"train\.de has 3 lines but .*train\.en has 2:"):
        load_parallel(str(tmp_path), "de", "en", "train")


def fold(line: str) -> str:
    """The line without case, punctuation and repeated spaces."""
    return re.sub(r"[\W_]+", " ", line.casefold()).strip()


@pytest.mark.parametrize("name, language, counts", PAIRS)
def test_parallel_corpora_counts_lengths_and_no_leakage(name, language, counts):
    text = {split: load_parallel(name, language, "en", split) for split in counts}
    assert {split: len(pairs.source) for split, pairs in text.items()} == counts
    for side in ("source", "target"):
        lines = {split: getattr(pairs, side) for split, pairs in text.items()}
        assert all(3 <= len(line.split()) <= 20 for part in lines.values() for line in part)
        train = {fold(line) for line in lines["train"]}
        for split in ("valid", "test"):
            held_out = {fold(line) for line in lines[split]}
            assert len(held_out) == counts[split], "a repeated sentence"
            assert not held_out & train


def test_jane_austen_is_split_by_novel():
    folder, splits = corpus_dir("jane-austen"), ("train", "valid", "test")
    lines = {split: read_lines(require_split(folder, f"{split}.txt")) for split in splits}
    assert [len(part) for part in lines.values()] == [8_207, 1_056, 1_035]
    words = {split: " ".join(part) for split, part in lines.items()}
    for hero, home in {"Knightley": "train", "Tilney": "valid", "Wentworth": "test"}.items():
        others = [split for split in words if split != home and words[split].count(hero) > 10]
        assert words[home].count(hero) > 10 and not others


def test_debian_descriptions_have_four_columns_and_disjoint_sources():
    rows = {}
    for split in ("train", "valid", "test"):
        folder, columns = corpus_dir("debian-descriptions"), "package source paragraph synopsis"
        texts = [read_lines(require_split(folder, f"{split}.{name}")) for name in columns.split()]
        rows[split] = list(zip(*texts, strict=True))
        assert all(all(row) for row in rows[split])
    assert [len(part) for part in rows.values()] == [30_247, 1_863, 1_699]
    for column in (1, 2, 3):  # source package, paragraph, synopsis
        train, valid, test = ({row[column] for row in part} for part in rows.values())
        assert not train & valid and not train & test and not valid & test


def test_shipped_data_is_small():
    files = [path for path in data_dir().rglob("*") if path.is_file()]
    tracked = [path for path in files if "raw" not in path.relative_to(data_dir()).parts]
    assert sum(path.stat().st_size for path in tracked) <= 8_000_000


@pytest.mark.parametrize("name", SHIPPED)
def test_corpora_carry_readme_and_licence(name):
    assert "## Licence and attribution" in (corpus_dir(name) / "README.md").read_text("utf-8")
    if name != "debian-descriptions":  # each package has its own
        licence = (corpus_dir(name) / "LICENSE").read_text("utf-8")
        assert len(licence) > 1000, "LICENSE must be the full text of the licence"
