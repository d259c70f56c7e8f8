"""`dynconv bench kernels`: what is known before, what the check refuses, what is timed and when."""

import json
import re
import weakref
from contextlib import nullcontext
from functools import partial
from math import inf, isnan, nan
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from helpers.operators import mask

from dynconv import cli, ops
from dynconv.kernels.cuda import build
from dynconv.lab import simulate
from dynconv.lab.bench import implementations
from dynconv.lab.bench.cases import Case, Shape, draw_inputs, dtype_name
from dynconv.lab.bench.kernels import baselines, bench, correctness, gpu_bench, gpu_clock, roofline
from dynconv.lab.bench.kernels.gpu_bench import GpuBench, References, make_row
from dynconv.lab.bench.measure import CpuClock, Measurement, measure
from dynconv.lab.nvidia import nvdisasm, nvrtc

F32, F64, HALF = torch.float32, torch.float64, torch.bfloat16
SMALL = Shape(2, 12, 8, 2)
COMMAND = ["bench", "kernels", "--shapes", "2x12x8x2", "--kernel-sizes", "3"]
CPU = torch.device("cpu")


def width(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.skipif(bool(nvrtc.why_unavailable()), reason=str(nvrtc.why_unavailable()))
def test_the_prediction_of_two_shapes(tmp_path, capsys):
    path = tmp_path / "predicted.json"
    shapes = ["--shapes", "10x1000x1024x16", "112x32x1024x16"]
    chosen = ["--dtypes", "bfloat16", "--operators", "light_conv,talk_conv", "--kernel-sizes", "31"]
    assert cli.main(["bench", "kernels", "--predict", *shapes, *chosen, "--output", str(path)]) == 0
    text, error = capsys.readouterr()
    assert error == "" and width(text.removesuffix(f"{path}\n")) <= 100
    assert "Expected on an H200, not measured" in text and str(path) in text.splitlines()[-1]

    report = json.loads(path.read_text())
    assert report["command"].startswith("dynconv bench kernels --predict --shapes 10x1000x1024x16")
    assert report["versions"]["nvrtc"] == nvrtc.version() and "H200" in report["what"]
    assert report["device"] == "NVIDIA H200, as assumed"  # not the machine that worked it out
    assert len(report["numbers"]["rows"]) == 2 * 2 * 2
    assert all(row["floor_us"] < row["expected_us"] for row in report["numbers"]["rows"])
    needs = {kernel["kernel"]: kernel for kernel in report["numbers"]["kernels"]}
    names = ["light_conv", "light_conv_band", "light_conv_grad", "light_grad_band"]
    names += ["sum_rows"]
    names += ["talk_conv", "talk_grad", "talk_reach"]
    assert sorted({name.split("<")[0] for name in needs}) == names
    kernel = needs["talk_conv<bfloat16, 4, 1024>"]
    assert set(kernel["takes"]) == {"sm_75", "sm_80", "sm_90"}
    for used in kernel["takes"].values():
        assert 16 < used["registers"] <= 168 and used["shared"] == used["spilled"] == 0
    assert set(needs["light_conv<bfloat16, 4, false>"]["takes"]) == {"sm_75"}
    band = needs["light_conv_band<bfloat16, 8, 3, false>"]
    assert set(band["takes"]) == {"sm_80", "sm_90"}
    weights = needs["light_grad_band<bfloat16, 8, 3>"]
    counted = weights["instructions"], band["instructions"]
    if nvdisasm.why_unavailable():
        assert counted == (None, None)
    else:  # at least the products of D x V matrices
        assert 24 < counted[0] < 400 and 24 < counted[1] < 200
        assert 6 * 4 < kernel["instructions"] < 100  # six per channel
    # A ring of 32 rows of 128 channels, a row more, and 33 windows of each of up to 3 heads.
    assert kernel["dynamic_shared"] == 33 * 512 + 3 * 33 * 16
    assert "talk_conv<bfloat16, 4, 1024>" in text


LIGHT = Case("light_conv", 31, F32, Shape(10, 1000, 1024, 16))
BAND = LIGHT._replace(dtype=HALF)
TALK = Case("talk_conv", 31, HALF, Shape(112, 32, 1024, 16))


@pytest.mark.parametrize(
    ("case", "direction", "counts", "us", "launches", "expected_us"),
    [
        # The input is 10 x 1000 x 1024 numbers of 4 bytes, twice, and 16 x 31 taps. V = 4: a row is
        # four lines; 125 tiles of 31 taps, but the first and the last of 23, and 7 rows more each,
        # 8 rows out; 10 sentences, 8 pairs of heads.
        (LIGHT, "forward",
         [2 * 40_960_000 + 1984, 2 * 31 * 10_240_000, 80 * (4 * (3859 + 875) + 3859 + 125 * 8 * 4)],
         [19.0516, 10.5813, 2_143_600 / (132 * 1980)], 1, 24.914),
        # On tensor cores a walk has 63 tiles * 160 / 2048 = 4 tiles of 16 positions: 16 of them for
        # each of 10 sentences and 16 columns of 64 channels. V = 8, D = 3: 16 lines for each block
        # of rows, two blocks more for a walk; 32 for a tile's output; 16 rows of a band that are
        # read and written, and its 3 blocks in four phases, for each walk. 24 products of 4096.
        (BAND, "forward",
         [2 * 20_480_000 + 992, 2 * 31 * 10_240_000,
          10_080 * 48 + 2560 * (2 * 16 + 16 * 2 + 3 * 4)],
         [9.5258, 10_080 * 24 * 4096 / 500e6, 678_400 / (132 * 1980)], 1, 13.707),
        # Backward that once more, with g for x; for the weights a block of rows of x, each in two
        # pieces of 64 bytes, and 6 x 8 words of g transposed; for each walk 6 x 4 stores of sums,
        # and 16 rows of them.
        (BAND, "backward",
         [3 * 20_480_000 + 1984, 4 * 31 * 10_240_000,
          678_400 + 10_080 * (16 * 2 + 48) + 2560 * (24 + 16)],
         [14.2888, 2 * 10_080 * 24 * 4096 / 500e6, 1_587_200 / (132 * 1980)], 2, 21.810),
        # First g, x and dx; the offsets, 112 x 32 x 16 numbers of 4 bytes, twice, and gradients.
        # V = 4: a row of a warp is two lines, four words of shared memory; 8 warps for each of 112
        # sentences walk the 32 positions and 15 more.
        (TALK, "backward",
         [3 * 7_340_032 + 4 * 229_376, 14 * 3_670_016, 112 * 8 * 47 * (10 * 4 + 4 * 2 + 2)],
         [5.3343, 0.8563, 2_105_600 / (132 * 1980)], 2, 14.478),
    ],
    ids=["light_conv", "tensor cores", "their gradients", "talk_conv"],
)  # fmt: skip
def test_floors_by_hand(case, direction, counts, us, launches, expected_us):
    known = roofline.predict_case(case)[direction]
    assert [known[name] for name in ("bytes", "operations", "cycles")] == counts
    assert list(known["us"].values()) == pytest.approx(us, abs=1e-4)
    floor = max(counts[0] / 4.3e6, known["us"]["operations"])
    assert known["floor_us"] == pytest.approx(floor)
    assert known["launches"] == launches
    assert known["expected_us"] == pytest.approx(expected_us, abs=1e-3)


def test_issue_by_hand():
    """Four instructions a cycle; the warps of LIGHT walk the taps and rows of above.

    Where a row meets no tap, a lane leaves out the products of V = 4 numbers and 8 positions.
    """
    counted = roofline.Instructions(600)
    known = roofline.predict_case(LIGHT, {"light_conv<float, 4, false>": counted})
    issue = 80 * (4734 * 600 / 8 - 875 * 32) / (4 * 132 * 1980)  # longer than the bytes take
    assert known["forward"]["us"]["issue"] == pytest.approx(issue)
    assert known["forward"]["expected_us"] == pytest.approx(issue / 0.85 + 2.5)
    assert "issue" not in known["backward"]["us"]  # its kernel's instructions are not known
    counted = roofline.Instructions(1000, 700)  # a tile, and around the walks of BAND
    known = roofline.predict_case(BAND, {"light_conv_band<bfloat16, 8, 3, false>": counted})
    issue = (10_080 * 1000 + 2560 * 700) / (4 * 132 * 1980)
    assert known["forward"]["us"]["issue"] == pytest.approx(issue)


@pytest.mark.parametrize(
    ("operator", "forward", "backward"),
    # One sentence of 32 positions, K = 31, two heads of 64 channels in float32: V = 4, a warp has
    # both heads, its row is c = 4 lines. The four tiles meet 23, 31, 31 and 23 taps.
    [
        ("light_conv", 4 * (108 + 28) + 108 + 4 * 32, 4 * (108 + 28) + 3 * 108 + 4 * 64),
        # Backward, tiles with tokens begin at -7, 1, ... 25, and meet 16, 24, 31, 30, 22 taps.
        ("dynamic_conv", 544 + 544 + 4 * (32 + 93), (4 + 13) * (123 + 35) + 5 * (64 + 186)),
        ("softmax_conv", 544 + 544 + 4 * (32 + 310), 1088 + 1224 + 544 + 4 * (64 + 589)),
        # V = 4, four lines and four words; a warp walks 32 positions and 15 more.
        ("talk_conv", 47 * 6 * 4, 47 * (10 * 4 + 4 * 4 + 2)),
    ],
)
def test_cycles_by_hand(operator, forward, backward):
    found = roofline.predict_case(Case(operator, 31, F32, Shape(1, 32, 128, 2)))
    assert found["forward"]["cycles"] == forward and found["backward"]["cycles"] == backward


@pytest.mark.parametrize("dtype", [F32, HALF], ids=str)
@pytest.mark.parametrize("operator", bench.OPERATORS)
def test_every_kernel_has_a_limit_of_its_own(operator, dtype):
    """Whatever is launched is in the table of cycles, and more work takes more of everything."""
    sizes = [
        Case(operator, K, dtype, Shape(4, T, 512, 4)) for T, K in ((64, 9), (128, 9), (128, 31))
    ]
    found = [roofline.predict_case(case) for case in sizes]
    for direction in ("forward", "backward"):
        assert found[0][direction]["launches"] >= 1
        for what in ("bytes", "operations", "cycles", "expected_us"):
            counts = [one[direction][what] for one in found]
            assert 0 < counts[0] < counts[1] <= counts[2], (direction, what, counts)


def test_a_direction_moves_its_inputs_and_its_outputs():
    for operator in bench.OPERATORS:
        case = Case(operator, 3, HALF, SMALL)
        inputs, g, _ = draw_inputs(case, CPU)
        read = sum(z.nbytes for z in inputs)
        assert roofline.minimum_bytes(case)["forward"] == read + g.nbytes
        assert roofline.minimum_bytes(case)["backward"] == 2 * read + g.nbytes


@pytest.mark.parametrize("K", [3, 31])
def test_windows_end_within_a_token(K):
    """Where the gradient of an offset does not jump, whatever the rounding."""
    case = Case("talk_conv", K, HALF, Shape(4, 50, 8, 4))
    (x, *offsets), _, _ = draw_inputs(case, CPU)
    assert x.dtype == HALF
    for offset in offsets:
        distance = offset * (K // 2)
        assert offset.dtype == F32 and offset.max() < 1 and distance.max() > K // 2 - 1
        assert (distance % 1 - 0.5).abs().max() < 0.26


def fails(capsys, options: list[str]) -> str:
    """The one line that the command says."""
    assert cli.main([*COMMAND, *options]) == 2
    output, error = capsys.readouterr()
    assert output == "" and error.startswith("dynconv: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("module", "options", "remedy"),
    [(build, [], "--predict estimates their times"), (nvrtc, ["--predict"], "cannot be compiled")],
    ids=["GPU", "NVRTC"],
)
def test_what_is_missing_is_named_with_its_remedy(module, options, remedy, monkeypatch, capsys):
    monkeypatch.setattr(
        module, "why_unavailable", lambda: "nothing here: 'pip install X' brings it"
    )
    error = fails(capsys, options)
    assert "'pip install X'" in error and remedy in error


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        (
            "--operators",
            "light_conv,dynamic",
            ["'dynamic' here; did you mean dynamic_conv?"],
        ),
        ("--operators", "cumulative_mean", ["'cumulative_mean'", *bench.OPERATORS]),
        ("--dtypes", "float32,half", ["'half'", "float16", "bfloat16", "float64"]),
        ("--shapes", "2x12x8x3", ["3 heads", "8 channels"]),
        ("--shapes", "long", ["'long'", "BxTxCxH"]),
        ("--kernel-sizes", "3,4", ["'4'", "odd"]),
        ("--kernel-sizes", "three", ["'three'", "odd"]),
        ("--kernel-sizes", "1", ["'1'", "at least 3"]),
        ("--output", "no/such/file.json", ["no/such"]),
    ],
)
def test_mistakes_are_reported_in_one_line(option, value, words, capsys, monkeypatch):
    monkeypatch.setattr(nvrtc, "why_unavailable", lambda: None)
    error = fails(capsys, ["--predict", option, value])
    assert all(word in error for word in words)


