"""`dynconv tune`: rounds of trials, resumed and recorded; the validation split alone decides."""

import json
import math
import signal

import pytest
import yaml as YAML
from helpers.commands import fails
from helpers.training import StoppingWatch

from dynconv import cli
from dynconv.lab import tune
from dynconv.train import loop
from dynconv.train.stopwatch import Stopwatch

SPACE = {"train.lr": {"low": 1e-3, "high": 1e-2, "log": True}, "model.dropout": [0.0, 0.1]}
SHORT = "train.updates=8", "train.warmup=0"


@pytest.fixture
def search(recipe_file, tmp_path):
    """Writes a search space for the tiny recipe, and calls the command."""

    class Search:
        folder, output, file = tmp_path / "runs", tmp_path / "tune.json", tmp_path / "space.yaml"

        def write(self, space=SPACE, **more) -> None:
            tree = {"settings": space, "fractions": [0.5, 1.0], "reduction_factor": 2} | more
            self.file.write_text(YAML.safe_dump(tree), encoding="utf-8")

        def arguments(self, *more) -> list[str]:
            places = "--space", self.file, "--run", self.folder, "--output", self.output
            return [str(a) for a in ("tune", recipe_file, *SHORT, *more, *places)]

        def __call__(self, *more) -> int:
            return cli.main(self.arguments(*more))

        @property
        def rounds(self) -> list:
            found = json.loads(self.output.read_text(encoding="utf-8"))
            return found["numbers"]["rounds"]

    made = Search()
    made.write()
    return made


def test_the_best_of_the_first_round_train_for_longer(search, started_runs, capsys):
    assert search("--trials", "4") == 0
    assert started_runs[:4] == ["0-000", "0-001", "0-002", "0-003"] and len(started_runs) == 6
    first, second = search.rounds
    assert [t["updates"] for t in first] == [4] * 4 and [t["updates"] for t in second] == [8] * 2
    ranked = sorted(first, key=tune.trial_quality, reverse=True)
    assert [t["settings"] for t in second] == [t["settings"] for t in ranked[:2]]
    assert len({tuple(t["settings"]) for t in first}) == 4
    for trial in first:
        settings = dict(text.split("=") for text in trial["settings"])
        assert 1e-3 <= float(settings["train.lr"]) <= 1e-2
        assert settings["model.dropout"] in ("0.0", "0.1")
        recipe = YAML.safe_load(
            (search.folder / f"0-{trial['trial']:03}" / "recipe.yaml").read_text(encoding="utf-8")
        )
        assert recipe["model"]["dropout"] == float(settings["model.dropout"])
    assert "best: " in capsys.readouterr().out


def test_the_same_command_resumes_and_more_trials_go_on(search, started_runs, monkeypatch):
    with monkeypatch.context() as patch:
        watches = [StoppingWatch(2), Stopwatch()]  # of the second trial and the first
        patch.setattr(loop, "Stopwatch", watches.pop)
        assert search("--trials", "3") == 128 + signal.SIGINT
    settings = search.rounds[0][0]["settings"]
    before = {path.name for path in search.folder.glob("0-*")}
    assert before == {"0-000", "0-001"}
    assert search("--trials", "3") == 0
    first = [trial["settings"] for trial in search.rounds[0]]
    assert first[0] == settings and len(first) == 3
    assert search("--trials", "5") == 0
    again = [trial["settings"] for trial in search.rounds[0]]
    assert again[:3] == first and len({*map(tuple, again)}) == 5


def test_a_trial_that_diverges_is_the_worst(search, started_runs):
    search.write({"train.lr": [1e12, 1e-3]})
    assert search("--trials", "6", "train.max_skipped=0") == 0
    first, second = search.rounds
    diverged = [t for t in first if t["score"] is None]
    assert 0 < len(diverged) < 6
    assert all(t["settings"] == ["train.lr=1000000000000.0"] for t in diverged)
    chosen = [t["settings"] for t in second]
    assert chosen == sorted(chosen, key=["train.lr=1000000000000.0"].__eq__) and len(chosen) == 3


def test_entries_without_effect_are_left_out(search):
    search.write({**SPACE, "train.momentum": [0.9, 0.99]})
    assert search("--trials", "1") == 0
    assert all("momentum" not in text for text in search.rounds[0][0]["settings"])


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"train.warmup": [0, 200]}, "warmup 200 must be within the 4 updates"),
        ({"model.ffn": {"low": 16, "high": 65}}, "model.ffn 40.5"),
        ({"model.channels": [8, 12], "model.heads": [2, 8]}, "8 heads do not divide 12"),
    ],
)
def test_settings_that_the_recipe_refuses_are_reported_before_a_trial(
    settings, told, search, capsys
):
    search.write(settings)
    arguments = [a for a in search.arguments("--trials", "9") if a != "train.warmup=0"]
    assert told in fails(capsys, *arguments)
    assert not search.folder.exists()


def test_choices_are_passed_on_exactly(search):
    search.write({"train.clip_norm": [None], "train.lr": [0.00012345]})
    assert search("--trials", "1") == 0
    assert search.rounds[0][0]["settings"] == ["train.clip_norm=null", "train.lr=0.00012345"]


