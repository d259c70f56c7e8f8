"""Vocabularies: lossless, learned on what it is given, with clear errors."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from conftest import ROOT

from dynconv.choices import VocabularyKind
from dynconv.errors import UserError
from dynconv.text import EOS, PAD, UNK, Vocabularies, Vocabulary, load_parallel, read_lines
from dynconv.text import vocabulary as vocabulary_module
from dynconv.text.tokenizer_kinds import BPE, END, KINDS, WordLevel, recognize_kind

TRAIN = load_parallel("libreoffice-de-en", "de", "en", "train")


@pytest.fixture(scope="module")
def bpe() -> Vocabulary:
    return Vocabulary.learn(TRAIN.source[:3000] + TRAIN.target[:3000], 1000)


def test_decoding_restores_the_text(bpe):
    lines = load_parallel("libreoffice-de-en", "de", "en", "test").source
    lines = [*lines[:200], "two  spaces ", "emoji 🙂 and 漢字", "tab\there", "<eos> <pad>", "a@@ b"]
    assert len(bpe) == 1000
    for line, ids in zip(lines, bpe.encode(lines), strict=True):
        assert bpe.decode(ids) == line
        assert PAD not in ids and EOS not in ids


def test_one_space_at_the_start_is_dropped(bpe):
    lines = ["one", " one", "  one", "   one "]
    assert [bpe.decode(ids) for ids in bpe.encode(lines)] == ["one", "one", " one", "  one "]


def test_blank_lines_have_no_ids(bpe):
    assert bpe.encode(["", "   "]) == [[], []]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("ein Satz", "'ein Satz' is one text: give a list of lines"),
        (["gut", 3], "3 is not valid Unicode"),
        (["gut", None], "None is not valid Unicode"),
        (["gut", "b\udcfcse"], r"b\\udcfcse' is not valid Unicode"),
    ],
)
def test_what_is_no_list_of_lines(lines, words, bpe):
    with pytest.raises(UserError, match=words):
        bpe.encode(lines)


@pytest.mark.parametrize("kind", [list, tuple, iter, dict.fromkeys, np.array])
def test_lines_come_in_any_iterable(kind, bpe):
    lines = ["gut", "", "ein Satz"]
    assert bpe.encode(kind(lines)) == bpe.encode(lines)
    with pytest.raises(UserError, match="not valid Unicode"):
        bpe.encode(kind(["gut", "b\udcfcse"]))


def test_decoded_text_is_one_line(bpe):
    assert bpe.decode([*bpe.encode(["a\nb"])[0], EOS, PAD]) == "a b"


def test_save_and_load(bpe, tmp_path):
    Vocabularies(bpe, bpe).save(tmp_path / "vocabulary.json")
    loaded = Vocabularies.load(tmp_path / "vocabulary.json").target
    assert loaded.encode(["Öffnen Sie <eos>"]) == bpe.encode(["Öffnen Sie <eos>"])


def test_merges_depend_on_the_text():
    assert len(Vocabulary.learn(["abab abab"] * 9, 260).encode(["abab"])[0]) < 4


def test_errors_name_the_cause(tmp_path):
    with pytest.raises(UserError, match="vocab_size 100 is below 258"):
        Vocabulary.learn(["a"], 100)
    with pytest.raises(UserError, match="yields 2.. types, not 5000: give 2.. as vocab_size"):
        Vocabulary.learn(["a b"], 5000)
    (tmp_path / "vocabulary.json").write_text("{")
    with pytest.raises(UserError, match="vocabulary.json"):
        Vocabularies.load(tmp_path / "vocabulary.json")


WORDS = ["the cat sat on the mat", "the dog sat", "a dog and a cat"]


def test_words_are_those_that_are_frequent():
    vocabulary = Vocabulary.learn(WORDS, 7, "words")
    assert vocabulary.pieces(range(4)) == ["< pad >", "< eos >", "<unk>", "the"]
    assert vocabulary.unknown_id == UNK
    (ids,) = vocabulary.encode(["the mat dog <eos>"])
    assert vocabulary.decode(ids) == "the <unk> dog <unk>"
    assert EOS not in ids


def test_bpe_of_tokenised_text_stays_within_words():
    vocabulary = Vocabulary.learn(WORDS * 9, 31, "bpe")
    assert vocabulary.unknown_id == UNK
    (ids,) = vocabulary.encode(["the matcat , sat"])
    assert vocabulary.decode(ids) == "the matcat <unk> sat"  # training has no comma
    pieces = vocabulary.pieces(ids)
    assert pieces[0] == "the" and pieces[-1] == "sat"
    assert " ".join(pieces).replace("@@ ", "") == "the matcat <unk> sat"
    (ids,) = vocabulary.encode(["the 漢字 mat"])
    assert vocabulary.decode(ids) == "the <unk> mat"


@pytest.mark.parametrize("line", ["a@@ b c", "@@ a", "a @@", "<w> a", "a</w> b"])
def test_bpe_restores_words_that_look_like_its_marks(line):
    words = line.split(" ")
    smallest = 3 + len({*"".join(words)}) + len({word[-1] for word in words})
    merges = sum(len(word) - 1 for word in words)
    for size in (smallest, smallest + merges):  # every word is split into letters, or is a piece
        vocabulary = Vocabulary.learn([line], size, "bpe")
        (ids,) = vocabulary.encode([line])
        assert len(ids) == len(words) + (merges if size == smallest else 0)
        assert vocabulary.decode(ids) == line


def test_two_vocabularies_in_one_file(tmp_path):
    path = tmp_path / "vocabulary.json"
    words, pieces = Vocabulary.learn(WORDS, 7, "words"), Vocabulary.learn(WORDS, 270)
    Vocabularies(words, pieces).save(path)
    loaded = Vocabularies.load(path)
    assert loaded.vocab_size == (7, 270)
    assert loaded.source.encode(WORDS) == words.encode(WORDS)
    assert loaded.target.decode(pieces.encode(WORDS)[0]) == WORDS[0]
    Vocabularies(pieces, pieces).save(path)
    joint = Vocabularies.load(path)
    assert joint.vocab_size == 270 and joint.source is joint.target
    assert joint.target.encode(WORDS) == pieces.encode(WORDS)


def test_every_kind_that_a_recipe_can_name_is_there():
    assert [*KINDS] == [*get_args(VocabularyKind)]
    for name, size in {"bytes": 262, "bpe": 31, "words": 11}.items():
        assert Vocabulary.learn(WORDS, size, name).kind == name


class Characters(WordLevel):
    """A further kind, made as CONTRIBUTING says; like the words it has <unk> and no merges."""

    name = "characters"

    def empty(self):
        from tokenizers import Regex, pre_tokenizers

        tokenizer = super().empty()
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        return tokenizer

    def decode(self, tokenizer, ids):
        return "".join(tokenizer.id_to_token(i) for i in ids)


def test_a_further_kind_is_told_from_the_others(monkeypatch, tmp_path):
    def recognize(tree):
        is_split = tree["pre_tokenizer"]["type"] == "Split"
        return KINDS["characters"] if is_split else recognize_kind(tree)

    monkeypatch.setitem(KINDS, "characters", Characters())
    monkeypatch.setattr(vocabulary_module, "recognize_kind", recognize)
    learned, words = Vocabulary.learn(["abc"], 6, "characters"), Vocabulary.learn(WORDS, 7, "words")
    Vocabularies(learned, words).save(tmp_path / "vocabulary.json")
    loaded = Vocabularies.load(tmp_path / "vocabulary.json")
    assert [side.kind for side in loaded] == ["characters", "words"]
    for vocabulary in (learned, loaded.source):
        assert vocabulary.kind == "characters"
        assert vocabulary.decode(vocabulary.encode(["cab"])[0]) == "cab"


def test_unknown_kinds_are_named():
    with pytest.raises(UserError, match="vocabulary 'word' is not known"):
        Vocabulary.learn(WORDS, 9, "word")


def vocabulary_of_codes(codes: Path, lines: list[str]) -> Vocabulary:
    """The merges of subword-nmt, one per line (`th e</w>`), and the characters of `lines`."""
    pairs = [tuple(line.split(" ")) for line in read_lines(codes)[1:]]
    characters = sorted(set().union(*lines) - {" "})
    singles = [c + end for c in characters for end in ("", END)]
    parts = [part for pair in pairs for part in (*pair, "".join(pair))]
    types = dict.fromkeys([*BPE.specials, *singles, *parts])
    numbered = {name: i for i, name in enumerate(types)}
    return Vocabulary(BPE().empty(vocab=numbered, merges=pairs), BPE())


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("language", ["de", "en"])
def test_the_codes_of_iwslt_14_give_its_real_files(split, language):
    """Wu et al. 2019 train on text that subword-nmt had split by these very codes."""
    folder = ROOT.parent / "shared" / "benchmarks" / "iwslt14-deen"
    if not folder.is_dir():
        pytest.skip("shared benchmarks folder not present")
    text = read_lines(folder / f"{split}.{language}")
    vocabulary = vocabulary_of_codes(folder / "bpe10k.codes", text)
    ids = vocabulary.encode(text)
    pieces = [" ".join(vocabulary.pieces(line)) for line in ids]
    assert pieces == read_lines(folder / f"{split}.bpe10k.{language}")
    assert [vocabulary.decode(line) for line in ids] == text


def test_an_unknown_word_in_the_text_is_the_vocabulary_s():
    """WikiText and Gigaword have it; counted as a word it would take a second id."""
    vocabulary = Vocabulary.learn(["a <unk> b", "<unk> <unk> a"], 5, "words")
    assert vocabulary.encode(["b <unk> c"]) == [[4, UNK, UNK]]
    assert vocabulary.kind == "words"


def test_a_word_that_is_cut_off_loses_its_mark():
    vocabulary = Vocabulary.learn(WORDS * 9, 31, "bpe")
    (ids,) = vocabulary.encode(["the matcat"])
    assert vocabulary.decode(ids[:-1]) == "the mat"
    words = Vocabulary.learn(["a foo@@ bar"], 6, "words")
    assert words.decode(words.encode(["foo@@ bar"])[0]) == "foo@@ bar"


def test_bpe_is_the_same_in_every_process():
    """The library numbers the last letters of words in the order of a table that differs."""
    learn = (
        "from dynconv.text import Vocabulary, load_parallel\n"
        "source = load_parallel('libreoffice-de-en', 'de', 'en', 'train').source[:300]\n"
        "print(Vocabulary.learn(source, 400, 'bpe')._tokenizer.to_str())"
    )
    run = partial(subprocess.run, [sys.executable, "-c", learn])
    first, second = (run(capture_output=True, check=True).stdout for _ in range(2))
    assert first == second and len(json.loads(first)["model"]["merges"]) > 100