simulated = pytest.mark.skipif(
    bool(simulate.why_unavailable()), reason=str(simulate.why_unavailable())
)
"""tests of the check run the CUDA kernels, by the simulator"""


def spoiled(name: str, spoil):
    """The kernels, but for what one function returns: `spoil(function, *arguments)`."""
    functions = {each: getattr(simulate.kernels, each) for each in FUNCTIONS}
    right = functions[name]
    return SimpleNamespace(**functions | {name: lambda *arguments: spoil(right, *arguments)})


FUNCTIONS = [a + b for a in ("conv", "talk_conv", "softmax_conv") for b in ("", "_backward")]


def nan_at_the_end(out):
    out = out.clone()
    out.view(-1)[-1] = nan
    return out


def unwritten(out):
    made = torch.empty_like(out)
    made[:, 1:] = out[:, 1:]
    return made


def errors(kernels, operator: str, dtype=F64, K: int = 3) -> dict:
    case = Case(operator, K, dtype, Shape(3, 40, 16, 2))
    inputs, g, seed = draw_inputs(case, CPU)
    return correctness.relative_errors(kernels, case, inputs, g, seed)[0]


def passes(found: list[float], dtype=F64) -> bool:
    run = Measurement("light_conv", "cuda", "forward")
    correctness.record_error(run, found, correctness.TOLERANCE[dtype_name(dtype)])
    assert (run.note is None) == run.right
    return run.right


