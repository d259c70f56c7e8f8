"""The translation tasks of WMT, from tiny raw trees."""

import sys
from types import SimpleNamespace

import pytest
from helpers.raw_sets import lines, put, sgm

from dynconv import cli
from dynconv.errors import UserError
from dynconv.text.builders import build_corpus


def numbered(raw, corpus: str, first: int, last: int, *languages: str):
    for language in languages:
        put(raw, f"{corpus}.{language}", *(f"{language} {n}." for n in range(first, last + 1)))


def news(raw, name: str, source: str, target: str, *, folder: str = "test-full"):
    sgm(raw, f"{folder}/{name}-src.{source}.sgm", "“It’s”  well-known.")
    sgm(raw, f"{folder}/{name}-ref.{target}.sgm", "C’est bien-connu.")


def test_wmt16_en_de_joins_the_subwords(tmp_path):
    raw, out = tmp_path / "raw/wmt16_en_de", tmp_path / "out"
    names = {"train.tok.clean": "a", "newstest2013.tok": "b", "newstest2014.tok": "c"}
    for name, text in names.items():
        put(raw, f"{name}.bpe.32000.en", f"{text} un@@ der@@ stood .", "x")
        put(raw, f"{name}.bpe.32000.de", f"{text} ver@@ stan@@ den .", "y")
    put(raw, "newstest2014.tok.de", "not this one")
    counts = build_corpus("wmt16-en-de", tmp_path / "raw", out)
    assert counts == {"train": 2, "valid": 2, "test": 2}
    assert lines(out, "train.de") == ["a verstanden .", "y"]
    assert lines(out, "valid.en") == ["b understood .", "x"]
    assert lines(out, "test.en") == ["c understood .", "x"]


