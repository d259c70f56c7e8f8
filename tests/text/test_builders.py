"""The papers' data sets: what they share, and IWSLT'14."""

import os
import re
import shutil
import tarfile
from contextlib import contextmanager
from dataclasses import replace

import pytest
from helpers.raw_sets import lines, put, sgm

from dynconv import cli
from dynconv.errors import UserError
from dynconv.files import claim, locked
from dynconv.text import Pairs, open_prepared
from dynconv.text.builders import build_corpus, iwslt, steps, unpack_and_build
from dynconv.text.builders.moses import normalize, tokenize
from dynconv.text.builders.steps import (
    fits,
    hold_out,
    parallel_map,
    read_segments,
    require_raw,
    write_splits,
)
from dynconv.text.fetch import unpack_corpus
from dynconv.text.lines import stream_lines
from dynconv.text.manifest import require_corpus


@pytest.mark.parametrize(
    "line, language, words",
    [
        ("It's 50% of 3,000, isn't it?", "en", "It &apos;s 50 % of 3,000 , isn &apos;t it ?"),
        ("Dr. No met No. 5 at 3 p.m. today.", "en", "Dr. No met No. 5 at 3 p.m. today ."),
        ("Schulen, Büros usw.", "de", "Schulen , Büros usw ."),  # the library: "usw."
        ("in the U.S.", "en", "in the U.S ."),
        ("Nun ... ja...", "de", "Nun ... ja ..."),
        ("L'art d'un <b>", "fr", "L&apos; art d&apos; un &lt; b &gt;"),
        ('[c] | "d" & e', "de", "&#91; c &#93; &#124; &quot; d &quot; &amp; e"),
        ("auf 中国 und 한국어", "de", "auf 中国 und 한국어"),  # the library: 中 国
        ("a\u2028b\x85c\td\u00a0e\x01", "en", "a b c d e"),
        ("well-known", "en", "well-known"),
    ],
)  # fmt: skip
def test_words_are_those_of_tokenizer_perl(line, language, words):
    assert tokenize(line, language) == words


def test_hyphens_and_escapes_are_options():
    assert tokenize("well-known -- it's", "en", aggressive=True) == "well @-@ known -- it &apos;s"
    assert tokenize("it's [so]", "en", escape=False) == "it 's [ so ]"


@pytest.mark.parametrize(
    "line, language, normal",
    [
        ("„Ja,“ sagte er – 5 %", "de", '"Ja", sagte er - 5%'),
        ("Er sagte „nein.“", "de", 'Er sagte "nein".'),  # at the end, too
        ("Zis „nu.“", "ro", 'Zis "nu".'),
        ("He said “no”.", "en", 'He said "no."'),
        ("1\u00a0000 ( a )", "en", "1.000 (a)"),
        ("1\u00a0000", "fr", "1,000"),
        ("soft\u00adhyphen", "en", "soft hyphen"),
    ],
)
def test_punctuation_is_that_of_the_scripts(line, language, normal):
    assert normalize(line, language) == normal


@pytest.mark.parametrize(
    "source, target, kept",
    [
        (3, 2, True),
        (2, 3, True),  # exactly the ratio
        (5, 3, False),
        (4, 4, True),
        (5, 5, False),  # too long
        (0, 1, False),
        (0, 0, False),
    ],
)
def test_pairs_are_cleaned_by_length_and_ratio(source, target, kept):
    assert fits(("w " * source, "w " * target), longest=4, ratio=1.5) is kept


def test_words_of_over_a_thousand_characters_are_cleaned_away():
    assert fits(("x" * 1000, "y"), longest=4, ratio=1.5)
    assert not fits(("y", "x" * 1001), longest=4, ratio=1.5)


def test_every_nth_line_is_held_out_counted_from_one():
    assert list(hold_out(3, "abcdefg")) == [
        ("train", "a"), ("train", "b"), ("valid", "c"), ("train", "d"),
        ("train", "e"), ("valid", "f"), ("train", "g"),
    ]  # fmt: skip


def test_separators_inside_a_line_do_not_break_it(tmp_path):
    odd = "a\u2028b\x0cc\x1cd\x85e"
    rows = [("train", (odd, "x")), ("train", ("y", odd))]
    assert write_splits(tmp_path, ("de", "en"), rows) == {"train": 2}
    assert lines(tmp_path, "train.de") == [odd, "y"]
    assert lines(tmp_path, "train.en") == ["x", odd]