@simulated
@pytest.mark.parametrize("operator", bench.OPERATORS)
@pytest.mark.parametrize(("dtype", "K"), [(F64, 3), (F64, 31), (F32, 9), (HALF, 3)], ids=str)
def test_right_kernels_pass(operator, dtype, K, monkeypatch):
    monkeypatch.setattr(correctness, "CHUNK", 2 * 40 * 16)  # two sentences, then one
    for found in errors(simulate.kernels, operator, dtype, K).values():
        assert passes(found, dtype), found


@simulated
@pytest.mark.parametrize(
    ("operator", "name"),
    [("light_conv", "conv"), ("dynamic_conv", "conv"), ("softmax_conv", "softmax_conv")]
    + [("talk_conv", "talk_conv")],
)
@pytest.mark.parametrize(
    "spoil",
    [lambda out: out.roll(1, 1), lambda out: out * (1 + 1e-6), nan_at_the_end, unwritten],
    ids=["a step late", "a little more", "NaN", "unwritten"],
)
def test_a_wrong_output_does_not_pass(operator, name, spoil):
    kernels = spoiled(name, lambda right, *arguments: spoil(right(*arguments)))
    assert not passes(errors(kernels, operator)["forward"])


@simulated
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("spoil", [lambda z: -z, nan_at_the_end], ids=["sign", "NaN"])
def test_a_wrong_gradient_does_not_pass(which, spoil):
    def spoil_one(right, *arguments):
        return [spoil(z) if i == which else z for i, z in enumerate(right(*arguments))]

    found = errors(spoiled("talk_conv_backward", spoil_one), "talk_conv")
    assert passes(found["forward"]) and not passes(found["backward"])