def test_wmt14_en_de_splits_before_it_cleans(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    numbered(raw, "training-parallel-europarl-v7/training/europarl-v7.de-en", 1, 99, "en", "de")
    put(raw, "training-parallel-commoncrawl/commoncrawl.de-en.en", "„A–b“ well-known (it’s)", "")
    put(raw, "training-parallel-commoncrawl/commoncrawl.de-en.de", "„A–b“\u200b Bad-Bad (c)", "x")
    numbered(raw, "training-parallel-nc-v9/training/news-commentary-v9.de-en", 102, 201, "en", "de")
    put(raw, "training-parallel-nc-v9/training/news-commentary-v9.fr-en.en", "not this one")
    news(raw, "newstest2014-deen", "en", "de", folder="test-full/test-full")
    news(raw, "newstest2014-deen", "en", "de", folder="dev/dev")  # a second copy
    counts = build_corpus("wmt14-en-de", raw, out)
    # Line 100 is the first of Common Crawl, its blank second is cleaned away, 200 is held out too.
    assert counts == {"train": 198, "valid": 2, "test": 1}
    dashes = "&quot; A @-@ b &quot; well @-@ known ( it &apos;s )"
    assert lines(out, "valid.en") == [dashes, "en 200 ."]
    assert lines(out, "valid.de") == ["&quot; A @-@ b &quot; Bad @-@ Bad ( c )", "de 200 ."]
    assert lines(out, "train.en")[98:101] == ["en 99 .", "en 102 .", "en 103 ."]
    assert lines(out, "test.en") == ["“ It &apos;s ” well @-@ known ."]  # not normalised


def test_wmt14_en_fr_cleans_by_words_and_reads_packed_files(tmp_path):
    import gzip

    raw, out = tmp_path / "raw", tmp_path / "out"
    numbered(raw, "a/training/europarl-v7.fr-en", 1, 1331, "en", "fr")
    put(raw, "b/commoncrawl.fr-en.en", "w " * 176, "w " * 175)
    put(raw, "b/commoncrawl.fr-en.fr", "w " * 176, "w " * 175)
    put(raw, "c/un/undoc.2000.fr-en.en", "one two three four", "l'art")
    put(raw, "c/un/undoc.2000.fr-en.fr", "un", "l'art")
    numbered(raw, "d/training/news-commentary-v9.fr-en", 1336, 1336, "en", "fr")
    numbered(raw, "e/giga-fren.release2.fixed", 1337, 1337, "en", "fr")
    for path in raw.glob("e/*"):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    news(raw, "newstest2014-fren", "en", "fr")
    assert build_corpus("wmt14-en-fr", raw, out) == {"train": 1334, "valid": 1, "test": 1}
    assert lines(out, "valid.en") == [" ".join(["w"] * 175)]  # line 1333
    assert lines(out, "train.fr")[-3:] == ["l&apos; art", "fr 1336 .", "fr 1337 ."]
    assert lines(out, "train.en")[-3:] == ["l &apos;art", "en 1336 .", "en 1337 ."]


def test_wmt16_en_ro_writes_commas_below_and_keeps_diacritics(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    numbered(raw, "training-parallel-ep-v8/europarl-v8.ro-en", 1, 98, "en", "ro")
    put(raw, "en-ro.txt/SETIMES.en-ro.en", "They say: “yes.”")
    put(raw, "en-ro.txt/SETIMES.en-ro.ro", "Şi ţara spune: „da.”")
    put(raw, "corpus.bt.en-ro.en/corpus.bt.en-ro.en", "hundred", "x " * 9)
    put(raw, "corpus.bt.en-ro.ro/corpus.bt.en-ro.ro", "o sută", "x")
    news(raw, "newstest2016-enro", "en", "ro", folder="dev/dev")
    assert build_corpus("wmt16-en-ro", raw, out) == {"train": 100, "valid": 1, "test": 1}
    assert lines(out, "train.ro")[98:] == ["Și țara spune : &quot; da &quot; .", "x"]
    assert lines(out, "train.en")[98] == "They say : &quot; yes . &quot;"
    assert lines(out, "valid.ro") == ["o sută"]


def chinese(raw):
    numbered(raw, "a/training/news-commentary-v12.zh-en", 1, 2, "zh", "en")
    numbered(raw, "b/en-zh/UNv1.0.en-zh", 3, 3, "zh", "en")
    put(raw, "casia2015/casia2015_ch.txt", "你好世界")
    put(raw, "casia2015/casia2015_en.txt", "hello world")
    put(raw, "datum2017/Book1_cn.txt", "书")
    put(raw, "datum2017/Book1_en.txt", "book")
    put(raw, "datum2017/__MACOSX/._Book1_en.txt", "not text")
    news(raw, "newsdev2017-zhen", "zh", "en", folder="dev")
    news(raw, "newstest2017-zhen", "zh", "en", folder="dev")


def test_wmt17_zh_en_segments_chinese(tmp_path, monkeypatch):
    raw, out = tmp_path / "raw", tmp_path / "out"
    chinese(raw)
    pairs = SimpleNamespace(cut=lambda text: [text[i : i + 2] for i in range(0, len(text), 2)])
    monkeypatch.setitem(sys.modules, "jieba", pairs)
    assert build_corpus("wmt17-zh-en", raw, out) == {"train": 5, "valid": 1, "test": 1}
    assert lines(out, "train.zh")[3:] == ["你好 世界", "书"]
    assert lines(out, "train.en")[2:] == ["en 3 .", "hello world", "book"]


def test_chinese_without_jieba_is_refused_before_any_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jieba", None)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["data", "prepare", "wmt17-zh-en"]) == 2
    assert "pip install 'dynconv[chinese]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # nothing is unpacked


@pytest.mark.parametrize("gone", ["commoncrawl.fr-en.fr", "newstest2014-fren-ref.fr.sgm"])
def test_a_missing_part_is_named_before_any_work(tmp_path, gone):
    raw = tmp_path / "raw"
    parts = "training/europarl-v7", "commoncrawl", "un/undoc.2000", "training/news-commentary-v9"
    for corpus in (*(f"{part}.fr-en" for part in parts), "giga-fren.release2.fixed"):
        numbered(raw, corpus, 1, 1, "en", "fr")
    news(raw, "newstest2014-fren", "en", "fr")
    next(raw.rglob(gone)).unlink()
    with pytest.raises(UserError, match=rf"no .*{gone} there.*dynconv data fetch wmt14-en-fr"):
        build_corpus("wmt14-en-fr", raw, tmp_path / "out")
    assert not (tmp_path / "out.part/stages").exists()
