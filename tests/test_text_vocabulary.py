"""Byte-pair encoding: lossless, learned on what it is given, with clear errors."""

import pytest

from dynconv.errors import UserError
from dynconv.text import EOS, PAD, Vocabulary, load_parallel

TRAIN = load_parallel("libreoffice-de-en", "de", "en", "train")


@pytest.fixture(scope="module")
def bpe() -> Vocabulary:
    return Vocabulary.learn(TRAIN.source[:3000] + TRAIN.target[:3000], 1000)


def test_round_trip(bpe):
    lines = load_parallel("libreoffice-de-en", "de", "en", "test").source
    lines = [*lines[:200], "  two  spaces ", "emoji 🙂 and 漢字", "tab\there", "<eos> <pad>"]
    assert len(bpe) == 1000
    for line, ids in zip(lines, bpe.encode(lines), strict=True):
        assert bpe.decode(ids) == line.removeprefix(" ") or line.startswith(" ")
        assert bpe.decode(ids).strip() == line.strip()
        assert PAD not in ids and EOS not in ids


def test_blank_lines_have_no_ids(bpe):
    assert bpe.encode(["", "   "]) == [[], []]


def test_decoded_text_is_one_line(bpe):
    assert bpe.decode([*bpe.encode(["a\nb"])[0], EOS, PAD]) == "a b"


def test_save_and_load(bpe, tmp_path):
    bpe.save(tmp_path / "vocabulary.json")
    loaded = Vocabulary.load(tmp_path / "vocabulary.json")
    assert loaded.encode(["Öffnen Sie <eos>"]) == bpe.encode(["Öffnen Sie <eos>"])


def test_merges_depend_on_the_text():
    assert len(Vocabulary.learn(["abab abab"] * 9, 260).encode(["abab"])[0]) < 4


def test_errors_name_the_cause(tmp_path):
    with pytest.raises(UserError, match="vocab_size 100 is below 258"):
        Vocabulary.learn(["a"], 100)
    with pytest.raises(UserError, match="yields 2.. types, not vocab_size 5000"):
        Vocabulary.learn(["a b"], 5000)
    (tmp_path / "vocabulary.json").write_text("{")
    with pytest.raises(UserError, match="vocabulary.json"):
        Vocabulary.load(tmp_path / "vocabulary.json")
