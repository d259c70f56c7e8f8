"""`dynconv bench recall`: the sequences, and what attention and a convolution make of them."""

import json

import pytest
import torch

from dynconv import cli
from dynconv.lab import recall

COMMAND = ["bench", "recall", "--lr", "3e-3", "--seeds", "2", "--updates", "1"]


def test_each_query_asks_for_the_value_that_followed_its_key():
    tokens, values = recall.draw_sequences(50, 7, torch.Generator().manual_seed(1))
    assert tokens.shape == (50, 21) and values.shape == (50, 7)
    for row, wanted in zip(tokens.tolist(), values.tolist(), strict=True):
        pairs = dict(zip(row[:14:2], row[1:14:2], strict=True))
        assert len(pairs) == 7, "no key occurs twice"
        assert [pairs[key] for key in row[14:]] == wanted
        assert max(pairs) <= recall.KEYS < min(wanted) <= max(wanted) <= 2 * recall.KEYS


def test_fewer_keys_leave_fewer_tokens():
    tokens, values = recall.draw_sequences(50, 3, torch.Generator().manual_seed(1), keys=4)
    assert tokens.max() == values.max() == 8 and values.min() == 5
    assert recall.build_stack(["light"], 3, keys=4)(tokens).shape == (50, 9, 9)


def test_a_stack_sees_its_whole_past_and_nothing_else():
    """Its output at the last query depends on the first token; at the first, not on the last."""
    for mixers in ["light", "dynamic"], ["talk", "attention"], ["average"]:
        model = recall.build_stack(mixers, pairs=3).eval()
        tokens = recall.draw_sequences(1, 3, torch.Generator().manual_seed(1))[0]
        for place in 0, 8:
            changed = tokens.clone()
            changed[0, place] = 1 + changed[0, place] % recall.KEYS
            moved = (model(changed) - model(tokens)).abs().amax(-1)[0] > 0
            assert moved.tolist() == [t >= place for t in range(9)], (mixers, place)


def test_attention_recalls_what_a_dynamic_convolution_does_not():
    """With two pairs, where a guess among the values of the sequence is right half the time."""
    assert recall.train_recall(["attention", "attention"], 2, 3e-3, 600, seed=1)[0] > 0.9
    assert recall.train_recall(["dynamic", "dynamic"], 2, 3e-3, 300, seed=1)[0] < 0.8


def test_the_command_records_every_result_and_goes_on(tmp_path, monkeypatch, capsys):
    path, calls = tmp_path / "recall.json", []

    def train(mixers, pairs, lr, updates, seed, keys):
        calls.append((mixers, pairs, lr, seed))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return (0.5 + lr * seed, updates)

    monkeypatch.setattr(recall, "train_recall", train)
    command = ["bench", "recall", "--stacks", "average", "light+attention", "--pairs", "2"]
    command += ["--lr", "1e-3", "3e-3", "--seeds", "2", "--updates", "9", "--output", str(path)]
    assert cli.main(command) == 130
    assert calls[:3] == [(["average"], 2, 1e-3, 1), (["average"], 2, 3e-3, 1)] + [
        (["average"], 2, 3e-3, 2)
    ]
    assert cli.main(command) == 0
    assert [mixers for mixers, *_ in calls[4:]] == [["light", "attention"]] * 3
    report = json.loads(path.read_text())
    assert report["command"].startswith("dynconv bench recall --stacks average light+attention")
    assert report["numbers"]["results"] == [
        {"stack": stack, "pairs": 2, "lr": 3e-3, "accuracy": [0.503, 0.506], "updates": [9, 9]}
        for stack in ("average", "light+attention")
    ]
    assert "50.3%, 50.6%" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, message",
    [
        (["--stacks", "dynamic+attenton"], "attention"),
        (["--pairs", "4", "65"], "only 64 keys"),
        (["--pairs", "9", "--keys", "8"], "only 8 keys"),
    ],
)
def test_errors_name_the_remedy(options, message, capsys):
    assert cli.main([*COMMAND, *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "numbers, wrong",
    [({}, "results is missing"), ({"results": [{"stack": 1}]}, "results.0."), ([], "a mapping")],
)
def test_a_damaged_record_is_refused_in_one_line(numbers, wrong, tmp_path, monkeypatch, capsys):
    path = tmp_path / "recall.json"
    monkeypatch.setattr(recall, "train_recall", lambda *_: (0.5, 1))
    command = [*COMMAND, "--stacks", "light", "--pairs", "2", "--output", str(path)]
    assert cli.main(command) == 0
    path.write_text(json.dumps(json.loads(path.read_text()) | {"numbers": numbers}))
    capsys.readouterr()
    assert cli.main(command) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert str(path) in message and wrong in message and message.endswith("begins again")
