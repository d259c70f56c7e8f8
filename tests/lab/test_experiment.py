"""`dynconv experiment`: rows times seeds, resumed, recorded, drawn; and those that are shipped."""

import json
import math
import re
import shlex
import signal
from dataclasses import astuple, replace
from pathlib import Path
from statistics import mean, stdev

import pytest
import torch
import yaml as YAML
from helpers.commands import fails
from helpers.published import ROWS
from helpers.training import StoppingWatch

from dynconv import cli
from dynconv.cli.listing import list_experiments
from dynconv.config import (
    ConvS2SConfig,
    load_experiment,
    load_recipe,
    load_row,
    require_experiment,
    run_name,
    shipped_experiments,
)
from dynconv.config.load import read_comment
from dynconv.errors import UserError
from dynconv.lab import ledger, many_runs
from dynconv.lab.experiment import run, table
from dynconv.models import build
from dynconv.score import Perplexity
from dynconv.train import TrainedModel, run_corpus
from dynconv.train.stopwatch import Stopwatch
from dynconv.train.trained import Evaluation

ATTENTION = {"mixer": "attention"}
TWO = [
    {"name": "dynamic", "printed_name": "DynamicConv", "published": "26.9 ± 0.2"},
    {
        "name": "attention",
        "changes": {
            "model": {"encoder": ATTENTION, "decoder": ATTENTION},
            "train": {"updates": 6},  # gives way to what the command says
        },
    },
]

LEARN = "train.lr=1e-2", "train.updates=60", "train.checkpoint_every=60"
"""enough for a BLEU above 0"""


@pytest.fixture
def small(recipe_file, tmp_path):
    """Writes an experiment of the tiny recipe, and calls the command."""

    class Small:
        folder, output = tmp_path / "runs", tmp_path / "table.json"

        def write(self, rows=TWO, **more) -> None:
            about = {"source": "Nobody 2021, Table 1", "metric": "BLEU", "base": str(recipe_file)}
            tree = {**about, "changes": {"train": {"updates": 6}}, "rows": rows} | more
            text = "# What it is.\n" + YAML.safe_dump(tree)
            (tmp_path / "numbers.yaml").write_text(text, encoding="utf-8")

        def arguments(self, *more) -> list[str]:
            places = "--run", self.folder, "--output", self.output
            return [str(a) for a in ("experiment", tmp_path / "numbers.yaml", *places, *more)]

        def __call__(self, *more) -> int:
            return cli.main(self.arguments(*more))

        @property
        def found(self) -> dict:
            return json.loads(self.output.read_text(encoding="utf-8"))

    made = Small()
    made.write()
    return made


def test_two_rows_and_two_seeds(small, started_runs, capsys):
    assert small("--seeds", "2", *LEARN) == 0
    # A seed for all rows before the next.
    assert started_runs == ["dynamic-1", "attention-1", "dynamic-2", "attention-2"]
    found = small.found
    assert (found["numbers"]["experiment"], found["what"]) == ("numbers", "What it is.")
    assert found["numbers"]["source"] == "Nobody 2021, Table 1"
    name = small.arguments()[1]
    assert found["command"] == shlex.join(["dynconv", "experiment", name, *LEARN, "--seeds", "2"])
    assert found["seeds"] == [1, 2]
    assert {"device", "versions", "date", "load"} <= found.keys()

    dynamic, attention = found["numbers"]["rows"]
    assert (dynamic["row"], dynamic["published"]) == ("DynamicConv", "26.9 ± 0.2")
    assert (dynamic["mixer"], attention["mixer"]) == ("dynamic", "attention")
    assert dynamic["parameters"] < attention["parameters"]
    for row in found["numbers"]["rows"]:
        assert min(row["scores"]) > 0 and row["scores"][0] != row["scores"][1]
        assert row["updates"] == 60 and row["precision"] == ["float32"] * 2
        assert row["threads"] == [torch.get_num_threads()] * 2
        for n, each in enumerate(row["scores"], 1):
            folder = small.folder / f"{row['name']}-{n}"
            scores = json.loads((folder / "test.scores.json").read_text())
            assert each == scores["scores"][0]["value"] == row["metrics"][n - 1]["BLEU"]
            assert row["metrics"][n - 1]["chrF2"] == scores["scores"][1]["value"]
            assert f"seed: {n}\n" in (folder / "recipe.yaml").read_text()
        assert row["mean"] == pytest.approx(mean(row["scores"]))
        assert row["deviation"] == pytest.approx(stdev(row["scores"]))
        assert all(s > 0 for s in row["seconds"]) and all(x > 0 for x in row["valid_loss"])

    text = capsys.readouterr().out
    assert "4 runs in" in text and "attention-1: " in text and ", 0 to go" in text
    line = next(line for line in text.splitlines() if line.startswith("dynamic  "))
    assert f"{dynamic['mean']:.2f} ± {dynamic['deviation']:.2f}" in line
    assert line.endswith("26.9 ± 0.2") and f"{dynamic['parameters']:,}" in line
    assert small.output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")

    small.output.unlink()
    assert small("--seeds", "2", *LEARN) == 2  # the plot may be the user's
    assert small.output.with_suffix(".png").name in capsys.readouterr().err
    small.output.with_suffix(".png").unlink()
    assert small("--seeds", "2", *LEARN) == 0  # nothing is trained, all is written again
    assert len(started_runs) == 4
    again = small.found
    assert again["numbers"]["rows"] == found["numbers"]["rows"]