@simulated
def test_the_mask_has_its_share_and_is_the_same_backward():
    def other_mask(right, g, x, logits, seed, *rest):
        return right(g, x, logits, None if seed is None else seed + 1, *rest)

    def wrong_without_mask(right, g, x, logits, seed, *rest):
        dx, dlogits = right(g, x, logits, seed, *rest)
        return dx, dlogits if seed is not None else -dlogits

    def keeps_more(right, x, logits, seed, dropout, pad):
        return right(x, logits, seed, dropout / 2, pad)

    operator, backward = "softmax_conv", "softmax_conv_backward"
    found = errors(spoiled(backward, other_mask), operator)
    assert passes(found["forward"], F32) and max(found["backward"]) > 0.1
    assert max(errors(spoiled(backward, wrong_without_mask), operator)["backward"]) > 1
    assert inf in errors(spoiled("softmax_conv", keeps_more), operator, K=31)["forward"]


@simulated
@pytest.mark.parametrize("K", [3, 15, 31])  # of 8 channels a head: one, two, four lots of them
def test_the_mask_is_read_off_the_kernels(K):
    case = Case("softmax_conv", K, F64, Shape(2, 20, 16, 2))
    (_, logits), _, seed = draw_inputs(case, CPU)
    kept, _ = correctness.dropconnect_mask(simulate.kernels, case, logits, seed)
    wanted = mask(seed.item(), logits.shape, correctness.DROPOUT) != 0
    s = torch.arange(20)[:, None] + torch.arange(K) - K // 2
    inside = ((s >= 0) & (s < 20))[:, None].expand_as(kept)
    assert torch.equal(kept[inside], wanted[inside])


