"""The tables of results, of the book and of the README: their numbers are the recorded ones."""

import re
from statistics import mean, stdev

import numpy as np
import pytest
from conftest import ROOT

from dynconv.config import load_experiment, require_experiment
from dynconv.lab import ledger, style
from dynconv.lab.experiment.table import format_scores
from dynconv.teach import result_figures

PAGE = (ROOT / "book/results.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
TABLES = ("help-de-en-mixers", "austen-mixers", "synopsis-mixers")
RECORDS = {name: ledger.read(f"experiment-{name}")["numbers"] for name in TABLES}


def expected(name: str) -> dict[str, list[str]]:
    """The cells of each recipe's line: parameters, mean of its seeds, seeds, companions' means."""
    found = {}
    for row, record in zip(
        load_experiment(require_experiment(name)).rows, RECORDS[name]["rows"], strict=True
    ):
        assert row.name == record["name"]
        cells = [f"{record['parameters'] / 1e6:.2f} M"]
        if record["mean"] is None:
            found[row.recipe] = [*cells, "not measured"]
            continue
        cells += [format_scores(record), ", ".join(f"{score:.2f}" for score in record["scores"])]
        if name != "help-de-en-mixers":
            first, *others = record["metrics"][0]
            cells += [f"{mean(each[key] for each in record['metrics']):.2f}" for key in others]
        found[row.recipe] = cells
    return found


def lines(text: str) -> dict[str, list[str]]:
    """The cells of each line of a table that begins with a recipe, by its name."""
    rows = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", text, re.MULTILINE)
    found = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    return {name: [cell for cell in cells if cell] for name, cells in found.items()}


def test_every_run_of_the_tables_is_finished():
    """Three seeds of each row."""
    for record in RECORDS.values():
        for row in record["rows"]:
            assert sum(isinstance(score, float) for score in row["scores"]) == 3, row["name"]


def test_the_books_tables_are_the_recorded_ones():
    assert lines(PAGE) == {k: v for name in TABLES for k, v in expected(name).items()}


def tuned_rows() -> dict[str, dict]:
    """The tuned rows by name, without seed 1, which is the run that won the search."""
    found = {}
    for row in ledger.read("experiment-help-de-en-tuned")["numbers"]["rows"]:
        new = row["scores"][1:]
        found[row["name"]] = row | {"scores": new, "mean": mean(new), "deviation": stdev(new)}
    return found


def test_seed_1_of_the_tuned_rows_won_the_search():
    for name, row in tuned_rows().items():
        trials = ledger.read(f"tune-help-de-en-{name}")["numbers"]["rounds"][1]
        assert row["valid_loss"][0] == max(trials, key=lambda trial: trial["score"])["loss"]


def test_the_readmes_table_is_the_recorded_one():
    tuned = tuned_rows()
    curves = ledger.read("learning-curves")["numbers"]
    found = {}
    for row in RECORDS["help-de-en-mixers"]["rows"]:
        name = row["name"]
        longer = [curves[key]["test"]["bleu"] for key in curves if key.split(",")[0] == name]
        found[f"help-de-en-{name}"] = [
            f"{row['parameters'] / 1e6:.2f} M",
            format_scores(row),
            format_scores(tuned[name]) if name in tuned else "-",
            lead_over_attention(tuned, name) if name in tuned and name != "attention" else "-",
            ", ".join(f"{bleu:.1f}" for bleu in longer) or "-",
        ]
    assert lines(README) == found


def lead_over_attention(rows: dict[str, dict], name: str) -> str:
    """The difference of two means of four seeds, with its 95% interval from all rows' spread."""
    pooled = mean(row["deviation"] ** 2 for row in rows.values()) ** 0.5
    half = 2.179 * pooled * (2 / 4) ** 0.5  # Student's t for 12 degrees of freedom
    return f"{rows[name]['mean'] - rows['attention']['mean']:.1f} ± {half:.1f}"


@pytest.mark.parametrize("name", TABLES)
def test_its_picture_is_on_the_page(name):
    assert f"data/results/experiment-{name}.png" in PAGE
    assert (ROOT / f"data/results/experiment-{name}.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_call_mixers_what_the_page_calls_them():
    for name in TABLES:
        for row in RECORDS[name]["rows"]:
            assert style.NAMES.get(row["name"], row["name"]) in PAGE.replace("Depth", "depth")
    legend = result_figures.draw_curves(ledger.read("learning-curves")["numbers"]).legends[0]
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["attention", "DynamicConv", "LightConv", "TaLK", "averaging"]


def test_summaries_are_better_than_the_first_words():
    """The first 12 words: tests/score/test_score.py. Attention is worse, and the page says so."""
    first = {"ROUGE-1": 34.2, "ROUGE-2": 15.7, "ROUGE-L": 29.5}
    for row in RECORDS["synopsis-mixers"]["rows"]:
        for found in row["metrics"]:
            better = [found[metric] > score for metric, score in first.items()]
            assert better == [row["name"] != "attention"] * 3


TITLES = {"attention": "attention", "light": "LightConv", "dynamic": "DynamicConv", "talk": "TaLK"}


@pytest.mark.parametrize("name, mixer", TITLES.items())
def test_the_search_is_the_recorded_one(name, mixer):
    trials = ledger.read(f"tune-help-de-en-{name}")["numbers"]["rounds"][1]
    scores = ", ".join(f"{t['score']:.1f}" for t in sorted(trials, key=lambda t: -t["score"]))
    loss = min(trial["loss"] for trial in trials)
    (row,) = re.findall(rf"^\| {mixer} \| rate .*$", PAGE, re.MULTILINE)
    assert row.endswith(f"| {scores} | {loss:.2f} |")


def test_only_one_of_the_64_trials_had_no_dropout():
    without, count = [], 0
    for name in TITLES:
        for trial in ledger.read(f"tune-help-de-en-{name}")["numbers"]["rounds"][0]:
            rates = [each.split("=")[1] for each in trial["settings"] if "dropout" in each]
            without += [name] * (not any(map(float, rates)))
            count += 1
    assert (without, count) == (["attention"], 64)


def test_lesson_31s_winners_and_shared_trials_are_the_recorded_ones():
    def settings(trial: dict) -> dict[str, str]:
        pairs = (each.split("=") for each in trial["settings"])
        return {key.split(".")[1]: value.removesuffix(".0") for key, value in pairs}

    first, winners, drawn = {}, {}, {}
    for name in TITLES:
        rounds = ledger.read(f"tune-help-de-en-{name}")["numbers"]["rounds"]
        best = max(rounds[1], key=lambda trial: trial["score"])
        winners[name], first[name] = settings(best), best["trial"]
        drawn[name] = [settings(trial) for trial in rounds[0][:11]]
    assert drawn["light"] == drawn["dynamic"] == drawn["talk"] != drawn["attention"]
    assert max(first[name] for name in ("light", "dynamic", "talk")) < 11
    assert winners["light"] == winners["dynamic"]
    lesson = (ROOT / "lessons/31_findings.md").read_text(encoding="utf-8")
    keys = ("lr", "warmup", "dropout", "attention_dropout", "weight_dropout")
    for name, mixer in (
        ("attention", "attention"),
        ("light", "LightConv and DynamicConv"),
        ("talk", "TaLK"),
    ):
        cells = (winners[name].get(key, "") for key in keys)
        assert f"| {mixer}, tuned | {' | '.join(cells)} |".replace("  |", " |") in lesson
    scores = sorted(
        (trial["score"], settings(trial))
        for trial in ledger.read("tune-help-de-en-talk")["numbers"]["rounds"][1]
    )
    (second, swapped), (best, _) = scores[-2:]
    assert swapped == winners["light"] and f"{best - second:.2f}" == "0.07"


def test_all_four_searches_of_lesson_31_lowered_the_loss():
    first = {row["name"]: row for row in RECORDS["help-de-en-mixers"]["rows"]}
    lowered = {
        name: round(mean(first[name]["valid_loss"]) - mean(row["valid_loss"][1:]), 2)
        for name, row in tuned_rows().items()
    }
    assert lowered == {"attention": 0.0, "light": 0.1, "dynamic": 0.1, "talk": 0.02}


def test_the_tuned_scores_are_the_recorded_ones():
    tuned = tuned_rows()
    winners = {
        row["name"]: row["scores"][0]
        for row in ledger.read("experiment-help-de-en-tuned")["numbers"]["rows"]
    }
    shipped = {row["name"]: row["mean"] for row in RECORDS["help-de-en-mixers"]["rows"]}
    for name, row in tuned.items():
        scores = ", ".join(f"{each:.2f}" for each in row["scores"])
        lead = f" {lead_over_attention(tuned, name)} |" if name != "attention" else " |"
        cells = f"{format_scores(row)} | {scores} |{lead} {winners[name]:.2f} |"
        assert f"| `help-de-en-tuned:{name}` | {cells}" in PAGE
        assert row["mean"] < shipped[name]


def test_lesson_31s_verdicts_on_the_papers_claims_are_the_same_by_chrf():
    """The first two columns of its marks: the first table, and the tuned rows."""

    def marks(values: dict[str, list[float]], factor: float) -> list[int]:
        variance = mean(stdev(scores) ** 2 for scores in values.values())
        half = factor * (2 * variance / len(values["talk"])) ** 0.5
        mixers = ("dynamic", "light", "talk")
        pairs = [(mixer, "attention") for mixer in mixers]
        pairs += [("talk", "light"), ("talk", "dynamic"), ("dynamic", "light")]
        leads = [mean(values[a]) - mean(values[b]) for a, b in pairs]
        return [(lead > half) - (lead < -half) for lead in leads]

    first = {row["name"]: row for row in RECORDS["help-de-en-mixers"]["rows"]}
    expected = ((first, 3.46, [1, 1, 1, -1, 0, 0]), (tuned_rows(), 2.97, [1, 1, 1, -1, -1, 0]))
    for rows, factor, verdict in expected:
        new = {name: row["metrics"][-len(row["scores"]) :] for name, row in rows.items()}
        chrf = {name: [each["chrF2"] for each in metrics] for name, metrics in new.items()}
        bleu = {name: row["scores"] for name, row in rows.items()}
        assert marks(bleu, factor) == marks(chrf, factor) == verdict


@pytest.mark.parametrize("times", [1, 2, 3])
def test_lesson_31_gives_talks_one_long_run_an_interval_that_is_wide_enough(times):
    """TaLK's deviation, from three seeds, is `times` that of the others; factor 4.30."""
    draw = np.random.default_rng(31)
    squares = draw.standard_normal((100_000, 8, 3)).var(-1, ddof=1)
    squares[:, 0] *= times**2
    luck = draw.standard_normal((100_000, 2))
    gap = times * luck[:, 0] - luck[:, 1] / 3**0.5  # one run less the mean of three
    half = 4.30 * (squares[:, 0] + squares.mean(1) / 3) ** 0.5
    assert (abs(gap) > half).mean() < 0.04


def test_lesson_31s_factor_for_a_deviation_of_two_mixers_among_four_is_tukeys():
    """4.07 for four degrees of freedom; 2.86, for sixteen, would be exceeded in 14%."""
    draw = np.random.default_rng(31)
    means = draw.standard_normal((200_000, 4))
    deviation = (draw.chisquare(4, 200_000) / 4) ** 0.5
    gap = np.ptp(means, axis=1) / (2**0.5 * deviation)  # of the largest pair, in standard errors
    assert (gap > 4.07).mean() == pytest.approx(0.05, abs=0.002)
    assert (gap > 2.86).mean() == pytest.approx(0.14, abs=0.005)


def test_lesson_34_says_how_the_mean_lead_of_dynamicconv_shrinks():
    numbers = ledger.read("learning-curves")["numbers"]
    low, high = (
        np.mean([run["valid_bleu"] for key, run in numbers.items() if key.startswith(mixer)], 0)
        for mixer in ("attention", "dynamic")
    )
    leads = dict(zip(numbers["attention"]["updates"], high - low, strict=True))
    rest = [lead for update, lead in leads.items() if update >= 6300]
    lesson = (ROOT / "lessons/34_which.md").read_text(encoding="utf-8")
    first = f"from {leads[2100]:.1f} BLEU after 2,100 updates to {leads[6300]:.1f} after 6,300."
    then = f"From there to the end it stays between {min(rest):.1f} and {max(rest):.1f}."
    assert f"shrinks {first} {then}" in lesson


def test_the_learning_curves_are_the_recorded_ones():
    numbers = ledger.read("learning-curves")["numbers"]
    curves = [numbers[name] for name in ("attention", "light", "dynamic", "talk", "average")]
    updates = curves[0]["updates"]
    for update, *scores in zip(updates, *(curve["valid_bleu"] for curve in curves), strict=True):
        assert f"| {update:,} | {' | '.join(f'{score:.1f}' for score in scores)} |" in PAGE
    for curve in curves:
        test = curve["test"]
        assert f"({test['low']:.1f} to {test['high']:.1f})" in PAGE
        assert f"{test['bleu']:.1f}" in PAGE
    text, tests = " ".join(PAGE.split()), []
    for mixer in ("attention", "dynamic"):
        first, *others = (numbers[key] for key in numbers if key.split(",")[0] == mixer)
        ends = " and ".join(f"{run['valid_bleu'][-1]:.1f}" for run in others)
        scores = " and ".join(f"{run['test']['bleu']:.1f}" for run in others)
        assert re.search(rf"end (higher, )?at {ends}, and score {scores} on the test split", text)
        tests.append([run["test"]["bleu"] for run in (first, *others)])
        apart = [
            [abs(a - b) for a, b in zip(first["valid_bleu"], run["valid_bleu"], strict=True)]
            for run in others
        ]
        if mixer == "attention":
            begin = " and ".join(f"{run['valid_bleu'][0]:.1f}" for run in others)
            assert f"have {begin} BLEU after 1,050 updates, up to {max(apart)[0]:.1f} less" in text
        else:
            assert f"DynamicConv's stay within {max(map(max, apart)):.1f} of the first" in text
    ours, theirs = map(mean, tests)
    half = (
        2.776 * mean(stdev(each) ** 2 for each in tests) ** 0.5 * (2 / 3) ** 0.5
    )  # Student's t, 4
    assert f"means there are {ours:.2f} and {theirs:.2f}" in text
    assert f"the lead is {theirs - ours:.1f} ± {half:.1f} (95%)" in text
    ends = [
        [run["valid_bleu"][-1] for key, run in numbers.items() if key.split(",")[0] == mixer]
        for mixer in ("attention", "dynamic")
    ]
    scatter = mean(stdev(each) ** 2 for each in ends) ** 0.5
    half = 4.07 * scatter * (2 / 3) ** 0.5  # Tukey's for four mixers and 4 degrees of freedom
    assert f"with the {scatter:.2f} by which the same six runs scatter" in text
    assert f"validation at the end, {theirs - ours:.1f} ± {half:.1f}," in text
    drawn = [axes.get_lines() for axes in result_figures.draw_curves(numbers).axes]
    assert [len(lines) for lines in drawn] == [5] * 4
    minutes = curves[0]["ms_per_update"] * updates[-1] / 60_000
    assert drawn[1][0].get_xdata()[-1] == pytest.approx(minutes)


def test_the_independent_baseline_is_the_recorded_one():
    numbers = ledger.read("joeynmt")["numbers"]
    text = " ".join(PAGE.split())
    bleu, loss = numbers["valid_bleu"][-1], numbers["valid_loss"][-1]
    assert f"scores {bleu:.1f} greedy BLEU on the validation split with a loss of {loss}" in text
    ours = numbers["help-de-en-tuned:attention"]["test"]["bleu"]
    theirs, spread = numbers["test"]["bleu"], f"{mean(ours):.2f} ± {stdev(ours):.2f}"
    assert f"{theirs} (ours, greedy: {spread})" in README
    assert f"it scores {theirs} and ours {spread} (four seeds)" in text
    theirs, (low, high) = numbers["target_tokens_per_s"].values()
    assert f"trains on about {round(mean(theirs), -1):,.0f} target tokens a second" in text
    assert f"on {round(low, -2):,} to {round(high, -2):,}." in text


def test_the_control_with_windows_is_the_recorded_one():
    (row,) = ledger.read("experiment-help-de-en-window")["numbers"]["rows"]
    mean = {row["name"]: row["mean"] for row in RECORDS["help-de-en-mixers"]["rows"]}
    gain, gap = row["mean"] - mean["attention"], mean["dynamic"] - mean["attention"]
    assert 0.75 < gain / gap < 0.85, "four fifths"
    text = " ".join(PAGE.split())
    one, other = (f"{score:.1f}" for score in row["scores"])
    assert f"scores {one} and {other} BLEU on the test split, {row['mean']:.1f} on average" in text
    assert f"attention {gain:.1f} BLEU better" in text
    assert f"it scores {row['mean']:.1f} (two seeds), four fifths" in " ".join(README.split())