def test_more_seeds_train_only_those_on_text_that_is_prepared_once(
    small, started_runs, monkeypatch
):
    """Also after a first row with another vocabulary."""
    prepared, encode_recipe_corpus = [], many_runs.encode_recipe_corpus
    for module in (many_runs, run_corpus):
        monkeypatch.setattr(
            module,
            "encode_recipe_corpus",
            lambda *given: prepared.append(given) or encode_recipe_corpus(*given),
        )
    small.write([{"name": "other", "changes": {"model": {"vocab_size": 290}}}, *TWO])
    assert small("--seeds", "1") == 0
    assert small.found["numbers"]["rows"][0]["deviation"] is None
    assert small("--seeds", "2") == 0
    assert started_runs == [
        f"{row}-{seed}" for seed in "12" for row in ("other", "dynamic", "attention")
    ]
    assert [recipe.model.vocab_size for recipe, _ in prepared] == [290, 300]
    one, two = (small.folder / f"dynamic-{seed}" / "data" for seed in (1, 2))
    assert (one / "train.tokens").read_bytes() == (two / "train.tokens").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_same_command_goes_on(small, started_runs, monkeypatch, number):
    watches = [StoppingWatch(3, number), Stopwatch()]  # of the second run and the first
    monkeypatch.setattr(run, "Stopwatch", watches.pop)
    assert small("--seeds", "1") == 128 + number
    dynamic, attention = small.found["numbers"]["rows"]
    assert dynamic["mean"] is not None and attention["scores"] == [None]
    monkeypatch.undo()
    assert small("--seeds", "1") == 0
    dynamic, attention = small.found["numbers"]["rows"]
    assert attention["scores"][0] is not None
    starts = json.loads((small.folder / "attention-1" / "results.json").read_text())["starts"]
    assert len(starts) == 2 and attention["seconds"] == [sum(starts)]


def test_results_of_an_earlier_version_are_read(small, started_runs):
    assert small("--seeds", "1") == 0
    for directory in small.folder.glob("*-1"):
        (directory / "results.json").rename(directory / "ablation.json")
    before, started_runs[:] = small.found["numbers"], []
    assert small("--seeds", "1") == 0
    assert not started_runs and small.found["numbers"] == before


def test_killed_between_training_and_its_score(small, started_runs, monkeypatch):
    """The score comes without new updates; how long the killed start took, nobody knows."""

    def die(*_) -> None:
        raise SystemExit  # which no code of ours catches, like a kill

    for killed, seconds in (("evaluate", True), ("Stopwatch", False)):
        small.folder = small.folder.with_name(killed)
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            if killed == "evaluate":
                patch.setattr(TrainedModel, "evaluate", die)
            else:
                # The updates are saved, what this command knows is lost.
                patch.setattr(run, "Stopwatch", lambda: StoppingWatch(3))
                patch.setattr(run.Run, "_write", die)
            small("--seeds", "1")
        assert small("--seeds", "1") == 0
        row = small.found["numbers"]["rows"][0]
        assert row["scores"][0] is not None and (row["seconds"][0] is not None) == seconds