def test_nan_never_passes():
    run = Measurement("light_conv", "cuda", "backward")
    correctness.record_error(run, [0.0, nan, 1.0], 1e-6)
    assert run.right is False and isnan(run.error) and "nan" in run.note
    correctness.record_error(
        run := Measurement("light_conv", "cuda", "backward"), [1e-7, 1e-6], 1e-6
    )
    assert run.right is True and run.error == pytest.approx(1e-6) and run.note is None
    assert correctness.relative_error(torch.zeros(3), torch.zeros(3).double()) == 0
    assert (
        correctness.relative_error(torch.tensor([1.1, 0.0]), torch.tensor([1.0, 0.0]).double())
        > 0.09
    )


def test_memory_is_poisoned_as_long_as_the_kernels_write():
    with correctness.fill_with_nan():
        assert torch.empty(9).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


@simulated
@pytest.mark.parametrize("operator", bench.OPERATORS)
def test_the_first_versions_pass_where_they_have_a_direction(operator):
    case = Case(operator, 3, F32, SMALL)
    runs = baselines.kernel_runs(simulate.kernels, case, *draw_inputs(case, CPU))
    directions = ["forward", "backward"] if operator in ("light_conv", "talk_conv") else ["forward"]
    assert [run.direction for run in runs if run.impl == "v1"] == directions
    assert all(run.right and run.error < 5e-7 for run in runs), runs


@simulated
def test_a_first_version_that_fails_stops_nobody(monkeypatch):
    def fail():
        raise OSError("no room in the cache")

    case = Case("light_conv", 3, F32, Shape(1, 8, 4, 2))
    monkeypatch.setattr(baselines, "first_versions", lambda *arguments: {"forward": fail})
    runs = baselines.kernel_runs(simulate.kernels, case, *draw_inputs(case, CPU))
    assert [(run.impl, run.right) for run in runs[:2]] == [("cuda", True)] * 2
    assert runs[2].note == "failed: no room in the cache" and runs[2].right is None


class OnCpu(CpuClock):
    """Replaces GpuClock: wall clock, and no graphs."""

    name, stream = "NVIDIA Nothing-1", None

    def about(self):
        return {"device": self.name, "versions": {"driver": "1.2"}}

    def new_pool(self):
        pass


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "left out: .* half of the GPU's memory"),
        (KeyError("inductor"), "failed: 'inductor'"),
        (RuntimeError("no image\nmore"), "failed: no image"),
    ],
)
@pytest.mark.parametrize("fails_at", [1, 3])  # while it is prepared, or at its second turn
def test_what_fails_becomes_a_note(error, note, fails_at, monkeypatch):
    calls = []

    def fail():
        calls.append(1)
        if len(calls) == fails_at:
            raise error

    monkeypatch.setattr(OnCpu, "seconds", lambda self, call: call() or 1.0)
    checked = Measurement("light_conv", "cuda", "forward", lambda inputs: fail, right=True)
    other = Measurement("light_conv", "band", "forward", lambda inputs: lambda: None)
    wrong = Measurement("light_conv", "cuda", "backward", right=False, note="WRONG")
    measure([checked, other, wrong], OnCpu(), 3, "title")
    assert re.fullmatch(note, checked.note)
    assert checked.right is False and checked.times == []
    assert other.note is None and len(other.times) == 3 and other.right is None
    assert wrong.note == "WRONG" and wrong.times == []


def test_a_row_has_its_ratios():
    case = Case("light_conv", 3, F32, SMALL)
    floor = {"bytes": 10**9, "floor_us": 1000.0}
    run = Measurement(
        "light_conv", "cuda", "forward", right=True, error=1e-7, peak=2 * case.x_bytes
    )
    run.times = [0.001, 0.002, 0.009]
    references = References(2000.0, {"forward": 8.0})
    row = make_row(case, run, references, floor, 3.0)
    assert row["ms"] == 2 and row["gb_per_s"] == 500 and row["copy_share"] == 0.25
    assert row["times_floor"] == 2 and row["attention_by_this"] == 4 and row["eager_by_this"] == 1.5
    assert row["rounds"] == 3 and row["right"] and row["operator"] == "light_conv"
    assert row["peak"] == 2
    run = Measurement("light_conv", "cuda", "forward", right=False, error=nan, note="WRONG")
    row = make_row(case, run, references, floor)
    row = json.loads(json.dumps(row, allow_nan=False))
    assert row["ms"] is None and row["copy_share"] is None and row["error"] == "nan"