def test_many_lines_go_to_processes_in_blocks_and_keep_their_order(monkeypatch):
    monkeypatch.setattr(steps, "MIN_PARALLEL", 5)
    monkeypatch.setattr(steps, "ITEMS_IN_MEMORY", 7)
    monkeypatch.setattr(steps, "ITEMS_PER_TASK", 2)
    pools, pool = [], steps.worker_pool
    monkeypatch.setattr(steps, "worker_pool", lambda: pools.append(pool()) or pools[0])
    left = iter(range(1, 17))  # two blocks and a rest
    results = parallel_map(hex, left, "test")
    assert next(results) == "0x1" and next(left) == 8  # no more than a block is read ahead
    assert ["0x1", *results] == [hex(n) for n in (*range(1, 8), *range(9, 17))]
    assert len(pools) == 1


def test_a_raw_file_is_found_at_any_depth_plain_or_packed(tmp_path):
    path = put(tmp_path, "one/two/a.de", "x")
    assert require_raw(tmp_path, "a.de") == path
    packed = put(tmp_path, "b.de.gz", "x")
    assert require_raw(tmp_path, "b.de") == packed
    plain = put(tmp_path, "b.de/b.de", "x")  # unpacked into a directory of its own name
    assert require_raw(tmp_path, "b.de") == plain
    put(tmp_path, "other/a.de", "x")
    assert require_raw(tmp_path, "other/a.de").parent.name == "other"
    with pytest.raises(UserError, match="which one"):
        require_raw(tmp_path, "a.de")


def test_segments_are_read_a_line_each(tmp_path):
    path = put(
        tmp_path, "x.xml", "<doc>", "<title>No</title>", '<seg id="1"> It’s a &amp; b. </seg>',
        '  <seg id="22">two</seg>',
    )  # fmt: skip
    assert [line.strip() for line in read_segments(path)] == ["It's a &amp; b.", "two"]


def talks(raw, pairs: list[tuple[str, str]]):
    """de-en.tgz, unpacked: 2 lines of titles before `pairs`, and 5 evaluation sets."""
    for side, language in enumerate(("de", "en")):
        about = ["url", "keywords", "speaker", "talkid"]
        about = [f"<{tag}>a talk</{tag}>" for tag in about] + [
            f"<title>Al Gore: Title in {language}</title>",
            f"<description>TED Talk Subtitles: {language} text</description>",
        ]
        text = [pair[side] for pair in pairs]
        put(raw, f"de-en/de-en/train.tags.de-en.{language}", *about, *text)
        for test in iwslt.TESTS:
            name = f"de-en/de-en/IWSLT14.{test}.de-en.{language}.xml"
            sgm(raw, name, f"{test} It’s.", f"{language} two")


def pack_talks(folder, pairs: list[tuple[str, str]]):
    """Write de-en.tgz into a folder."""
    talks(folder / "talks", pairs)
    with tarfile.open(folder / "de-en.tgz", "w:gz") as archive:
        archive.add(folder / "talks" / "de-en", "de-en")


def numbered(count: int) -> list[tuple[str, str]]:
    return [(f"Satz Nummer {n}.", f"Sentence number {n}.") for n in range(1, count + 1)]


def test_iwslt_is_built_as_by_hand(tmp_path, capsys):
    pairs = numbered(45)
    long = "w " * 176
    pairs[4:4] = [("Eins, zwei.", "One."), ("", "Nothing."), (long, long)]  # cleaned away
    talks(tmp_path / "raw", pairs)
    out = tmp_path / "data" / "out"
    counts = build_corpus("iwslt14-de-en", tmp_path / "raw", out)
    assert counts == {"train": 45, "valid": 2, "test": 10}
    # 2 + 45 clean lines: numbers 23 and 46 are the 21st and the 44th sentence.
    assert lines(out, "valid.de") == ["satz nummer 21 .", "satz nummer 44 ."]
    assert lines(out, "valid.en") == ["sentence number 21 .", "sentence number 44 ."]
    assert lines(out, "train.de")[:3] == [
        "al gore : title in de", "ted talk subtitles : de text", "satz nummer 1 .",
    ]  # fmt: skip
    assert lines(out, "train.en")[-2:] == ["sentence number 43 .", "sentence number 45 ."]
    assert lines(out, "test.de")[:2] == ["ted.dev2010 it &apos; s .", "de two"]
    assert [line.split()[0] for line in lines(out, "test.en")[::2]] == [
        "ted.dev2010", "tedx.dev2012", "ted.tst2010", "ted.tst2011", "ted.tst2012",
    ]  # fmt: skip
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["counts.json", *(f"{s}.{x}" for s in ("train", "valid", "test") for x in ("de", "en"))]
    )
    warning = "dynconv: iwslt14-de-en: 45 lines in split train instead of 160,239"
    assert warning in capsys.readouterr().err
    assert not out.with_name("out.part").exists()


def test_a_set_that_is_there_is_not_built_again(tmp_path):
    talks(tmp_path / "raw", numbered(30))
    counts = build_corpus("iwslt14-de-en", tmp_path / "raw", tmp_path / "out")
    assert build_corpus("iwslt14-de-en", tmp_path / "gone", tmp_path / "out") == counts
    put(tmp_path, "mine/notes.txt", "x")
    with pytest.raises(UserError, match="mine is not a built corpus"):
        build_corpus("iwslt14-de-en", tmp_path / "raw", tmp_path / "mine")