@pytest.mark.parametrize("override", ["model.channels=16", "model={channels: 16}"])
def test_a_row_whose_model_lacks_an_entry_is_trained_without_the_override(override, small, capsys):
    stack = {"layers": 1, "channels": 8, "kernel_size": 3}
    convs2s = {"architecture": "convs2s", "vocab_size": 300, "embedding": 8}
    convs2s |= {"encoder": stack, "decoder": stack}
    small.write([{"name": "convs2s", "changes": {"model": convs2s}}, TWO[0]])
    assert small("--seeds", "1", override, "train.lr=2e-3") == 0
    said = capsys.readouterr().out
    assert f"convs2s: without {override}, because its model has no such entry\n" in said
    recipes = [load_recipe(small.folder / f"{row}-1/recipe.yaml") for row in ("convs2s", "dynamic")]
    assert recipes[0].model.embedding == 8 and recipes[1].model.channels == 16
    assert [recipe.train.lr for recipe in recipes] == [2e-3] * 2


def test_a_row_that_diverges_is_recorded_and_others_go_on(small, started_runs, capsys):
    small.write([{"name": "wild", "changes": {"train": {"lr": 1e12, "warmup": 0}}}, *TWO])
    assert small("--seeds", "2", "train.max_skipped=0") == 0
    wild, *others = small.found["numbers"]["rows"]
    assert wild["scores"] == ["diverges"] * 2
    assert wild["mean"] is None and wild["valid_loss"] == [None] * 2
    assert all(isinstance(score, float) for row in others for score in row["scores"])
    text = capsys.readouterr().out
    assert "wild-1: diverges, 5 to go" in text
    line = next(line for line in text.splitlines() if line.startswith("wild  "))
    assert line.split()[2:5] == ["diverges"] * 3
    assert small("--seeds", "2", "train.max_skipped=0") == 0
    assert len(started_runs) == 6  # not tried again


def test_another_error_in_a_run_that_diverged_is_reported(recipe, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "not-finite-000001-0.json").touch()
    wrong = replace(recipe, data=replace(recipe.data, corpus="nowhere"))
    with pytest.raises(UserError, match="nowhere"):
        many_runs.try_training(wrong, tmp_path / "run")


@pytest.mark.parametrize(
    "scores, said",
    [
        ([43.2, 44.1, None], "43.65 ± 0.64"),
        ([43.2, "diverges", 44.1], "43.65 ± 0.64, 1 diverges"),
        ([43.2, None, None], "43.20"),
        (["diverges", None, None], "diverges"),
        ([None, None, None], "-"),
    ],
)
def test_the_summary_of_a_row(scores, said):
    values = table.finite_scores(scores)
    deviation = stdev(values) if len(values) > 1 else None
    row = {"scores": scores, "mean": mean(values) if values else None, "deviation": deviation}
    assert table.format_scores(row) == said


@pytest.mark.parametrize("what", ["score", "validation loss"])
def test_a_run_without_a_finite_loss_has_diverged(what, small, monkeypatch):
    load = run.load_model

    def spoilt(directory):
        trained = load(directory)
        meta = {**trained.checkpoint.meta, "loss": float("nan")}
        return trained._replace(checkpoint=trained.checkpoint._replace(meta=meta))

    if what == "score":
        scores = [Perplexity(math.inf, tokens=1, words=1)]
        where = dict.fromkeys(("corpus", "split", "checkpoint"), "")
        endless = Evaluation("", 0.0, {}, "", scores, **where)
        monkeypatch.setattr(TrainedModel, "evaluate", lambda *_: endless)
    else:
        monkeypatch.setattr(run, "load_model", spoilt)
        monkeypatch.setattr(TrainedModel, "evaluate", None)  # it is not decoded
    assert small("--seeds", "1") == 0
    assert [row["scores"] for row in small.found["numbers"]["rows"]] == [["diverges"]] * 2


def test_language_models_have_perplexity_a_word(small, corpus, recipe_file, tmp_path):
    model = {"architecture": "language-model", "vocab_size": 300, "channels": 32, "ffn": 32}
    model |= {"heads": 2, "decoder": {"layers": 1, "mixer": "talk", "reach": 3}}
    tree = YAML.safe_load(recipe_file.read_text(encoding="utf-8"))
    tree |= {"model": model, "metric": "perplexity"}
    tree["data"] |= {"source": None, "target": "en"}
    tree["train"]["label_smoothing"] = 0.0
    recipe_file.write_text(YAML.safe_dump(tree), encoding="utf-8")
    small.write([{"name": "talk"}])
    assert small("--seeds", "1") == 0
    scores = json.loads((small.folder / "talk-1" / "test.scores.json").read_text())
    (row,) = small.found["numbers"]["rows"]
    metrics = {each["metric"]: each["value"] for each in scores["scores"]}
    assert row["metrics"] == [metrics] and row["mixer"] == "talk"
    assert row["scores"] == [metrics["perplexity per word"]]


