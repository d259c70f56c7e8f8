"""Scores: values computed by hand, every flag, every error, and known scores of real outputs."""

import json
import re
from functools import partial

import numpy as np
import pytest
from conftest import ROOT
from sacrebleu.metrics import BLEU

from dynconv import cli
from dynconv.errors import UserError
from dynconv.score import (
    bleu,
    chrf,
    compute_metric,
    lead,
    perplexity,
    rouge,
    split_compounds,
)
from dynconv.score import metric as module
from dynconv.score.metric import score_report
from dynconv.text import load_parallel
from dynconv.text.corpus import require_references

SCORING = ROOT.parent / "shared" / "benchmarks" / "scoring"

# Seven sentences of our own, some translated well and some badly, for the interval.
HYPOTHESES = [
    "The kernel slides over the sentence from left to right.",
    "Each head owns one kernel.",
    "A wider window sees more words at the same time.",
    "The decoder may not look at the future.",
    "We count the weights by hand once.",
    "Padding is not a word.",
    "She closed the book and goes home.",
]
REFERENCES = [
    "The kernel slides along the sentence from left to right.",
    "Each head owns a kernel.",
    "A wider window sees more words at once.",
    "The decoder must never look into the future.",
    "We count the weights by hand once.",
    "Padding is no word.",
    "She closed the book and went home.",
]


@pytest.mark.parametrize("flags", [{}, {"tokenized": True}, {"compound_split": True}], ids=str)
def test_bleu_of_an_exact_match_is_100(flags):
    assert bleu(REFERENCES, REFERENCES, **flags).value == pytest.approx(100)


# (flags, hypothesis, reference, BLEU).
BY_HAND = [
    # Of the five words' n-grams the reference has 4/5, 3/4, 2/3 and 1/2. Both have the same length,
    # so no brevity penalty: BLEU = (4/5 * 3/4 * 2/3 * 1/2) ** (1/4) = (1/5) ** (1/4) = 0.6687.
    ({}, "we have built one house", "we have built one bridge", "66.87"),
    # Every n-gram matches, but 5 words stand for 10: BLEU = exp(1 - 10 / 5) = 0.3679.
    ({}, "1 2 3 4 5", "1 2 3 4 5 6 7 8 9 10", "36.79"),
    # 3/4, 2/3, 1/2 and no 4-gram out of 1. multi-bleu.perl gives 0; sacreBLEU's smoothing counts
    # the first missing order as a half: (3/4 * 2/3 * 1/2 * 1/2) ** (1/4) = 0.5946.
    ({"tokenized": True}, "red green blue grey", "red green blue pink", "0.00"),
    ({}, "red green blue grey", "red green blue pink", "59.46"),
    # 13a sets punctuation apart on both sides; else "works" and "works," differ.
    ({}, "It works , today .", "It works, today.", "100.00"),
    ({"tokenized": True}, "It works , today .", "It works, today.", "0.00"),
    # Five words each, "short-term" wrong as a whole: no 4-gram matches, BLEU 0. Split into seven:
    # 6/7, 4/6, 3/5, 2/4, so BLEU = (6/35) ** (1/4) = 0.6435.
    ({"tokenized": True}, "a short-term loan was given", "a long-term loan was given", "0.00"),
    (
        {"compound_split": True},
        "a short-term loan was given",
        "a long-term loan was given",
        "64.35",
    ),
]


@pytest.mark.parametrize("flags, hypothesis, reference, value", BY_HAND)
def test_bleu_by_hand(flags, hypothesis, reference, value):
    assert f"{bleu([hypothesis], [reference], **flags).value:.2f}" == value


@pytest.mark.parametrize("flags", [{}, {"tokenized": True}, {"compound_split": True}], ids=str)
def test_bleu_lowercase(flags):
    pair = ["HERE is The whole Sentence"], ["here is the whole sentence"]
    assert bleu(*pair, **flags).value < 50
    assert bleu(*pair, lowercase=True, **flags).value == pytest.approx(100)