def test_known_numbers_of_lines_pass_without_a_warning(tmp_path, capsys, monkeypatch):
    talks(tmp_path / "raw", numbered(30))
    counts = {"train": 31, "valid": 1, "test": 10}
    entry = replace(require_corpus("iwslt14-de-en"), sentences=counts)
    monkeypatch.setattr("dynconv.text.builders.build.require_corpus", lambda name: entry)
    build_corpus("iwslt14-de-en", tmp_path / "raw", tmp_path / "out")
    assert capsys.readouterr().err == ""


def test_from_the_archive_to_a_corpus_to_train_on(tmp_path, monkeypatch, capsys):
    """data fetch --from, data prepare: the very commands at the head of the recipes."""
    monkeypatch.chdir(tmp_path)
    pack_talks(tmp_path / "mine", numbered(400))
    raw = ["--out", "raw"]
    assert cli.main(["data", "fetch", "iwslt14-de-en", "--from", "mine", *raw]) == 0
    prepare = ["data", "prepare", "iwslt14-de-en", "--raw", "raw", "--vocabulary", "bpe"]
    assert cli.main([*prepare, "--vocab-size", "80"]) == 0
    assert "prepared/iwslt14-de-en: 385 lines" in capsys.readouterr().out
    corpus = open_prepared(tmp_path / "prepared" / "iwslt14-de-en", verify=True)
    german = corpus.load_vocabularies().source.decode(Pairs.from_corpus(corpus)[9][0])
    assert german == lines(tmp_path / "prepared/iwslt14-de-en-text", "train.de")[9]
    more = ["--vocab-size", "90", "--out", "prepared/more"]
    assert cli.main([*prepare, *more, "--suffixes", "de", "fr"]) == 2
    assert "iwslt14-de-en has no suffix fr: it has de, en" in capsys.readouterr().err
    assert cli.main([*prepare, *more]) == 0
    said = capsys.readouterr()
    assert "prepared/iwslt14-de-en-text: using the text that was built before\n" in said.out
    assert "complete? remove prepared/iwslt14-de-en-text to build it again\n" in said.err
    made = ["iwslt14-de-en", "iwslt14-de-en-text", "more"]
    assert sorted(path.name for path in (tmp_path / "prepared").iterdir()) == made
    assert cli.main([*prepare, "--vocab-size", "80"]) == 2
    assert "already a prepared corpus" in capsys.readouterr().err
    assert cli.main([*prepare[:3], "--raw", "nowhere", "--out", "elsewhere"]) == 2
    remedy = "nowhere has no de-en.tgz: dynconv data fetch iwslt14-de-en --out nowhere first"
    assert remedy in capsys.readouterr().err


def build_fails(raw, out, name="iwslt14-de-en") -> str:
    with pytest.raises(UserError) as error:
        build_corpus(name, raw, out)
    assert "\n" not in str(error.value) and not out.exists()
    return str(error.value)


def test_a_missing_raw_file_is_named_with_the_remedy(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    message = build_fails(raw, out)
    assert "no train.tags.de-en.de there: dynconv data fetch iwslt14-de-en" in message
    assert "--from DIR" in message
    talks(raw, numbered(30))
    require_raw(raw, "IWSLT14.TED.tst2012.de-en.en.xml").unlink()
    assert "no IWSLT14.TED.tst2012.de-en.en.xml there" in build_fails(raw, out)
    assert not (tmp_path / "out.part" / "stages").exists()  # before any work


@pytest.mark.parametrize("build", ["-", "", ".", "iwslt", "iwslt.", "iwslt.no", "no.no", "a.b.c"])
def test_a_wrong_builder_in_the_manifest(build, tmp_path, monkeypatch):
    entry = replace(require_corpus("iwslt14-de-en"), build=build)
    monkeypatch.setattr("dynconv.text.builders.build.require_corpus", lambda name: entry)
    message = build_fails(tmp_path, tmp_path / "out")
    assert f"corpus iwslt14-de-en: build {build!r} does not name a function in " in message


@pytest.mark.parametrize("result", [None, 3, [1], {"train": "x"}, {"train": -1}])
def test_a_builder_must_return_the_number_of_lines(result, tmp_path, monkeypatch):
    monkeypatch.setattr(iwslt, "iwslt14_de_en", lambda raw, out: result)
    message = build_fails(tmp_path, tmp_path / "out")
    assert "iwslt.iwslt14_de_en must return line counts: " in message


def test_what_is_missing_in_an_unpacked_archive_can_be_had_as_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pack_talks(tmp_path, numbered(30))
    raw, text = tmp_path / "raw", tmp_path / "text"
    fetch = ["data", "fetch", "iwslt14-de-en", "--from", str(tmp_path), "--out", str(raw)]
    assert cli.main(fetch) == 0
    require_raw(unpack_corpus("iwslt14-de-en", raw), "train.tags.de-en.en").unlink()
    message = build_fails(raw, text)
    remedy = f"remove the folder de-en; then dynconv data fetch iwslt14-de-en --out {raw}, or"
    assert f"in {raw} {remedy}" in message
    assert message.endswith("; if that does not help, also remove de-en.tgz")
    shutil.rmtree(raw / "de-en")
    assert cli.main(fetch) == 0
    assert unpack_and_build("iwslt14-de-en", raw, text)["test"] == 10


def test_two_preparations_at_once(tmp_path, monkeypatch):
    raw, out = tmp_path / "raw", tmp_path / "out"
    talks(raw, numbered(30))
    with locked(tmp_path / "out.lock", "-"):
        assert f"{out}: another process is building it (process" in build_fails(raw, out)

    @contextmanager
    def late(*_):  # the lock of one that has just ended
        monkeypatch.undo()
        build_corpus("iwslt14-de-en", raw, out)
        yield

    monkeypatch.setattr("dynconv.text.builders.build.locked", late)
    assert build_corpus("iwslt14-de-en", tmp_path / "nowhere", out)["test"] == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "raw"]