def test_tables_are_100_columns_wide():
    case = Case("softmax_conv", 31, HALF, Shape(1000, 10_000, 1024, 16))
    run = Measurement(case.operator, "channels_last", "backward", error=1e-3, peak=10**12)
    run.times, run.note = [9.9999] * 30, "not captured: " + "a reason " * 20
    small = Measurement(case.operator, "cuda", "forward", right=False, error=nan, note="WRONG")
    small.times = [2e-6]
    floor = {"bytes": 10**7, "floor_us": 0.1}
    references = References(4300.0, {"forward": 700.0})
    rows = [make_row(case, one, references, floor, 1e-3) for one in (run, small)]
    text = bench.operator_table(rows)
    assert width(text) <= 100
    assert all(part in text for part in ("a reason", "channels_last  backward", "nan", "WRONG"))


def test_the_help_names_the_operators_that_are_measured(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "kernels", "--help"])
    assert f"(default: {', '.join(bench.OPERATORS)})" in " ".join(capsys.readouterr().out.split())


def bench_on_cpu(kernels, tmp_path, monkeypatch, operators=("light_conv",)):
    """The whole command but for the GPU; the exit's number, the file, the text."""
    monkeypatch.setattr(baselines, "first_versions", lambda *arguments: {})
    monkeypatch.setitem(correctness.TOLERANCE, "float32", 1e-6)
    cases = bench.make_cases(["2x12x8x2", "1x9x8x2"], ["float32"], operators, ["3"])
    path, said = tmp_path / "kernels.json", []
    gpu_bench = GpuBench(OnCpu(), kernels, 3)
    wrong = bench.measure_cases(gpu_bench, cases, "the command", path, said.append)
    return wrong, json.loads(path.read_text()), "\n".join(said)


@simulated
def test_everything_is_measured_and_written(tmp_path, monkeypatch):
    operators = ["light_conv", "softmax_conv"]
    wrong, report, text = bench_on_cpu(simulate.kernels, tmp_path, monkeypatch, operators)
    assert wrong == 0 and width(text.rsplit("\n", 1)[0]) <= 100 and "0 wrong" in text
    assert report["command"] == "the command" and report["device"] == "NVIDIA Nothing-1"
    assert report["versions"]["driver"] == "1.2"
    assert set(report["load"]) == {"before", "after"}
    beside = ("launch", "copy", "attention")
    impls = {
        "launch": {""},
        "copy": {""},
        "attention": {"flash"},
        "light_conv": {"cuda", *ops.implementations("light_conv")} - {"loop", "cpu"},
        "softmax_conv": {"cuda", "separate", "shifted"},
    }
    for T in (12, 9):
        rows = [row for row in report["numbers"]["rows"] if row["T"] == T]
        found = {name: {row["impl"] for row in rows if row["operator"] == name} for name in impls}
        found["attention"] = {"flash"} if len(found["attention"]) == 1 else found["attention"]
        assert found == impls
        for row in rows:
            assert row["ms"] > 0 and row["rounds"] == 3 and row["note"] is None, row
            assert (row["right"] is True and row["error"] < 1e-6) or row["impl"] != "cuda"
            assert (row["times_floor"] is None) == (row["operator"] in beside)
            assert row["attention_by_this"] > 0
            assert row["operator"] != "copy" or row["copy_share"] == 1
    softmax = [row for row in rows if row["operator"] == "softmax_conv"]
    eager = [row for row in softmax if row["impl"] != "cuda"]
    best = min(eager, key=lambda row: row["ms"])
    assert best["eager_by_this"] == 1


@simulated
def test_a_wrong_kernel_is_not_timed_and_counted(tmp_path, monkeypatch):
    kernels = spoiled("conv", lambda right, *arguments: right(*arguments) * 1.01)
    wrong, report, text = bench_on_cpu(kernels, tmp_path, monkeypatch)
    assert wrong == 2 and "2 wrong" in text
    for row in report["numbers"]["rows"]:
        if row["impl"] == "cuda" and row["direction"] == "forward":
            assert row["right"] is False and row["ms"] is None and row["rounds"] == 0
            assert row["error"] == pytest.approx(0.01, rel=1e-3) and "WRONG" in row["note"]
        else:
            assert row["ms"] > 0 and row["right"] is not False
    assert "- cuda forward: WRONG, not timed: error 0.01" in text