def test_signatures_tell_the_ways_apart():
    def signature(**flags):
        return bleu(REFERENCES, REFERENCES, **flags).signature

    assert "case:mixed|eff:no|tok:13a|smooth:exp|version:" in signature()
    assert "case:lc|" in signature(lowercase=True)
    assert "tok:none|smooth:none|version:" in signature(tokenized=True)
    assert "tok:none|smooth:none|compounds:split|version:" in signature(compound_split=True)


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("a well-known word", "a well ##AT##-##AT## known word"),
        ("x-y-z", "x ##AT##-##AT## y-z"),  # one pass: y is used up
        ("one - two", "one - two"),
        ("-start end-", "-start end-"),
        ("", ""),
    ],
)
def test_split_compounds(line, split):
    assert split_compounds(line) == split


def test_split_compounds_golden(golden):
    known = golden.case("compound_split").arrays
    assert [split_compounds(str(line)) for line in known["inp"]] == list(known["out"])


def test_chrf_by_hand():
    # Only orders 1 and 2 exist. Order 1: "a" of "ab" is in "ac", precision and recall 1/2; order 2:
    # 0. Their means are 1/4 each, and so is every F-score of them.
    assert chrf(["ab"], ["ac"]).value == pytest.approx(25)
    assert chrf(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert chrf(["ab"], ["ac"]).signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0")


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_bootstrap_of_mostly_empty_output(metric):
    """Some resamples score exactly 0."""
    right = "the cat sat on the mat"
    score = metric(["", "", "", right], ["a dog", "a cow", "a pig", right], bootstrap=50)
    assert 0 < score.value < 100 and score.low < score.high


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_bootstrap_intervals_contain_the_score_and_repeat(metric):
    score = metric(HYPOTHESES, REFERENCES, bootstrap=200)
    assert score.low < score.value < score.high
    assert score == metric(HYPOTHESES, REFERENCES, bootstrap=200)
    assert "bs:200|seed:12345" in score.signature
    plain = metric(HYPOTHESES, REFERENCES)
    assert plain.value == score.value and plain.low is None and plain.high is None


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_intervals_stay_between_0_and_100(metric):
    right = "the cat sat on the mat"
    score = metric([right] * 3 + ["a dog"], [right] * 4, bootstrap=50)
    assert 0 <= score.low < score.value < score.high == 100
    score = metric(["a dog"] * 3 + [right], [right] * 4, bootstrap=50)
    assert 0 == score.low < score.value < score.high <= 100


def test_the_interval_is_the_one_that_sacrebleu_prints():
    """It is read from private attributes, which a later version may rename."""
    printed = str(BLEU().corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=200))
    mean, half = (float(number) for number in re.search(r"= ([\d.]+) ± ([\d.]+)", printed).groups())
    score = bleu(HYPOTHESES, REFERENCES, bootstrap=200)
    assert (score.low, score.high) == pytest.approx((mean - half, mean + half), abs=0.11)


def test_rouge_by_hand():
    # 2 of 3 words against 2 of 4: F = 2 * (2/3 * 1/2) / (2/3 + 1/2) = 4/7; pairs 1/2 and 1/3: 2/5;
    # the longest common subsequence is "the cat": 4/7 again.
    scores = rouge(["the cat sat"], ["the cat ran home"], stem=False)
    assert [score.metric for score in scores] == ["ROUGE-1", "ROUGE-2", "ROUGE-L"]
    assert [score.value for score in scores] == pytest.approx([400 / 7, 40, 400 / 7])


def test_rouge_matches_stems_only_if_asked():
    pair = ["houses burned"], ["house burning"]
    assert [score.value for score in rouge(*pair, stem=False)] == [0, 0, 0]
    stemmed = rouge(*pair, stem=True)
    assert [score.value for score in stemmed] == pytest.approx([100, 100, 100])
    assert "stem:yes" in stemmed[0].signature


def values(*pair, **options):
    return [score.value for score in rouge(*pair, stem=False, **options)]


def test_rouge_recall_by_hand():
    # 2 of 4 words, 1 of 3 pairs, and "the cat" again.
    assert values(["the cat sat"], ["the cat ran home"], recall=True) == pytest.approx(
        [50, 100 / 3, 50]
    )


