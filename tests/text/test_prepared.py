"""A prepared corpus: what is in it, what becomes of damage, and that memory stays bounded."""

import gzip
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from dynconv.errors import UserError
from dynconv.text import Pairs, encode
from dynconv.text.corpus import corpus_dir, load_parallel
from dynconv.text.encode import encode_corpus
from dynconv.text.lines import stream_parallel
from dynconv.text.prepare import prepare_corpus
from dynconv.text.prepared import is_prepared, open_prepared
from dynconv.text.vocabulary import Vocabularies, Vocabulary

TYPES = 300


def write(folder: Path, split: str, source: list[str], target: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for language, lines in {"de": source, "en": target}.items():
        (folder / f"{split}.{language}").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder


@pytest.fixture
def bpe(tmp_path) -> Path:
    """A vocabulary of 270 types."""
    joint = Vocabulary.learn(["zwanzig und twenty"] * 9, 270)
    Vocabularies(joint, joint).save(tmp_path / "given.json")
    return tmp_path / "given.json"


@pytest.fixture
def out(corpus, tmp_path) -> Path:
    """A prepared corpus."""
    return encode_corpus(str(corpus), "de", "en", TYPES, tmp_path / "out").directory


@pytest.fixture
def learned(bpe, monkeypatch) -> list[str]:
    """The lines from which a vocabulary would be learned; that of `bpe` is used instead."""
    lines, known = [], Vocabularies.load(bpe).target
    monkeypatch.setattr(Vocabulary, "learn", lambda text, *_: lines.extend(text) or known)
    return lines


def test_round_trip_leaves_blank_pairs_out(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "CHARACTERS_PER_CHUNK", 5_000)  # several of them
    text = load_parallel(str(corpus), "de", "en", "train")
    text.source[0], text.target[7], text.source[399], text.target[399] = "", " \t", "", ""
    folder = write(tmp_path / "gaps", "train", *text)
    found = encode_corpus(str(folder), "de", "en", TYPES, tmp_path / "out")
    bpe = Vocabulary.learn([*text.source, *text.target], TYPES)
    pairs = zip(bpe.encode(text.source), bpe.encode(text.target), strict=True)
    expected = [(s, t) for s, t in pairs if s and t]
    assert [(s.tolist(), t.tolist()) for s, t in Pairs.from_corpus(found)] == expected
    assert len(Pairs.from_corpus(found)) == found.lines == 397 and found.blank == 3
    assert found.source_tokens == sum(len(s) for s, _ in expected)
    assert found.target_tokens == sum(len(t) for _, t in expected)
    assert found.load_vocabularies().source.encode(text.source) == bpe.encode(text.source)


def test_vocabulary_is_that_of_the_text_in_memory(tmp_path):
    text = load_parallel("libreoffice-de-en", "de", "en", "test")
    folder = write(tmp_path / "text", "train", *text)
    found = encode_corpus(str(folder), "de", "en", 1000, tmp_path / "out")
    joint = Vocabulary.learn([*text.source, *text.target], 1000)
    Vocabularies(joint, joint).save(tmp_path / "in-memory.json")
    same = (tmp_path / "in-memory.json").read_bytes()
    assert (found.directory / "vocabulary.json").read_bytes() == same


@pytest.mark.parametrize("sample", [1, 30, 100])
def test_vocabulary_is_learned_from_pairs_spread_evenly(tmp_path, learned, monkeypatch, sample):
    monkeypatch.setattr(encode, "MAX_SAMPLED_ROWS", sample)
    numbers = [str(i) for i in range(400)]
    folder = write(tmp_path / "text", "train", numbers, numbers)
    encode_corpus(str(folder), "de", "en", 270, tmp_path / "out")
    assert learned[::2] == learned[1::2]  # source and target of a pair
    chosen = np.array([-1, *map(int, learned[::2])])
    assert len(chosen) == 1 + sample
    assert set(np.diff(chosen)) <= {400 // sample, -(-400 // sample)}


def test_text_without_spaces_is_learned_from_fewer_pairs(tmp_path, learned, monkeypatch):
    """Else memory would grow with every line: 100,000 such pairs took 1.6 GB."""
    monkeypatch.setattr(encode, "MAX_LONG_BYTES", 50 * 93)
    lines = [chr(0x4E00 + i) * 31 for i in range(400)]  # 93 bytes
    folder = write(tmp_path / "text", "train", lines, ["short"] * 400)
    encode_corpus(str(folder), "de", "en", 270, tmp_path / "out")
    assert len(learned) == 2 * 50
    assert learned[-2] == lines[-1]


def test_files_and_bounds(out):
    found = open_prepared(out, verify=True)
    tokens = np.fromfile(out / "train.tokens", "<u2")
    bounds = np.fromfile(out / "train.bounds", "<i8")
    assert len(bounds) == 2 * found.lines + 1 and bounds[0] == 0 and bounds[-1] == len(tokens)
    assert found.source_tokens + found.target_tokens == len(tokens)
    pairs = Pairs.from_corpus(found)
    for i in (0, 123, 399):
        source, target = pairs[i]
        assert source.tolist() == tokens[bounds[2 * i] : bounds[2 * i + 1]].tolist()
        assert target.tolist() == tokens[bounds[2 * i + 1] : bounds[2 * i + 2]].tolist()
    assert pairs[-1][0].tolist() == source.tolist()
    assert source.base is not None and not source.flags.writeable  # of the map, not a copy
    with pytest.raises(IndexError):
        pairs[400]
    meta = json.loads((out / "prepared.json").read_text())
    assert meta["format"] == "dynconv prepared corpus 2"
    assert set(meta["files"]) == {path.name for path in out.iterdir()} - {"prepared.json"}


def test_lengths_count_eos(out):
    pairs = Pairs.from_corpus(open_prepared(out, verify=False))
    chosen = np.array([5, 0, 399, 5])
    lengths = pairs.lengths(chosen)
    assert lengths.tolist() == [[len(side) + 1 for side in pairs[i]] for i in chosen]
    assert lengths.dtype == np.int64
    assert pairs.lengths(np.array([], int)).shape == (0, 2)


def test_ids_take_four_bytes_when_two_do_not_hold_them(corpus, out, tmp_path, monkeypatch):
    assert np.iinfo(np.uint16).max == encode.MAX_UINT16_TYPES - 1
    monkeypatch.setattr(encode, "MAX_UINT16_TYPES", TYPES - 1)
    wide = encode_corpus(str(corpus), "de", "en", TYPES, tmp_path / "wide")
    narrow = open_prepared(out, verify=False)
    assert (narrow.tokens.dtype, wide.tokens.dtype) == (np.uint16, np.uint32)
    sizes = [found.files["train.tokens"]["bytes"] for found in (narrow, wide)]
    assert sizes[1] == 2 * sizes[0]
    assert wide.tokens.tolist() == narrow.tokens.tolist()


def test_a_given_vocabulary_is_used_or_refused_for_its_size(corpus, tmp_path, bpe):
    found = encode_corpus(str(corpus), "de", "en", 270, tmp_path / "out", reuse=bpe)
    text = load_parallel(str(corpus), "de", "en", "train")
    assert (
        Pairs.from_corpus(found)[3][0].tolist()
        == Vocabularies.load(bpe).target.encode(text.source)[3]
    )
    with pytest.raises(UserError, match=r"given\.json: 270 types, not vocab_size 300"):
        encode_corpus(str(corpus), "de", "en", 300, tmp_path / "other", reuse=bpe)


def test_other_splits_stay_text(corpus, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for path in corpus.iterdir():
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    (folder / "test.de.gz").unlink()
    with pytest.raises(UserError, match=r"no test\.de, test\.de\.xz or test\.de\.gz there"):
        encode_corpus(str(folder), "de", "en", TYPES, tmp_path / "out")
    (folder / "test.en.gz").unlink()
    out = encode_corpus(str(folder), "de", "en", TYPES, tmp_path / "out").directory
    assert not list(out.glob("test.*"))
    assert (out / "valid.de").read_bytes() == (corpus / "valid.de").read_bytes()
    there = load_parallel(str(out), "de", "en", "valid")
    assert there == load_parallel(str(corpus), "de", "en", "valid")


@pytest.mark.parametrize("counts", [(3, 5), (5, 3), (3, 4), (4, 3)])
def test_different_numbers_of_lines(tmp_path, counts):
    paths = [tmp_path / "train.de", tmp_path / "train.en"]
    for path, count in zip(paths, counts, strict=True):
        path.write_text("word\n" * count)
    expected = rf"train\.de has {counts[0]} lines but .*train\.en has {counts[1]}:"
    with pytest.raises(UserError, match=expected):
        list(stream_parallel(*paths))
    with pytest.raises(UserError, match=expected):
        encode_corpus(str(tmp_path), "de", "en", TYPES, tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_truncated_text_is_refused(corpus, tmp_path, split):
    text = load_parallel(str(corpus), "de", "en", "train")
    folder = write(tmp_path / "text", "train", *text)
    write(folder, split, *text)
    path = folder / f"{split}.en"
    data = gzip.compress(path.read_bytes())
    (folder / f"{split}.en.gz").write_bytes(data[: len(data) // 2])
    path.unlink()
    with pytest.raises(UserError, match=rf"{split}\.en\.gz: truncated or corrupt \.gz file"):
        encode_corpus(str(folder), "de", "en", TYPES, tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_a_training_split_of_blank_pairs(tmp_path, bpe):
    folder = write(tmp_path / "text", "train", ["", "a"], ["b", " "])
    with pytest.raises(UserError, match="no usable pair in split train"):
        encode_corpus(str(folder), "de", "en", 270, tmp_path / "out", reuse=bpe)
    assert not list(tmp_path.glob("out*"))


def test_a_corpus_named_like_a_shipped_one_is_prepared_under_its_path(
    corpus, tmp_path, monkeypatch
):
    """The name alone would mean the shipped one."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "libreoffice-de-en"):
        line = prepare_corpus(
            str(corpus), ["de", "en"], [300], None, raw=None, reuse=None, out=Path(name)
        )
        directory = re.search(r"data\.corpus=(\S+)", line)[1]
        assert corpus_dir(directory).samefile(name)


def test_what_is_already_there_stays(corpus, out, tmp_path):
    with pytest.raises(UserError, match="already a prepared corpus: remove it, or name another"):
        encode_corpus(str(corpus), "de", "en", TYPES, out)
    with pytest.raises(UserError, match="already exists: move it"):
        encode_corpus(str(corpus), "de", "en", TYPES, corpus)
    with pytest.raises(UserError, match="already exists: move it"):
        encode_corpus(str(corpus), "de", "en", TYPES, out / "vocabulary.json")
    assert is_prepared(out) and not is_prepared(corpus)
    (tmp_path / "empty").mkdir()
    assert is_prepared(encode_corpus(str(corpus), "de", "en", TYPES, tmp_path / "empty").directory)


KILL = """
import os, signal, sys
from pathlib import Path
from dynconv.text import encode
from dynconv.text.vocabulary import Vocabulary

encode.CHARACTERS_PER_CHUNK = 5_000
original, calls = Vocabulary.encode, []
def killed(bpe, lines):
    calls.append(lines)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(bpe, lines)
Vocabulary.encode = killed
encode.encode_corpus(sys.argv[1], "de", "en", 300, Path(sys.argv[2]))
"""


def test_after_a_kill_it_is_prepared_again(corpus, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILL, str(corpus), str(out)]
    killed = subprocess.run(command, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert (tmp_path / ".out.part" / "out" / "train.tokens").exists() and not out.exists()
    (tmp_path / ".out.part" / "out" / "left").touch()
    encode_corpus(str(corpus), "de", "en", TYPES, out)
    assert open_prepared(out, verify=True).lines == 400
    assert not (out / "left").exists() and not (tmp_path / ".out.part").exists()


@pytest.mark.parametrize("room", [1_000, 20_000], ids=["vocabulary", "tokens"])
def test_a_full_disk(corpus, tmp_path, room):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))  # writing beyond it fails
    try:
        with pytest.raises(UserError, match=r"out: cannot be written \(File too large"):
            encode_corpus(str(corpus), "de", "en", TYPES, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.glob("out*"))


def test_a_truncated_file_is_refused(out):
    path = out / "train.tokens"
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(UserError) as error:
        open_prepared(out, verify=False)
    message = f"{path}: {size - 1} bytes, but {size} were written: prepare it again"
    assert str(error.value) == message
    path.unlink()
    with pytest.raises(UserError, match=r"train\.tokens: no such file: prepare it again"):
        open_prepared(out, verify=False)


@pytest.mark.parametrize("name", ["train.tokens", "train.bounds", "vocabulary.json", "valid.en"])
def test_a_flipped_byte_is_found_on_request(out, name):
    data = bytearray((out / name).read_bytes())
    data[len(data) // 2] ^= 1
    (out / name).write_bytes(data)
    open_prepared(out, verify=False)
    with pytest.raises(UserError, match=rf"{name}: altered.*prepare it again"):
        open_prepared(out, verify=True)


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", r"prepared\.json: not readable as JSON"),
        ("[1]", r"prepared\.json: not of format 'dynconv prepared corpus 2'"),
        ('{"format": "other"}', r"prepared\.json: not of format 'dynconv prepared corpus 2'"),
        (
            '{"format": "dynconv prepared corpus 2"}',
            r"prepared\.json: corpus is missing: prepare it again",
        ),
    ],
)
def test_a_foreign_description_is_refused(out, text, message):
    (out / "prepared.json").write_text(text)
    with pytest.raises(UserError, match=message):
        open_prepared(out, verify=False)


def test_no_prepared_corpus(tmp_path):
    with pytest.raises(UserError, match=r"no prepared corpus here \(it has no prepared\.json\)"):
        open_prepared(tmp_path / "nowhere", verify=False)


def traced(action) -> int:
    """Most bytes that Python and numpy hold at a time during the action."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_preparing_takes_the_same_memory_for_more_text(corpus, tmp_path, bpe, monkeypatch):
    monkeypatch.setattr(encode, "CHARACTERS_PER_CHUNK", 20_000)
    sizes, original = [], Vocabulary.encode

    def encode_and_count(vocabulary, lines):
        sizes.append(sum(map(len, lines)))
        return original(vocabulary, lines)

    monkeypatch.setattr(Vocabulary, "encode", encode_and_count)
    text = load_parallel(str(corpus), "de", "en", "train")
    peaks = []
    for name, times in {"warm-up": 1, "small": 5, "large": 30}.items():
        folder = write(tmp_path / name, "train", text.source * times, text.target * times)
        out = tmp_path / f"{name}-out"
        peaks.append(traced(lambda: encode_corpus(str(folder), "de", "en", 270, out, reuse=bpe)))  # noqa: B023
    assert max(sizes) < 20_000 + 500  # what `tokenizers` gets at a time: tracemalloc misses it
    assert peaks[2] < 1.2 * peaks[1]


def test_opening_takes_no_memory(out):
    meta = json.loads((out / "prepared.json").read_text())
    meta["files"]["train.tokens"]["bytes"] = 1 << 33
    meta["target_tokens"] = (1 << 32) - meta["source_tokens"]
    (out / "prepared.json").write_text(json.dumps(meta))
    os.truncate(out / "train.tokens", 1 << 33)  # sparse: no room on the disk, either
    assert traced(lambda: Pairs.from_corpus(open_prepared(out, verify=False))[0]) < 1 << 20


def test_a_vocabulary_of_each_side(tmp_path, corpus):
    found = encode_corpus(str(corpus), "de", "en", (280, 270), tmp_path / "out")
    assert found.vocab_size == found.load_vocabularies().vocab_size == (280, 270)
    text = load_parallel(str(corpus), "de", "en", "train")
    source, target = found.load_vocabularies()
    pair = Pairs.from_corpus(found)[3]
    assert (source.decode(pair[0]), target.decode(pair[1])) == (text.source[3], text.target[3])
    with pytest.raises(
        UserError, match=r"train.de: .*give \d+ as vocab_size; train.en: .*give \d+ as"
    ):
        encode_corpus(str(corpus), "de", "en", (999, 998), tmp_path / "other", "words")


def test_further_references_come_along(tmp_path, corpus):
    folder = tmp_path / "text"
    shutil.copytree(corpus, folder)
    (folder / "test.en1").write_text("x\n" * 20)
    (folder / "test.en2.gz").write_bytes(gzip.compress(b"x\n" * 20))
    found = encode_corpus(str(folder), "de", "en", 270, tmp_path / "out")
    for name in ("test.en1", "test.en2"):
        assert (found.directory / name).read_text() == "x\n" * 20
        assert name in found.files
