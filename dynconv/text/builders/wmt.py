"""The news translation tasks of WMT, from the parts that their organisers publish."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from dynconv.text.builders.moses import normalize, tokenize
from dynconv.text.builders.steps import (
    Side,
    fits,
    hold_out,
    read_segments,
    require_raw,
    require_sides,
    tokenized_pairs,
    write_splits,
)
from dynconv.text.lines import Row, stream_lines, stream_parallel

COMMA_BELOW = str.maketrans("ŞşŢţ", "ȘșȚț")
"""a translation table of Romanian letters with a cedilla, from old fonts, into those with a comma,
as in normalise-romanian.py (Sennrich et al.)"""


def wmt16_en_de(raw: Path, out: Path) -> dict[str, int]:
    """Build the copy that Google prepared, its subwords joined to Moses's words again."""
    names = {"train": "train.tok.clean", "valid": "newstest2013.tok", "test": "newstest2014.tok"}
    sides = {
        split: [require_raw(raw, f"{name}.bpe.32000.{language}") for language in ("en", "de")]
        for split, name in names.items()
    }
    pairs = ((split, pair) for split in sides for pair in stream_parallel(*sides[split]))
    joined = ((split, (en.replace("@@ ", ""), de.replace("@@ ", ""))) for split, (en, de) in pairs)
    return write_splits(out, ("en", "de"), joined)


def wmt14_en_de(raw: Path, out: Path) -> dict[str, int]:
    """Build the data of Gehring et al. 2017 as fairseq's prepare-wmt14en2de.sh --icml17 does.

    The script limits pairs to 250 subwords, and we to 250 words, as subwords are learned later.
    """
    corpora = "training/europarl-v7.de-en", "commoncrawl.de-en", "training/news-commentary-v9.de-en"
    test = "test-full/newstest2014-deen"
    return build_from_english(raw, out, "de", corpora, test, valid=100, longest=250, ratio=1.5)


def wmt14_en_fr(raw: Path, out: Path) -> dict[str, int]:
    """Build the data of Gehring et al. 2017, section 4.1: up to 175 words, ratio 1.5.

    Every 1333rd pair goes to split valid, as in the released script, although Wu et al. 2019 name
    newstest2012 and 2013.
    """
    corpora = (
        "training/europarl-v7.fr-en",
        "commoncrawl.fr-en",
        "un/undoc.2000.fr-en",
        "training/news-commentary-v9.fr-en",
        "giga-fren.release2.fixed",
    )
    test = "test-full/newstest2014-fren"
    return build_from_english(raw, out, "fr", corpora, test, valid=1333, longest=175, ratio=1.5)


def wmt16_en_ro(raw: Path, out: Path) -> dict[str, int]:
    """Build the data of Gehring et al. 2017, section 4.1, with back-translations.

    This is preprocess.sh of Sennrich et al. 2016b, up to 175 words and Moses's default ratio of 9.
    Romanian is the target and keeps its diacritics: remove-diacritics.py is for sources. Two
    choices, about which nothing is published, are ours: every 100th pair goes to split valid, and
    there is no truecasing to undo.
    """
    corpora = "europarl-v8.ro-en", "SETIMES.en-ro", "corpus.bt.en-ro"
    test = "newstest2016-enro"
    return build_from_english(raw, out, "ro", corpora, test, valid=100, longest=175, ratio=9)


def wmt17_zh_en(raw: Path, out: Path) -> dict[str, int]:
    """Build News Commentary 12, the UN corpus and CWMT, with newsdev2017 for validation.

    Hassan et al. 2018 filtered these 25 million pairs to 20 million by unpublished models of their
    own. We keep pairs of up to 175 words and a ratio of 1.5; jieba finds the Chinese words.
    """
    languages = ("zh", "en")
    names = ["training/news-commentary-v12.zh-en.{}", "UNv1.0.en-zh.{}"]
    train = [require_sides(raw, name, languages) for name in names]
    train += [cwmt_sides(english) for english in sorted(raw.rglob("[!.]*_en.txt"))]
    valid = evaluation_set(raw, out, "valid", "newsdev2017-zhen", languages)
    test = evaluation_set(raw, out, "test", "newstest2017-zhen", languages)
    kept = clean((("train", pair) for pair in training_pairs(out, train)), longest=175, ratio=1.5)
    return write_splits(out, languages, chain(kept, valid, test))


def build_from_english(
    raw: Path, out: Path, to: str, corpora: Iterable[str], test: str, *, valid: int, **limits
) -> dict[str, int]:
    """Send one pair in `valid` of the corpora to split valid, and clean by the limits."""
    languages = ("en", to)
    train = [require_sides(raw, corpus + ".{}", languages) for corpus in corpora]
    held_out = evaluation_set(raw, out, "test", test, languages)
    kept = clean(hold_out(valid, training_pairs(out, train)), **limits)
    return write_splits(out, languages, chain(kept, held_out))


def cwmt_sides(english: Path) -> list[Side]:
    """Return the sides of CASIA, CASICT, Datum or NEU: NAME_ch.txt or NAME_cn.txt, NAME_en.txt."""
    chinese = require_raw(english.parent, english.name.replace("_en.txt", "_c[hn].txt"))
    return [(chinese, "zh"), (english, "en")]


def training_pairs(out: Path, corpora: Iterable[list[Side]]) -> Iterator[Row]:
    return chain.from_iterable(
        tokenized_pairs(out, sides, stream_lines, normalized_words) for sides in corpora
    )


def evaluation_set(
    raw: Path, out: Path, split: str, name: str, languages: tuple[str, str]
) -> Iterator[tuple[str, Row]]:
    """Find the source and reference of an evaluation set, whose pairs are a split."""
    names = f"{name}-src.{languages[0]}.sgm", f"{name}-ref.{languages[1]}.sgm"
    sides = zip([require_raw(raw, name) for name in names], languages, strict=True)
    return ((split, pair) for pair in tokenized_pairs(out, sides, read_segments, segment))


def clean(pairs: Iterable[tuple[str, Row]], **limits) -> Iterator[tuple[str, Row]]:
    return ((split, pair) for split, pair in pairs if fits(pair, **limits))


def normalized_words(line: str, language: str) -> str:
    """Normalise and tokenise a line of training text; evaluation sets are not normalised."""
    return segment(normalize(line, language), language)


def segment(line: str, language: str) -> str:
    if language == "zh":
        import jieba

        return " ".join(" ".join(jieba.cut(line)).split())
    if language == "ro":
        line = line.translate(COMMA_BELOW)
    return tokenize(line, language, aggressive=True)
