"""`dynconv bench ops`: what is measured, how ratios come about, what is left out and why."""

import json
from collections import defaultdict

import pytest
import torch

from dynconv import cli, ops
from dynconv.lab import ledger
from dynconv.lab.bench import cases, implementations, measure, operators, table
from dynconv.lab.bench.cases import Shape
from dynconv.lab.bench.implementations import choose_implementations
from dynconv.lab.bench.measure import CpuClock, Measurement
from dynconv.ops.registry import OPERATORS

TINY = ["bench", "ops", "--shapes", "2x9x8x2", "--kernel-size", "3", "--rounds", "2"]


@pytest.fixture(autouse=True)
def short_samples(monkeypatch):
    monkeypatch.setattr(measure, "MIN_RUN_TIME", 1e-4)


def test_the_command_prints_a_table_and_writes_every_number(tmp_path, capsys):
    path = tmp_path / "ops.json"
    assert cli.main([*TINY, "--shapes", "2x9x8x2", "1x5x4x1", "--output", str(path)]) == 0
    text, error = capsys.readouterr()
    assert error == ""
    assert max(map(len, text.splitlines()[:-1])) <= 100
    assert "load" in text.splitlines()[-1] and str(path) in text.splitlines()[-1]

    report = json.loads(path.read_text())
    assert report["versions"]["torch"] == torch.__version__
    assert report["command"].startswith("dynconv bench ops --shapes 2x9x8x2 1x5x4x1 --operators")
    numbers = report["numbers"]
    assert numbers["threads"] == 1
    assert [[s[k] for k in "BTCH"] for s in numbers["shapes"]] == [[2, 9, 8, 2], [1, 5, 4, 1]]
    assert numbers["shapes"][0]["x_bytes"] == 2 * 9 * 8 * 4
    expected = {("copy", None), ("attention", None)} | {
        (operator, impl)
        for operator in OPERATORS
        for impl in ["auto", *ops.implementations(operator)]
        if impl != "loop"
    }
    for shape in numbers["shapes"]:
        assert {(row["operator"], row["impl"]) for row in shape["results"]} == expected
        for row in shape["results"]:
            name = f"{row['operator']} {row['impl'] or ''}".strip()
            assert f"\n{name} " in text
            assert row["forward"]["ms"] > 0 and row["forward"]["rounds"] == 2
            low, high = row["forward"]["ms_range"]
            assert low <= row["forward"]["ms"] <= high
            assert low == float(f"{low:.4g}") and high == float(f"{high:.4g}")
            if name == "copy":
                assert "forward_backward" not in row and row["forward"]["times_copy"] == 1
            else:
                both = row["forward_backward"]
                assert both["attention_by_this"] > 0 and both["peak"] >= 1 and both["saved"] >= 0