def test_a_finished_run_of_another_recipe(small, started_runs, capsys):
    assert small("--seeds", "1") == 0
    for change in ("train.lr=2e-3", "decode.beam=3"):
        line = fails(capsys, *small.arguments("--seeds", "1", change))
        key, value = change.split("=")
        assert f"dynamic-1 contains the run of another recipe ({key} {float(value):g}, not" in line
    small.write([TWO[0] | {"published": "27.0"}, TWO[1]])  # no part of what is trained
    assert small("--seeds", "1") == 0
    assert small.found["numbers"]["rows"][0]["published"] == "27.0" and len(started_runs) == 2


@pytest.mark.parametrize(
    "tree, said",
    [
        ({"source_": "A"}, "unknown key source_; did you mean source?"),
        ({"rows": []}, "rows is empty: list at least one"),
        ({"rows": [TWO[0], TWO[0]]}, "dynamic is the name of two rows"),
        ({"rows": [{"name": "a/b"}]}, "rows.0: name 'a/b' cannot name a directory"),
        ({"rows": [{"name": "a", "change": {}}]}, "unknown key rows.0.change; did you mean change"),
        ({"rows": [{"name": "a", "published": 26.9}]}, "rows.0.published 26.9 must be text"),
        ({"rows": [{"printed_name": "a"}]}, "rows.0.name is missing"),
        ({"base": None}, "dynamic has no recipe: give it one, or the experiment a base"),
        ({"rows": [{"name": "a", "recipe": "help"}]}, "row a: no recipe 'help'"),
        ({"changes": {"model": {"head": 3}}}, "row dynamic: "),
        ({"changes": {"model": {"heads": 3}}}, "3 heads do not divide 32 channels"),
    ],
)
def test_mistakes_are_one_line(small, started_runs, capsys, tree, said):
    small.write(**tree)
    assert said in fails(capsys, *small.arguments())
    assert not small.folder.exists()


def test_further_mistakes_are_one_line(small, started_runs, capsys, tmp_path):
    assert "did you mean wu2019-table3?" in fails(capsys, "experiment", "wu2019-table33")
    for seed in ("train.seed=4", "train={seed: 4}"):
        line = fails(capsys, *small.arguments(seed))
        assert "train.seed differs from run to run: give the number of seeds as --seeds" in line
    line = fails(capsys, "experiment", "help-de-en-mixers", "model.channels=30")
    assert "row attention: its recipe: model: 4 heads do not divide 30 channels" in line
    assert "`dynconv train help-de-en-mixers:ROW model.channels=30` trains one of them" in line
    line = fails(capsys, "experiment", "help-de-en-mixers", "model.embeding=30")
    assert "unknown key model.embeding; did you mean" in line
    small.output = tmp_path / "nowhere" / "table.json"
    assert "there is no directory" in fails(capsys, *small.arguments())
    (tmp_path / "numbers.yaml").write_text("- a\n- b\n")
    assert "an experiment is a mapping with source, " in fails(capsys, *small.arguments())
    assert started_runs == []


def test_results_without_a_place_go_to_the_data_folder(small, started_runs, monkeypatch, tmp_path):
    monkeypatch.setattr(ledger, "data_dir", lambda: tmp_path / "data")
    (tmp_path / "data" / "results").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["experiment", "numbers.yaml", "--seeds", "1"]) == 0
    assert (tmp_path / "data" / "results" / "experiment-numbers.json").exists()
    assert (tmp_path / "data" / "results" / "experiment-numbers.png").exists()
    assert (tmp_path / "runs" / "numbers" / "dynamic-1" / "recipe.yaml").exists()


SHIPPED = {name: load_experiment(path) for name, path in shipped_experiments().items()}
LAPTOP = [name for name, each in SHIPPED.items() if each.laptop or each.base is None]
"""those that the command runs on a laptop"""


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("laptop", [True, False])
def test_every_shipped_row_builds(name, laptop):
    experiment = SHIPPED[name]
    assert read_comment(shipped_experiments()[name])
    recipes = [load_row(experiment, row, laptop=laptop) for row in experiment.rows]
    for recipe in recipes:
        with torch.device("meta"):
            build(recipe.model)
    assert len({r.train.updates for r in recipes}) == 1, "rows compare after equally many updates"
    assert len({r.model for r in recipes}) == len(recipes), "two rows are the same"