def test_rouge_limit_counts_bytes_of_both_sides():
    # 7 bytes: "the cat" of either; "é" is two of them.
    assert values(["the cat sat"], ["the cat ran home"], limit=7) == pytest.approx([100] * 3)
    assert values(["été the cat"], ["the cat"], limit=7, recall=True) == [0, 0, 0]  # "été t"
    signature = rouge(["a"], ["a"], stem=False, recall=True, limit=75)[0].signature
    assert signature.startswith("nrefs:1|stem:no|score:recall|bytes:75|")


def test_rouge_adds_several_references_up():
    # Words found: 2 of 2 and 1 of 4, so recall 3/6; of the hypothesis 2 of 3 and 1 of 3, so
    # precision 3/6. Pairs found: 1 of 1 and 0 of 3; of the hypothesis 1 of 2 and 0 of 2.
    pair = ["the cat sat"], [["the cat", "dogs sat down there"]]
    assert values(*pair, recall=True) == pytest.approx([50, 25, 50])
    assert values(*pair) == pytest.approx([50, 25, 50])
    assert rouge(*pair, stem=False)[0].signature.startswith("nrefs:2|")
    assert values(["a"], [["a", "a"]]) == values(["a"], ["a"])
    mixed = rouge(["a", "a"], [["a", "b"], ["a"]], stem=False)[0]
    assert mixed.value == pytest.approx(75) and mixed.signature.startswith("nrefs:var|")


def test_rouge_l_of_sentences():
    # As one text only "d e f" is in order; as sentences both of them are found.
    pair = ["d e f . a b c ."], ["a b c . d e f ."]
    assert values(*pair)[2] == pytest.approx(50)
    assert values(*pair, sentence_end=" .")[2] == pytest.approx(100)
    one, many = (rouge(*pair, stem=False, sentence_end=end)[2].signature for end in ("\n", " ."))
    assert '|sentence_end:"\\n"|' in one and '|sentence_end:" ."|' in many


def test_score_and_evaluate_give_the_same_rouge():
    """In value and signature, for lines of several sentences."""
    pair = ["d e f . a b c .", "one line"], ["a b c . d e f .", "one more line"]
    evaluated = module.compute_metric("rouge", *pair)
    assert evaluated[-1].value > 80
    lines = score_report(*pair, ["rouge"]).splitlines()
    assert [line for line in lines if line.startswith("ROUGE")] == [str(s) for s in evaluated]


def test_score_reads_every_file_of_references_as_evaluate_does(tmp_path, capsys):
    texts = {"outputs": ["a b c", "d e"], "test.en": ["a x", "y"], "test.en1": ["b c", "d e f"]}
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [str(tmp_path / "outputs"), *map(str, require_references(tmp_path, "test.en"))]
    assert cli.main(["score", *files, "--metric", "rouge-75"]) == 0
    outputs, *references = texts.values()
    evaluated = module.compute_metric("rouge-75", outputs, list(zip(*references, strict=True)))
    assert capsys.readouterr().out.splitlines() == [str(score) for score in evaluated]
    assert evaluated[0].signature.startswith("nrefs:2|")


def test_rouge_of_nothing_is_0():
    assert values(["", "a b"], ["a b", "a b"]) == pytest.approx([50] * 3)
    assert values(["", "a b"], [["a b"], ["", "..."]], recall=True) == [0, 0, 0]


def test_rouge_names_a_line_without_reference():
    with pytest.raises(UserError, match="^line 2 has no reference: "):
        rouge(["a", "b"], [["a"], []], stem=False)


def test_lead_takes_the_first_words():
    assert lead(["one  two three", "", "four"], 2) == ["one two", "", "four"]


def test_lead_of_package_descriptions():
    """The baseline that a model trained on them must beat."""
    text = load_parallel("debian-descriptions", "paragraph", "synopsis", "test")
    scores = rouge(lead(text.source, 12), text.target, stem=True)
    assert [f"{score.value:.1f}" for score in scores] == ["34.2", "15.7", "29.5"]