@simulated
def test_a_kernel_that_does_not_compile_is_counted(tmp_path, monkeypatch):
    refuse = Mock(
        side_effect=build.NoGpuKernelsError("light_conv of lightconv.cu: no such architecture")
    )
    wrong, report, _ = bench_on_cpu(spoiled("conv", refuse), tmp_path, monkeypatch)
    notes = [row["note"] for row in report["numbers"]["rows"] if row["impl"] == "cuda"]
    assert wrong == len(notes) == 4 and all("no such architecture" in note for note in notes)


@simulated
def test_what_is_measured_is_kept_when_the_rest_is_not(tmp_path, monkeypatch):
    measure_operator = GpuBench.measure_operator

    def stop(self, case, references):
        if case.shape.T == 9:
            raise KeyboardInterrupt
        return measure_operator(self, case, references)

    monkeypatch.setattr(GpuBench, "measure_operator", stop)
    with pytest.raises(KeyboardInterrupt):
        bench_on_cpu(simulate.kernels, tmp_path, monkeypatch)
    rows = json.loads((tmp_path / "kernels.json").read_text())["numbers"]["rows"]
    assert {row["operator"] for row in rows if row["T"] == 12} > {"copy", "light_conv"}


def test_the_exit_code_counts_wrong_kernels(monkeypatch, capsys):
    for wrong, code in ((0, 0), (3, 1)):
        monkeypatch.setattr(bench, "bench_kernels", lambda *a, wrong=wrong, **b: wrong)
        assert cli.main(COMMAND) == code


def test_the_default_shapes_keep_ten_sentences(monkeypatch):
    bench_kernels = Mock(return_value=0)
    monkeypatch.setattr(bench, "bench_kernels", bench_kernels)
    assert cli.main(["bench", "kernels"]) == 0
    given = bench_kernels.call_args.kwargs
    operators = given["operators"] or bench.OPERATORS
    cases = bench.make_cases(given["shapes"], given["dtypes"], operators, given["kernel_sizes"])
    shapes = {case.shape for case in cases}
    assert {(s.B, s.T) for s in shapes if s.C == 1024} == {
        (10, 10), (10, 100), (10, 1000), (10, 10_000), (112, 32)
    }  # fmt: skip
    assert {s.T for s in shapes if s.C == 512} == {32} and len(cases) == 6 * 2 * 4 * 2
    assert given["rounds"] == 30 and given["predict"] is False and given["output"] is None


def test_attention_says_how_it_was_made():
    q = torch.randn(1, 2, 4, 8, requires_grad=True)
    out = torch.nn.functional.scaled_dot_product_attention(q, q, q) + 1
    assert baselines.attention_backend(out) == "flash"
    assert baselines.attention_backend(q @ q.mT) == "products"


@simulated
def test_pytorch_compiles_once_per_operator_and_dtype(monkeypatch):
    monkeypatch.setattr(gpu_bench, "COMPILED_LENGTH", 12)
    monkeypatch.setattr(gpu_bench, "torch_compiled", lambda function: function)
    monkeypatch.setattr(baselines, "first_versions", lambda *arguments: {})
    one = GpuBench(OnCpu(), simulate.kernels, 1)
    for K, dtype, directions in (
        (3, F32, ["forward", "backward"]),
        (5, F32, []),
        (3, F64, ["forward", "backward"]),
    ):
        rows = one.measure_operator(Case("light_conv", K, dtype, SMALL), References())
        found = [row for row in rows if row["impl"] == "compiled"]
        assert [row["direction"] for row in found] == directions
        assert all(row["ms"] > 0 for row in found)


@pytest.mark.gpu
@pytest.mark.skipif(bool(build.why_unavailable()), reason=str(build.why_unavailable()))
def test_the_whole_command_on_a_gpu(tmp_path, capsys, monkeypatch):
    path = tmp_path / "kernels.json"
    options = ["--shapes", "2x64x256x4", "--kernel-sizes", "3,31", "--rounds", "3"]
    assert cli.main(["bench", "kernels", *options, "--output", str(path)]) == 0
    text = capsys.readouterr().out
    assert width(text.rsplit("\n", 2)[0]) <= 100
    report = json.loads(path.read_text())
    assert report["versions"]["cupy"]
    for row in report["numbers"]["rows"]:
        if row["impl"] in ("cuda", "v1", ""):
            assert row["right"] is not False and row["ms"] > 0 and row["note"] is None, row
    assert {row["operator"] for row in report["numbers"]["rows"]} > set(bench.OPERATORS)