def test_another_language_pair_is_recognised(tmp_path):
    put(tmp_path / "raw", "fr-en/train.tags.fr-en.fr", "Oui.")
    message = build_fails(tmp_path / "raw", tmp_path / "out")
    assert "there is train.tags.fr-en.fr: another language pair?" in message


def test_sides_of_unequal_length_are_an_error(tmp_path):
    raw = tmp_path / "raw"
    talks(raw, numbered(30))
    english = require_raw(raw, "train.tags.de-en.en")
    english.write_bytes(english.read_bytes() + b"One more.\n")
    message = build_fails(raw, tmp_path / "out")
    assert re.search(r"train\.tags\.de-en\.de has 32 lines but .*de-en\.en has 33", message)


def test_an_unknown_name_gets_a_hint(tmp_path):
    assert "did you mean wikitext-103?" in build_fails(tmp_path, tmp_path / "out", "wikitext103")


def test_a_full_disk_is_reported_in_one_line(tmp_path, monkeypatch):
    talks(tmp_path / "raw", numbered(30))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(iwslt, "write_splits", full)
    message = build_fails(tmp_path / "raw", tmp_path / "out")
    assert message.endswith("written (No space left on device); free some space and try again")


class Killed(BaseException):
    """Nobody catches it: what lies on the disk then is what a kill leaves."""


@pytest.mark.parametrize("after", [20, 40, 70])
def test_killed_anywhere_it_goes_on_from_the_finished_files(tmp_path, monkeypatch, after):
    raw, whole, out = tmp_path / "raw", tmp_path / "whole", tmp_path / "out"
    talks(raw, numbered(30))
    build_corpus("iwslt14-de-en", raw, whole)
    calls = []

    def counted(line, language):
        calls.append(line)
        if len(calls) == after:
            raise Killed
        return tokenize(line, language)

    monkeypatch.setattr(iwslt, "tokenize", counted)  # 2 x 32 lines of training, then 20 of tests
    with pytest.raises(Killed):
        build_corpus("iwslt14-de-en", raw, out)
    assert not out.exists()
    calls.clear()
    monkeypatch.setattr(iwslt, "tokenize", lambda *a: calls.append(a) or tokenize(*a))
    build_corpus("iwslt14-de-en", raw, out)
    done = {20: 0, 40: 32, 70: 68}[after]  # lines of whole files, of 32 or 2, before the kill
    assert len(calls) == 2 * 32 + 5 * 2 * 2 - done
    for path in whole.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()


def test_a_stage_older_than_its_raw_file_is_made_again(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    talks(raw, numbered(30))
    claim(tmp_path / "out.part", "-")
    path = put(tmp_path, "out.part/stages/de-en-train.tags.de-en.de", *["old"] * 32)
    os.utime(path, (1, 1))
    build_corpus("iwslt14-de-en", raw, out)
    assert "old" not in lines(out, "train.de")


def test_files_of_two_splits_may_have_the_same_name(tmp_path):
    for split in ("train", "test"):
        for language in ("de", "en"):
            put(tmp_path, f"{split}/text.{language}", f"{split} {language}")

    def pairs(split):
        sides = [(tmp_path / f"{split}/text.{language}", language) for language in ("de", "en")]
        return [*steps.tokenized_pairs(tmp_path, sides, stream_lines, lambda line, language: line)]

    assert pairs("train") == [("train de", "train en")]
    assert pairs("test") == [("test de", "test en")]