def test_report_has_a_line_for_each_score():
    plain = score_report(HYPOTHESES, REFERENCES).splitlines()
    assert [line.split(" = ")[0] for line in plain[::2]] == ["BLEU", "chrF2"]
    score = bleu(HYPOTHESES, REFERENCES, bootstrap=1000)
    interval = f"[{score.low:.2f}, {score.high:.2f}]"
    assert plain[0] == f"BLEU = {score.value:.2f} {interval}  {score.signature}"

    lines = score_report(HYPOTHESES, REFERENCES, ["bleu-split", "bleu", "rouge"]).splitlines()
    names = [line.split(" = ")[0] for line in lines]
    assert [name for name in names if not name.startswith(" ")] == [
        *("BLEU, compounds split", "BLEU, tokenized", "BLEU"),
        *("chrF2", "ROUGE mean", "ROUGE-1", "ROUGE-2", "ROUGE-L"),
    ]
    shouted = [line.upper() for line in HYPOTHESES]
    assert score_report(shouted, HYPOTHESES, lowercase=True).startswith("BLEU = 100.00 ")


def test_report_prints_what_bleu_is_made_of():
    # The counts of test_bleu_by_hand, in multi-bleu.perl's words.
    line = score_report(["we have built one house"], ["we have built one bridge"]).splitlines()[1]
    made_of = "80.0/75.0/66.7/50.0 (BP=1.000, ratio=1.000, hyp_len=5, ref_len=5)"
    assert line.strip() == made_of


METRICS = [bleu, chrf, lambda h, r: rouge(h, r, stem=False), score_report]
IDS = ["bleu", "chrf", "rouge", "report"]


@pytest.mark.parametrize("metric", METRICS, ids=IDS)
def test_different_lengths_and_no_lines(metric):
    with pytest.raises(UserError, match="2 hypotheses but 3 references"):
        metric(["a", "b"], ["a", "b", "c"])
    with pytest.raises(UserError, match="0 lines"):
        metric([], [])


def test_an_unknown_metric_gets_the_nearest():
    with pytest.raises(UserError, match=r"^no metric 'blue'; did you mean bleu\?$"):
        compute_metric("blue", ["a"], ["a"])


DETOKENIZED = partial(compute_metric, "bleu-detokenized")


@pytest.mark.parametrize("metric", [*METRICS, DETOKENIZED], ids=[*IDS, "detokenized"])
def test_a_text_in_place_of_a_list_of_lines(metric):
    """It is also a sequence of strings, its letters."""
    for pair in [("a text", "a text"), ("a", ["a"]), (["a"], "a")]:
        with pytest.raises(UserError, match="'a( text)?' is one text: give a list of lines"):
            metric(*pair)


def test_a_text_in_place_of_the_lines_alone():
    for call in (lambda: perplexity(np.ones(3), "a text"), lambda: lead("a text", 1)):
        with pytest.raises(UserError, match="'a text' is one text: give a list of lines"):
            call()


def test_empty_lines_are_scored():
    assert bleu([""], ["a reference"]).value == 0
    assert chrf([""], ["a reference"]).value == 0


def test_bleu_agrees_with_the_script():
    """What multi-bleu.perl of mosesdecoder, at 34452895f, printed for text of ours."""
    words = [line.split() for line in load_parallel("libreoffice-de-en", "de", "en", "test").target]
    cut = [" ".join(word for i, word in enumerate(line, 1) if i % 5) for line in words]
    for hypotheses, references, printed in (
        (
            HYPOTHESES,
            REFERENCES,
            "56.63, 78.8/62.2/50.0/41.9 (BP=1.000, ratio=1.061, hyp_len=52, ref_len=49)",
        ),
        (
            REFERENCES,
            HYPOTHESES,
            "57.60, 83.7/66.7/54.3/46.4 (BP=0.941, ratio=0.942, hyp_len=49, ref_len=52)",
        ),
        (
            cut,
            [" ".join(line) for line in words],
            "51.83, 100.0/81.0/59.0/32.7 (BP=0.824, ratio=0.838, hyp_len=8836, ref_len=10542)",
        ),
    ):
        score = bleu(hypotheses, references, tokenized=True)
        assert f"{score.value:.2f}, {score.detail}" == printed