@pytest.fixture
def capturing(monkeypatch):
    """A GpuClock without a GPU, and the calls of torch.cuda that it makes."""
    calls = []
    own = gpu_clock.GpuClock.__new__(gpu_clock.GpuClock)
    own.stream, own.pool, own.total = "stream", "pool", torch.zeros(1)

    class Capture(nullcontext):
        def __init__(self, made, pool=None, stream=None):
            calls.append(("capture", pool, stream))
            super().__init__()

    for name, replacement in {
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: calls.append("replay")),
        "graph": Capture,
        "graph_pool_handle": lambda: "another pool",
        "set_sync_debug_mode": calls.append,
        "synchronize": lambda: calls.append("wait"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, replacement)
    return own, calls


CAPTURE = ["error", "run", "default", ("capture", "pool", "stream"), "run"]


def test_a_graph_replays_and_keeps_what_it_reads(capturing):
    own, calls = capturing
    saved = torch.zeros(1)
    alive = weakref.ref(saved)
    play, note = own.capture(lambda saved=saved: calls.append("run"))
    assert calls == [*CAPTURE, "default", "replay", "wait"]
    assert note is None and play() is None and calls[-2:] == ["wait", "replay"]
    del saved
    assert alive() is not None  # the graph's addresses are still those of what it reads
    del play
    assert alive() is None


@pytest.mark.parametrize(("single_us", "fit"), [(12.0, 8), (51.0, 1), (900.0, 1)])
def test_short_calls_share_a_graph_each_with_its_own_memory(capturing, monkeypatch, single_us, fit):
    """As many as take 100 us; the time of a replay is divided by their number."""
    own, calls = capturing
    x = torch.arange(6.0).view(2, 3).t().requires_grad_()
    seen, elapsed = [], {fit: fit * single_us / 2, 1: single_us}

    def make(inputs):
        def call():
            seen.append((inputs[0], torch.empty_like(inputs[0])))
            return seen[-1][1]

        return call

    class Event:
        def __init__(self, enable_timing):
            self.record = self.synchronize = lambda: None

        def elapsed_time(self, end):
            return elapsed[len(run.call.calls) if run.call else 1] / 1e3

    for name in ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    own.filler = torch.zeros(1)
    run = Measurement("light_conv", "cuda", "forward", make, [x])
    own.prepare(run)
    assert run.note is None and len(run.call.calls) == fit
    captured = seen[-fit:]  # the last ones are those of the graph
    for tensors in zip(*captured, strict=True):
        assert len({z.data_ptr() for z in tensors}) == fit
    for z, _ in captured:
        assert torch.equal(z, x) and z.stride() == x.stride() and z.requires_grad
    assert own.seconds(run.call) == pytest.approx(elapsed[fit] / fit / 1e6)


@pytest.mark.parametrize(
    ("fails_at", "expected", "pool"),
    [
        (1, ["error", "run", "default"], "pool"),  # in the trial: nothing is captured
        (2, [*CAPTURE, ("capture", None, "stream"), "default"], "another pool"),
    ],
)
def test_what_waits_is_not_captured(capturing, fails_at, expected, pool):
    own, calls = capturing

    def call(error=RuntimeError):
        calls.append("run")
        if calls.count("run") == fails_at:
            raise error("called a synchronizing CUDA operation")

    play, note = own.capture(call)
    assert play is call and "synchronizing" in note
    assert calls == expected and own.pool == pool
    calls.clear()
    with pytest.raises(torch.OutOfMemoryError):
        own.capture(partial(call, torch.OutOfMemoryError))


@simulated
def test_what_would_need_a_matrix_for_each_head_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(implementations, "LIMIT", 2 * 4 * 2 * 2 * 12 * 12 - 1)
    _, report, text = bench_on_cpu(simulate.kernels, tmp_path, monkeypatch)
    band = [row for row in report["numbers"]["rows"] if row["impl"] == "band"]
    left = [row["T"] for row in band if row["ms"] is None]
    assert left and set(left) == {12} and "needs about 4.61e-06 GB" in text
    assert {row["T"] for row in band} == {12, 9}