@pytest.mark.parametrize("override", ["train.lr=0.05", "train={lr: 0.05}"])
def test_a_setting_is_given_or_searched(override, search, capsys):
    message = fails(capsys, *search.arguments(override))
    assert "train.lr is given and searched by space" in message
    assert f"pass --space FILE, a copy of {search.file} without train.lr" in message


def test_what_a_round_decides_is_neither_given_nor_searched(search, capsys):
    message = fails(capsys, *search.arguments("train={checkpoint_every: 7}"))
    assert "train.checkpoint_every has no effect: every trial validates once, at its end" in message
    for key in ("train.updates", "train.checkpoint_every"):
        search.write({key: [4, 8]})
        message = fails(capsys, *search.arguments())
        assert f"searches {key}, but each round decides it: pass --space FILE, a copy" in message


def test_a_section_is_searched_or_its_entries_are_given(search, capsys):
    search.write({"model.encoder": [{"mixer": "dynamic"}, {"mixer": "attention"}]})
    message = fails(capsys, *search.arguments("model.encoder.layers=2"))
    assert "model.encoder is given and searched by space" in message


@pytest.mark.parametrize(("updates", "warmup"), [(10, 15), (40, 30)])
def test_too_few_updates_for_the_warm_ups_name_the_way_out(updates, warmup, search, capsys):
    search.write({"train.warmup": [15, 30], "model.dropout": [0.1]})
    arguments = [a for a in search.arguments(f"train.updates={updates}") if a not in SHORT]
    message = fails(capsys, *arguments)
    assert f"warmup {warmup} must be within the {updates // 2} updates; space" in message
    assert f"searches model.dropout=0.1 train.warmup={warmup}: raise train.updates, be" in message
    longer = f"because the first round trains for only {updates // 2}, or pass --space FILE, a copy"
    assert longer in message and not search.folder.exists()


def test_more_updates_are_proposed_only_where_they_help(search, capsys):
    search.write({"model.heads": [5]})
    message = fails(capsys, *search.arguments())
    assert f"searches model.heads=5: pass --space FILE, a copy of {search.file} with" in message


def test_a_warm_up_that_is_searched_may_be_too_long_in_the_recipe(search, started_runs):
    """Every trial has one of the space, so the first round's length must fit these alone."""
    search.write({"train.warmup": [0], "model.dropout": [0.0], "model.weight_dropout": [0.1]})
    arguments = [a for a in search.arguments("--trials", "1") if a not in SHORT]
    assert cli.main([*arguments, "train.updates=2"]) == 0  # the first round has 1, the warm-up 2


def test_each_row_of_a_file_has_its_own_folder_and_record(
    search, recipe_file, tmp_path, monkeypatch
):
    """They are named as the run directories of `dynconv train` are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tune.ledger, "results_folder", lambda: tmp_path)
    rows = "[{name: row.1}, {name: row.2}]"
    table = f"{{source: mine, metric_in_words: BLEU, base: {recipe_file}, rows: {rows}}}"
    (tmp_path / "mine.yaml").write_text(table, encoding="utf-8")
    for name in ("row.1", "row.2"):
        trials = "--space", str(search.file), "--trials", "1"
        assert cli.main(["tune", f"./mine.yaml:{name}", *SHORT, *trials]) == 0
        assert (tmp_path / "runs" / f"tune-mine-{name}" / "0-000").is_dir()
        assert (tmp_path / f"tune-mine-{name}.json").is_file()


def test_another_space_is_refused(search, capsys):
    assert search("--trials", "1") == 0
    search.write({"train.lr": [1e-3]})
    message = fails(capsys, *search.arguments("--trials", "1"))
    assert "another space: name another --run" in message


def test_an_unknown_space_names_the_shipped(recipe_file, capsys):
    assert "shipped are translation" in fails(capsys, "tune", recipe_file, "--space", "x")


def test_a_shipped_space_wins_over_a_file_of_its_name(monkeypatch, tmp_path):
    """As a shipped recipe does."""
    monkeypatch.chdir(tmp_path)
    shipped = tune.load_space("translation")
    other = "settings: {train.lr: [1.0e-3]}"
    (tmp_path / "translation").write_text(other, encoding="utf-8")
    assert tune.load_space("translation") == shipped
    assert tune.load_space("./translation").settings == {"train.lr": [1e-3]}


def test_nan_is_the_worst_of_trials():
    good, bad = ({"updates": 4, "score": s, "loss": 1.0} for s in (1.0, math.nan))
    diverged = {"updates": 4, "score": None, "loss": None}
    assert max([bad, good], key=tune.trial_quality) is good
    assert tune.trial_quality(bad) == tune.trial_quality(diverged)


def test_a_range_must_have_room(search, recipe_file, capsys):
    for low, high, log in ((2, 1, False), (1, 1, False), (0, 1, True)):
        search.write({"train.lr": {"low": low, "high": high, "log": log}})
        assert "must be below high" in fails(capsys, *search.arguments("--trials", "1"))
    search.write({"train.lrate": [1e-3]})
    assert "lrate" in fails(capsys, *search.arguments("--trials", "1"))
    assert not search.folder.exists() or not any(search.folder.glob("0-*"))