@pytest.fixture(scope="module")
def expected() -> dict[str, dict]:
    """Known scores of published system outputs, by hypothesis file.

    Their text may not be shipped; `test_bleu_agrees_with_the_script` needs only ours.
    """
    if not SCORING.is_dir():
        pytest.skip("the published outputs are not present")
    return json.loads((SCORING / "expected.json").read_text(encoding="utf-8"))


def lines(name: str) -> list[str]:
    return (SCORING / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_bleu_of_published_outputs(expected):
    known = {name: entry for name, entry in expected.items() if "bleu" in entry}
    assert known
    for name, entry in known.items():
        pair = lines(name), lines(entry["ref"])
        tokenized = entry["metric"].startswith("multi-bleu.perl")
        score = bleu(*pair, tokenized=tokenized)
        assert f"{score.value:.2f}" == f"{entry['bleu']:.2f}", name
        if "precisions" in entry:
            precisions = "/".join(str(p) for p in entry["precisions"])
            assert score.detail.startswith(f"{precisions} (BP={entry['bp']:.3f}, "), name
            lengths = f"hyp_len={entry['hyp_len']}, ref_len={entry['ref_len']})"
            assert score.detail.endswith(lengths), name
        if "multi-bleu.perl" in entry:
            value = bleu(*pair, tokenized=True).value
            assert f"{value:.2f}" == f"{entry['multi-bleu.perl']:.2f}", name
        if "sacrebleu_13a_on_detok" in entry:
            plain = (lines(file.replace(".eng", ".detok.eng")) for file in (name, entry["ref"]))
            assert f"{bleu(*plain).value:.2f}" == f"{entry['sacrebleu_13a_on_detok']:.2f}", name


def test_rouge_of_published_outputs(expected):
    known = {name: entry for name, entry in expected.items() if "rouge1" in entry}
    assert known
    for name, entry in known.items():
        pair = lines(name), lines(entry["ref"])
        for key, stem in [("rouge_score 0.1.2 no stemmer", False), ("rouge_score stemmer", True)]:
            values = [f"{score.value / 100:.5f}" for score in rouge(*pair, stem=stem)]
            assert values == [f"{value:.5f}" for value in entry[key].values()], (name, key)


# What ROUGE-1.5.5.pl -c 95 -r 1000 -n 2 -a [-m] -z SPL printed for these files, a sentence a line:
# the F-scores of ROUGE-1, 2 and L. Its averages are over random resamples and move by 0.02 points.
ROUGE_155 = {
    ("sum.sys1.eng", False): [35.774, 16.473, 34.155],
    ("sum.sys1.eng", True): [37.702, 17.235, 35.662],
    ("sum.sys2.eng", False): [36.943, 17.473, 35.370],
    ("sum.sys2.eng", True): [39.118, 18.296, 37.086],
}


def test_rouge_agrees_with_the_script(expected):
    folder = "gigaword-comparemt"
    for (system, stem), printed in ROUGE_155.items():
        pair = lines(f"{folder}/{system}"), lines(f"{folder}/sum.ref.eng")
        values = [score.value for score in rouge(*pair, stem=stem)]
        # With -m the script also knows WordNet's irregular forms; the library's stemmer does not.
        assert values == pytest.approx(printed, abs=0.08 if stem else 0.025)
        # The numbers recorded beside the files are lower; how its input was prepared is not known.
        entry = expected[f"{folder}/{system}"]
        entry = entry["with -m"] if stem else entry
        recorded = [100 * entry[key] for key in ("rouge1", "rouge2", "rougeL")]
        differences = [a - b for a, b in zip(values, recorded, strict=True)]
        assert all(0.1 < d < 0.37 for d in differences)


@pytest.mark.parametrize("limit", [0, -1])
def test_rouge_of_no_bytes_is_refused(limit):
    with pytest.raises(UserError, match=f"^limit {limit} must be at least 1 byte"):
        rouge(["a"], ["a"], stem=False, limit=limit)