def test_only_what_is_asked_for_is_measured(tmp_path, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    path = tmp_path / "ops.json"
    options = ["--operators", "light_conv", "--impl", "loop,auto", "--threads", "2"]
    assert cli.main([*TINY, *options, "--output", str(path)]) == 0
    assert asked == [2]
    (shape,) = json.loads(path.read_text())["numbers"]["shapes"]
    names = [(row["operator"], row["impl"]) for row in shape["results"]]
    assert names[2:] == [("light_conv", "auto"), ("light_conv", "loop")]


def test_the_file_goes_to_the_results_or_else_to_the_current_directory(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ledger, "data_dir", lambda: tmp_path / "data")
    monkeypatch.setattr(ledger, "find_checkout", lambda: None)
    options = [*TINY, "--operators", "cumulative_mean"]
    assert cli.main(options) == 0
    assert (tmp_path / "bench-ops.json").exists()
    monkeypatch.setattr(ledger, "find_checkout", lambda: tmp_path)
    (tmp_path / "data" / "results").mkdir(parents=True)
    assert cli.main(options) == 0
    assert (tmp_path / "data" / "results" / "bench-ops.json").exists()


def test_what_does_not_fit_is_named_with_its_reason(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(implementations, "LIMIT", 500_000)  # bytes: a T x T matrix has 65,536
    options = ["--shapes", "1x128x16x1", "--operators", "talk_conv", "--impl", "band,auto"]
    path = tmp_path / "ops.json"
    assert cli.main([*TINY, *options, "--output", str(path)]) == 0
    text = capsys.readouterr().out
    (shape,) = json.loads(path.read_text())["numbers"]["shapes"]
    (row,) = [row for row in shape["results"] if row["impl"] == "band"]
    assert row["left_out"].startswith("needs about 0.000") and "forward" not in row
    assert f"- talk_conv band: {row['left_out']}" in text.splitlines()
    (line,) = [line for line in text.splitlines() if line.startswith("talk_conv band")]
    assert line.split()[2:] == ["-"] * 10


def test_what_fails_is_named_and_without_attention_its_ratios_are_missing(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("could not create a primitive")

    monkeypatch.setattr(implementations, "attention", fail)
    shape = operators.measure_shape(Shape(2, 9, 8, 2), 3, {"cumulative_mean": ["auto"]}, 1)
    copy, attention, mean = shape["results"]
    assert attention["left_out"] == "failed: could not create a primitive"
    assert "could not create" in operators.shape_table(shape)
    for row in (copy, mean):
        assert row["forward"]["ms"] > 0 and row["forward"]["attention_by_this"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--operators", "light_conv,dynamic"],
            ["'dynamic'; did you mean dynamic_conv?"],
        ),
        (["--impl", "bend"], ["'bend' here; did you mean band?"]),
        (["--operators", "talk_conv", "--impl", "window"], ["'window'", "band"]),
        (["--shapes", "10,ten"], ["'ten'", "iwslt", "BxTxCxH"]),
        (["--shapes", "0"], ["'0'"]),
        (["--shapes", "2x9x8"], ["'2x9x8'"]),
        (["--shapes", "2x9x8x3"], ["3 heads", "8 channels"]),
        (["--kernel-size", "4"], ["4", "odd"]),
        (["--output", "no/such/file.json"], ["no/such"]),
    ],
)
def test_mistakes_are_reported_in_one_line_before_anything_is_measured(
    options, words, tmp_path, capsys
):
    assert cli.main([*TINY, "--output", str(tmp_path / "ops.json"), *options]) == 2
    output, error = capsys.readouterr()
    assert output == "" and error.startswith("dynconv: ") and error.count("\n") == 1
    assert all(word in error for word in words)


def test_shapes_of_table_6():
    assert cases.parse_shape("1000") == Shape(10, 1000, 1024, 16)
    assert cases.parse_shape("10000").B == 1
    assert cases.parse_shape("iwslt") == Shape(100, 32, 512, 4)


def test_all_implementations_of_an_operator_get_the_same_task():
    outputs = defaultdict(list)
    for one in implementations.iter_implementations(
        Shape(2, 9, 8, 2), 3, choose_implementations(list(OPERATORS), None)
    ):
        outputs[one.case.operator].append(one.forward())
        if one.gradient is not None:
            gradients = one.forward_backward()
            assert [g.shape for g in gradients] == [tensor.shape for tensor in one.inputs]
            assert all(tensor.grad is None for tensor in one.inputs)
    for operator in OPERATORS:
        first, *others = outputs[operator]
        assert others
        for other in others:
            torch.testing.assert_close(other, first)
    assert set(outputs) == {"copy", "attention", *OPERATORS}


def test_ratios_are_medians_over_common_rounds():
    # The quotient of the medians would be 4 / 2.
    assert measure.paired_ratios([1.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == [1, 2, 3]
    assert measure.paired_ratios([1.0, 4.0, 9.0], [2.0, 1.0, 3.0]) == [0.5, 4, 3]
    assert measure.paired_ratios([6.0], [2.0, 1.0, 1.0]) == [6]  # one common round: by the medians
    assert measure.paired_ratios([], [2.0]) == []


def test_a_spread_is_a_median_with_the_least_and_the_most():
    assert measure.median_and_range("x", [0.5, 4.0, 3.0]) == {"x": 3, "x_range": [0.5, 4]}
    assert measure.median_and_range("x", []) == {"x": None, "x_range": None}


@pytest.mark.parametrize(
    ("least", "order"), [(1, "abcd dca acd dca acd"), (3, "abcd dcba abcd dca acd")]
)
def test_turns_alternate_and_slow_runs_have_the_least(least, order):
    cost = {"a": 0.5, "b": 1.5, "c": 0.2, "d": 1.0}
    runs = [Measurement("", name, "forward", call=print) for name in cost]
    taken = ""
    for run in measure.take_turns(
        [*runs, Measurement("", "e", "forward", note="left out")], 5, 1.0, least
    ):
        run.times.append(cost[run.impl])
        taken += run.impl
    assert taken == order.replace(" ", "")
    assert [len(run.times) for run in runs] == [5, least, 5, 5]


def test_a_slow_run_has_one_turn(monkeypatch):
    monkeypatch.setattr(CpuClock, "seconds", lambda self, call: self.slow_seconds + 1)
    shape = operators.measure_shape(Shape(2, 9, 8, 2), 3, {"cumulative_mean": ["auto"]}, 3)
    assert [row["forward"]["rounds"] for row in shape["results"]] == [1, 1, 1]


def test_short_calls_are_repeated_and_long_ones_are_not(monkeypatch):
    clock, calls = [0.0], []

    def run():
        calls.append(1)
        clock[0] += 0.25

    monkeypatch.setattr(measure.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(measure, "MIN_RUN_TIME", 0.9)
    assert CpuClock().seconds(run) == 0.25 and len(calls) == 4
    monkeypatch.setattr(measure, "MIN_RUN_TIME", 0.1)
    assert CpuClock().seconds(run) == 0.25 and len(calls) == 5


def test_memory_is_counted_beyond_the_inputs(capfd):
    x = torch.randn(1000, requires_grad=True)
    with torch.no_grad():
        assert measure.peak_allocation(lambda: x.exp()) == x.nbytes
        assert measure.peak_allocation(lambda: x.exp().exp()) == 2 * x.nbytes
        assert (
            measure.peak_allocation(lambda: x.exp().exp().exp()) == 2 * x.nbytes
        )  # the first is gone
    with measure.record_saved_tensors([x]) as kept:
        out = x.view(10, 100) * x.view(10, 100)
    assert kept == {}  # views of an input are the input
    with measure.record_saved_tensors([x]) as kept:
        out = x.exp().tanh()
    assert sum(kept.values()) == 2 * x.nbytes and out.requires_grad
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("operator", implementations.MATRICES)
def test_t_by_t_matrices_are_most_of_the_memory(operator):
    shape = Shape(2, 512, 16, 2)
    *_, one = implementations.iter_implementations(
        shape, 5, choose_implementations([operator], ["band"])
    )
    square = 4 * shape.B * shape.H * shape.T**2
    assert measure.peak_allocation(one.forward_backward) / square == pytest.approx(
        implementations.MATRICES[operator], rel=0.2
    )


def test_numbers_have_three_digits_in_their_columns():
    numbers = [0.0123, 0.5, 1.234, 12.34, 123.4, 12345.6, None]
    texts = "0.012 0.50 1.23 12.3 123 12,346 -".split()
    assert [table.format_number(number, 9) for number in numbers] == [
        f"{text:>9}" for text in texts
    ]


def test_a_table_aligns_every_kind_of_value_and_wraps_notes():
    columns = [table.Column(key, 7, lambda row, key=key: row.get(key)) for key in "abc"]
    rows = [{"n": "x", "a": 1234, "b": 0.5, "c": "1/2"}, {"n": "y", "note": "because " * 20}]
    blank, title, titles, first, second, *notes = table.bench_table(
        "A title", lambda row: row["n"], 4, columns, rows
    ).splitlines()
    assert blank == "" and title == "A title" and titles == "          a      b      c"
    assert first == "x     1,234   0.50    1/2" and second == "y         -      -      -"
    assert notes[0].startswith("- y: because") and len(notes) == 2
    assert max(map(len, notes)) <= 100
