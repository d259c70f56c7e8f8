"""The manifest, its table, and the checksums of what is shipped."""

import hashlib

import pytest

from dynconv.cli.data import corpus_table
from dynconv.errors import UserError
from dynconv.paths import data_dir
from dynconv.text.corpus import require_split
from dynconv.text.lines import read_lines
from dynconv.text.manifest import (
    CorpusFile,
    corpus_sides,
    read_manifest,
    require_corpus,
)

CONTENT = b"eins\nzwei\n"
PAPERS = {
    *("iwslt14-de-en", "wmt16-en-de", "wmt14-en-de", "wmt14-en-fr", "wmt17-zh-en", "wmt16-en-ro"),
    *("billion-word", "wikitext-103", "cnn-dailymail", "gigaword", "duc-2004"),
}


def test_entries_describe_what_is_shipped():
    shipped = {entry.name: entry for entry in read_manifest().values() if entry.shipped}
    on_disk = {path.parent.name for path in data_dir().glob("*/*.xz")}
    assert set(shipped) == on_disk
    for entry in shipped.values():
        assert {file.name for file in entry.files} == {p.name for p in entry.directory.glob("*.xz")}
        ends = {file.name.split(".")[1] for file in entry.files}
        for split, lines in entry.sentences.items():
            for end in ends:
                assert len(read_lines(require_split(entry.directory, f"{split}.{end}"))) == lines


def test_the_papers_data_sets_are_listed():
    remote = {entry.name: entry for entry in read_manifest().values() if not entry.shipped}
    assert set(remote) == PAPERS
    for entry in remote.values():
        assert entry.licence and entry.citation and entry.description
        names = [file.name for file in entry.files]
        assert len(set(names)) == len(names)
        for file in entry.files:
            assert all(url.startswith("http") for url in file.urls)
            assert file.urls or "https://" in entry.note  # where to apply
            assert file.bytes is None or file.bytes > 0
            assert file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32
            assert file.md5 is None or len(bytes.fromhex(file.md5)) == 16
    assert remote["iwslt14-de-en"].sentences == {"train": 160239, "valid": 7283, "test": 6750}
    assert {file.name for file in remote["duc-2004"].files if not file.urls} == {
        "input.txt",
        *(f"task1_ref{i}.txt" for i in range(4)),
    }


def test_a_file_of_several_corpora_is_the_same_in_each():
    files = [
        file for entry in read_manifest().values() if not entry.shipped for file in entry.files
    ]
    assert len({file.name for file in files}) == len({str(file) for file in files}) < len(files)


def test_listing_is_a_table_with_every_corpus():
    head, *rows = corpus_table().split("\n")
    assert head.split()[:3] == ["name", "kind", "suffixes"]
    assert [row.split()[0] for row in rows] == [*read_manifest()]
    table = dict(zip([row.split()[0] for row in rows], rows, strict=True))
    german = table["libreoffice-de-en"]
    for cell in ("translation", "de-en", "27,910 / 1,000 / 1,000", "MPL-2.0"):
        assert german.index(cell) > 0
    assert german.endswith("shipped")
    assert table["jane-austen"].split()[2] == "txt"
    assert "- / 2,002 / 2,001" in table["wmt17-zh-en"]
    assert "- / - / 500" in table["duc-2004"]
    assert german.index("MPL-2.0") == head.index("licence")
    assert max(map(len, rows)) <= 120


def test_listing_says_what_is_fetched(manifest):
    files = [{"name": name, "urls": ["http://127.0.0.1/x"]} for name in ("a.tgz", "b.txt")]
    raw = manifest(*files)
    assert corpus_table().endswith("not counted                 for reading  to fetch")
    (raw / "a").mkdir(parents=True)  # what was in a.tgz
    assert corpus_table().endswith("  partly fetched")
    (raw / "b.txt").touch()
    assert corpus_table().endswith("  fetched")
    manifest(*files, {"name": "c.txt", "urls": []})
    assert corpus_table().endswith("  partly fetched")
    manifest({"name": "c.txt", "urls": []})
    assert corpus_table().endswith("  by licence")


@pytest.mark.parametrize(
    "name, hint", [("wikitext103", "did you mean wikitext-103?"), ("zzz", "there are libreoffice")]
)
def test_an_unknown_name(name, hint):
    with pytest.raises(UserError) as error:
        require_corpus(name)
    assert f"no corpus {name!r} in the manifest; {hint}" in str(error.value)


def test_sides_are_those_asked_for_where_the_corpus_has_them(tmp_path):
    assert corpus_sides("gigaword") == ["article", "summary"]
    assert corpus_sides("wmt16-en-de", ["de", "en"]) == ["de", "en"]
    assert corpus_sides(str(tmp_path), ["x"]) == ["x"]
    with pytest.raises(UserError, match="^wmt16-en-de has no suffix fr or x: it has en, de$"):
        corpus_sides("wmt16-en-de", ["fr", "en", "x"])
    with pytest.raises(UserError, match="did you mean wikitext-103?"):
        corpus_sides("wikitext103")
    with pytest.raises(UserError, match="its suffixes are not known"):
        corpus_sides(str(tmp_path))
    with pytest.raises(UserError, match="^no corpus '' in the manifest"):
        corpus_sides("")  # not the working directory


def test_a_stem_is_the_name_without_the_archive_suffix():
    names = ["a.tgz", "a.b.tar.gz", "a.tar", "a.txt.zip", "a.en.gz", "a.txt", "a.txt.xz"]
    stems = ["a", "a.b", "a", "a.txt", "a.en", "a.txt", "a.txt.xz"]
    assert [CorpusFile(name).stem for name in names] == stems


def test_shipped_files_are_those_of_the_manifest():
    for entry in read_manifest().values():
        for file in entry.files if entry.shipped else ():
            assert file.sha256 and file.mismatch(entry.directory / file.name) is None


def test_a_mismatch_names_what_differs(tmp_path):
    path = tmp_path / "train.de"
    path.write_bytes(CONTENT)
    right, md5 = hashlib.sha256(CONTENT).hexdigest(), hashlib.md5(CONTENT).hexdigest()
    assert CorpusFile("train.de", (), len(CONTENT), right, md5).mismatch(path) is None
    path.write_bytes(CONTENT[:-1] + b"!")
    of_size = CorpusFile("train.de", bytes=5, sha256=right).mismatch(path)
    assert of_size == "it has 10 bytes, the manifest says 5"
    for wanted in ({"sha256": right}, {"md5": md5}):
        [(kind, known)] = wanted.items()
        told = CorpusFile("train.de", **wanted).mismatch(path)
        assert told.startswith(f"{kind} is ") and told.endswith(f", the manifest says {known}")


def test_a_mistake_in_the_manifest_names_the_corpus(manifest):
    manifest({"name": "a.tgz", "url": "http://127.0.0.1/x"})
    with pytest.raises(UserError, match="manifest.yaml: corpus small: .*argument 'url'"):
        read_manifest()