TABLES = [name for name, each in SHIPPED.items() if each.source in ROWS]


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_the_papers_tables_is_there_with_its_printed_number(name):
    """Also at full size, where the row may be a recipe of its own, and in several tables."""
    experiment = SHIPPED[name]
    ours = [(row.printed_name, row.published, row.parameters) for row in experiment.rows]
    assert ours == ROWS[experiment.source]
    for row in experiment.rows:
        published = load_row(experiment, row, laptop=False).published
        metric = experiment.metric_in_words
        wanted = experiment.source, row.printed_name, row.published, metric, row.parameters
        assert wanted in [astuple(each) for each in published]


def test_the_rows_say_what_their_names_say():
    """Spot checks: of what a row of the paper is, in the model that it trains."""

    def model(name: str, row: str):
        return load_row(SHIPPED[name], SHIPPED[name].require_row(row)).model

    assert model("wu2019-table3", "dynamic") == model("wu2019-table6", "softmax")
    layers = [model("wu2019-table3", row).encoder.layers for row in ("attention", "cnn", "dynamic")]
    assert layers == [3, 4, 4]
    for row in SHIPPED["convs2s-table5"].rows:
        attends = model("convs2s-table5", row.name).attends
        assert row.printed_name == ",".join(str(n) for n, on in enumerate(attends, 1) if on)
    for side, name in (("encoder", "convs2s-table7"), ("decoder", "convs2s-table8")):
        for row in SHIPPED[name].rows:
            stack = getattr(model(name, row.name), side)
            assert row.printed_name == f"k={stack.kernel_size}, {stack.layers} {side} layers"
            assert isinstance(model(name, row.name), ConvS2SConfig)
    rows = SHIPPED["wu2019-table6"].rows
    kinds = [model("wu2019-table6", row.name).normalize for row in rows]
    assert kinds == "none softmax sigmoid tanh l1 l2 power2 abs abs_l1 abs_l2".split()


def test_the_list_shows_every_experiment(capsys):
    assert cli.main(["experiment", "--list"]) == 0
    text = capsys.readouterr().out
    assert text == list_experiments() + "\n"
    assert "wu2019-table3      12 rows  Wu et al. 2019, Table 3\n" in text
    assert "Wu et al. 2019, Table 7, at full size\n" in text
    assert len(text.splitlines()) == len(SHIPPED) == 14 and len(LAPTOP) == 13
    assert len(TABLES) == 8


def test_a_row_is_a_recipe(small, capsys):
    """`dynconv train EXPERIMENT:ROW` trains at the full size, here the only one."""
    name = f"{small.arguments()[1]}:attention"
    assert run_name(name) == "numbers-attention"
    recipe = load_recipe(name, ["train.updates=4"])
    assert (recipe.model.encoder.mixer, recipe.train.updates) == ("attention", 4)
    assert load_recipe(name).train.updates == 6
    assert "did you mean attention?" in fails(capsys, "train", name + "s")


def test_a_row_at_two_sizes(small, recipe_file):
    """What a row changes holds at both; a laptop's own changes come on top."""
    laptop = {"base": str(recipe_file), "metric": "ours", "changes": {"train": {"lr": 1e-4}}}
    row = {"name": "deep", "changes": {"model": {"encoder": {"layers": 3}}}}
    small.write([row | {"laptop": {"train": {"updates": 5}}}], laptop=laptop)
    experiment = load_experiment(Path(small.arguments()[1]))
    full, ours = (load_row(experiment, experiment.rows[0], laptop=each) for each in (False, True))
    assert full.model.encoder.layers == ours.model.encoder.layers == 3
    assert (full.train.updates, ours.train.updates, ours.train.lr) == (6, 5, 1e-4)


def test_what_help_suggests_shrinks_every_row_of_the_comparison(capsys):
    with pytest.raises(SystemExit):
        cli.main(["experiment", "--help"])
    (override,) = re.findall(r"train\.\w+=\d+", capsys.readouterr().out)
    experiment = load_experiment(require_experiment("help-de-en-mixers"))
    recipes = [load_row(experiment, row, [override]) for row in experiment.rows]
    assert {recipe.train.updates for recipe in recipes} == {300}
