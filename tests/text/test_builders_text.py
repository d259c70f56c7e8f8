"""Language models' and summarisation's data sets, from tiny raw trees."""

from hashlib import sha1
from pathlib import Path

import pytest
from helpers.raw_sets import lines, put

from dynconv import cli
from dynconv.errors import UserError
from dynconv.text.builders import build_corpus
from dynconv.text.corpus import require_references
from dynconv.text.lines import stream_parallel
from dynconv.text.manifest import read_manifest

RAW = {name: entry for name, entry in read_manifest().items() if not entry.shipped}
ODD = "a\u2028b\x0c c\u00a0"


def test_billion_word_takes_shards_in_order(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    top = "1-billion-word-language-modeling-benchmark-r13output"
    for shard in (2, 1, 99):
        name = f"news.en-{shard:05}-of-00100"
        put(raw, f"{top}/training-monolingual.tokenized.shuffled/{name}", f"Shard {shard} .", ODD)
    for shard in range(3):
        name = f"news.en.heldout-{shard:05}-of-00050"
        put(raw, f"{top}/heldout-monolingual.tokenized.shuffled/{name}", f"Held {shard} .")
    assert build_corpus("billion-word", raw, out) == {"train": 6, "valid": 1, "test": 1}
    assert lines(out, "train.txt") == ["Shard 1 .", ODD, "Shard 2 .", ODD, "Shard 99 .", ODD]
    assert lines(out, "test.txt") == ["Held 0 ."] and lines(out, "valid.txt") == ["Held 1 ."]


def test_wikitext_keeps_blank_lines(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    for split in ("train", "valid", "test"):
        text = (" ", f" = Title {split} = ", " ", " A @-@ b <unk> . ")
        put(raw, f"wikitext-103-v1/wikitext-103/wiki.{split}.tokens", *text)
    assert build_corpus("wikitext-103", raw, out) == {"train": 4, "valid": 4, "test": 4}
    assert lines(out, "test.txt") == ["", "= Title test =", "", "A @-@ b <unk> ."]


def story(raw, paper: str, url: str, *text: str):
    put(raw, f"{paper}_stories/{paper}/stories/{sha1(url.encode()).hexdigest()}.story", *text)


def newspapers(raw):
    story(raw, "cnn", "http://a", "(CNN) It's A.", "", "No full stop", "", "@highlight", "",
          "First one", "", "@highlight", "", "Second one!")  # fmt: skip
    story(raw, "dailymail", "http://b", "", "@highlight", "", "No article")
    story(raw, "dailymail", "http://c", "w " * 401, "", "@highlight", "", "Long")
    put(raw, "all_train.txt", "http://a", "http://b")
    put(raw, "all_val.txt", "http://c")
    put(raw, "all_test.txt", "http://a")


def test_cnn_dailymail_is_built_as_by_hand(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    newspapers(raw)
    assert build_corpus("cnn-dailymail", raw, out) == {"train": 1, "valid": 1, "test": 1}
    assert lines(out, "train.article") == ["( cnn ) it 's a . no full stop ."]
    assert lines(out, "train.summary") == ["first one . second one !"]
    assert lines(out, "valid.article") == [" ".join(["w"] * 400)]


def test_a_missing_story_is_named_by_its_address(tmp_path):
    newspapers(tmp_path / "raw")
    put(tmp_path / "raw", "all_test.txt", "http://nowhere")
    with pytest.raises(
        UserError, match="the story of http://nowhere: in .*raw remove the folder cnn_st"
    ):
        build_corpus("cnn-dailymail", tmp_path / "raw", tmp_path / "out")


def gigaword(raw):
    for side in ("article", "title"):
        put(raw, f"summary/sumdata/train/train.{side}.txt", f"{side} ## .", "b")
        put(raw, f"summary/sumdata/train/valid.{side}.filter.txt", side)
    put(raw, "summary/sumdata/Giga/input.txt", "test article", "UNK")
    put(raw, "summary/sumdata/Giga/task1_ref0.txt", "test title", "t")
    put(raw, "summary/sumdata/DUC2003/input.txt", "not this one")


def test_gigaword_is_copied_unchanged(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    gigaword(raw)
    assert build_corpus("gigaword", raw, out) == {"train": 2, "valid": 1, "test": 2}
    assert lines(out, "train.article") == ["article ## .", "b"]
    assert lines(out, "valid.summary") == ["title"]
    assert lines(out, "test.article") == ["test article", "UNK"]


def test_duc_has_four_references(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    put(raw, "input.txt", "one", "two")
    for number in range(4):
        put(raw, f"task1_ref{number}.txt", f"head {number}", "h")
    assert build_corpus("duc-2004", raw, out) == {"test": 2}
    assert lines(out, "test.article") == ["one", "two"]
    assert lines(out, "test.summary") == ["head 0", "h"]
    assert lines(out, "test.summary3") == ["head 3", "h"]
    put(raw, "task1_ref2.txt", "only one")
    with pytest.raises(UserError, match="input.txt has 2 lines but .*task1_ref2.txt has 1"):
        build_corpus("duc-2004", raw, tmp_path / "other")


@pytest.mark.parametrize("name", RAW)
def test_a_missing_raw_file_is_reported_with_the_remedy(tmp_path, name):
    if name == "wmt17-zh-en":
        pytest.importorskip("jieba")
    with pytest.raises(UserError, match=f"dynconv data fetch {name}.*--from DIR"):
        build_corpus(name, tmp_path / "raw", tmp_path / "out")


def test_every_set_counts_the_lines_of_its_test():
    assert all(RAW[name].sentences["test"] for name in RAW if name != "billion-word")


def test_duc_2004_has_only_a_test_split(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "raw/input.txt", "a first sentence")
    for number in range(4):
        put(tmp_path, f"raw/task1_ref{number}.txt", f"headline {number}")
    assert cli.main(["data", "prepare", "duc-2004", "--raw", "raw"]) == 0
    assert "no training split; dynconv evaluate RUN --corpus prepared/duc-2004-text" in (
        capsys.readouterr().out
    )
    files = require_references(Path("prepared/duc-2004-text"), "test.summary")
    assert list(stream_parallel(*files)) == [
        ("headline 0", "headline 1", "headline 2", "headline 3")
    ]
