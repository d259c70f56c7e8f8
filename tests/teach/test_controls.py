"""The controls of the lessons: their code and their records, and an exact fit for lesson 32."""

from fractions import Fraction
from inspect import signature
from itertools import combinations
from math import inf, isqrt
from operator import mul
from statistics import median

import torch
from torch import nn

from dynconv.lab import ledger
from dynconv.layers import DynamicConv
from dynconv.paths import data_dir
from dynconv.score import bleu
from dynconv.teach.controls.__main__ import MODULES
from dynconv.teach.controls.averaging import SIDES
from dynconv.teach.controls.control import run_definitions
from dynconv.teach.controls.loudness import RATES, UNDONE
from dynconv.teach.controls.normalizers import LOUD
from dynconv.teach.controls.pointing import STACKS, describe_stack
from dynconv.teach.controls.sharing import KERNELS, LONG
from dynconv.teach.controls.softmax import PLACES, NoSquare, PlusFixed
from dynconv.teach.controls.softmax import RATES as SOFTMAX_RATES
from dynconv.teach.controls.warmup import DESCENTS, WARMED


def test_each_record_has_its_control():
    records = {path.stem for path in data_dir().glob("results/controls-*.json")}
    names = [name for module in MODULES for name in module.CONTROLS]
    assert len(names) == len({*names})
    assert {*names} == records
    for module in MODULES:
        for name, control in module.CONTROLS.items():
            entry = ledger.read(name)
            assert entry["what"].startswith(control.what)
            assert entry["seeds"] == control.seeds


def test_lessons_03_and_05_still_define_what_their_controls_use():
    assert "trained" in run_definitions("03_attention", "ARTICLES")
    record = ledger.read("controls-attention")["numbers"]
    assert len(record) == 5 and all(len(each["filled"]) == 4 for each in record.values())
    names = run_definitions("05_gates", "HALF", "DESIGNS")
    assert "train_letters" in names
    assert {"both changes", "as published"} <= names["DESIGNS"].keys()
    record = ledger.read("controls-gates")["numbers"]
    assert len(record) == 8 and all(len(losses) == 3 for losses in record.values())


def means(record: dict[str, list[float]], digits: int) -> dict[str, float]:
    return {what: round(sum(runs) / len(runs), digits) for what, runs in record.items()}


def test_lesson_06_still_defines_what_its_control_uses_and_says():
    names = run_definitions("06_sharing", "ALPHABET", "training")
    assert {"fit", "reader", "bits", "training", "validation"} <= names.keys()
    record = ledger.read("controls-sharing")["numbers"]
    long = [f"{kernels} kernels, {places} letters, 800 steps" for kernels, places in LONG]
    narrow = [f"{kernels} kernels, 24 channels" for kernels in KERNELS]
    assert [*record] == long + narrow
    assert [len(runs) for runs in record.values()] == [3, 3, 3, 6, 6, 6]
    spread = sorted(max(runs) - min(runs) for runs in record.values())
    for group in (long, narrow):
        costs = [sum(record[what]) / len(record[what]) for what in group]
        assert max(costs) - min(costs) < 0.012 < spread[3]


def test_lesson_07_still_defines_what_its_control_uses_and_says():
    names = run_definitions("07_softmax", "novels")
    assert {"LetterStack", "fit", "novels"} <= names.keys()
    record = means(ledger.read("controls-softmax")["numbers"], 1)
    said = {
        "LightConv": {"pre": 3.4, "post": (3.3, 3.4, 3.5, 3.5, 3.7)},
        "DynamicConv": {"pre": 3.2, "post": (3.2, 3.2, 3.7, 3.9, 3.8)},
    }
    for mixer, bits in said.items():
        assert record.pop(f"{mixer}, pre-norm, all times 30") == bits["pre"]
        for loud, each in zip(PLACES, bits["post"], strict=True):
            volumes = ", ".join(map(str, loud))
            assert record.pop(f"{mixer}, post-norm, times {volumes}") == each
    assert [*record.values()] == [4.1, 3.1, 3.4, 4.1]


def test_lesson_07_says_what_the_record_of_its_rates_says():
    assert "lr" in signature(run_definitions("07_softmax")["fit"]).parameters
    record = ledger.read("controls-softmax-rates")["numbers"]
    assert len(record) == 2 * 4 * len(SOFTMAX_RATES) + 4 * 3 + 4 + 4
    bits = {what: run["bits"] for what, run in record.items()}
    quieter = [bits[f"DynamicConv, none, post-norm, times 0.3, rate {lr}"] for lr in SOFTMAX_RATES]
    assert max(quieter[0] + quieter[1]) < 3.3 and sorted(quieter[2])[1] > 4
    edge = record["DynamicConv, none, post-norm, times 0.3, rate 0.03"]
    light = record["LightConv, none, post-norm, rate 0.03"]
    first, last = "growth in the first update", "growth in the last update"
    assert max(edge[first]) < min(light[first])
    assert min(edge[last]) > 1e9 and max(light[last]) < 2000
    for lr in SOFTMAX_RATES:
        loud = record[f"LightConv, none, post-norm, times 2.5, rate {lr}"]
        dynamic = record[f"DynamicConv, none, post-norm, rate {lr}"]
        assert min(loud["bits"] + dynamic["bits"]) > 3.9
        assert 0.6 < median(loud[first]) / median(dynamic[first]) < 1.6
        assert max(loud[last]) < min(dynamic[last])
    name = "{}, none, post-norm{}, rate {}"
    for lr, default_mean, light_mean in ((0.003, 3.8, 3.7), (0.01, 4.0, 3.3)):
        default = record[name.format("DynamicConv", ", default weights", lr)]
        light_bits = bits[name.format("LightConv", "", lr)]
        both = means({"default": default["bits"], "light": light_bits}, 1)
        assert [*both.values()] == [default_mean, light_mean]
        assert (min(default["bits"]) < max(light_bits)) == (lr == 0.003)
        assert round(median(default[first])) == 11
    longer = "{}, none, post-norm, times {}, rate 0.01, 210 updates"
    models = ("LightConv", 2.5), ("DynamicConv", 1), ("NoSquare", 1), ("PlusFixed", 1)
    late = [record[longer.format(*model)] for model in models]
    table = [(47, 74), (50, 75), (54, 74), (65, 98)]
    assert [(round(min(run[first])), round(max(run[first]))) for run in late] == table
    table = [(3.1, 3.2), (3.4, 3.8), (3.5, 3.9), (3.2, 3.4)]
    assert [(round(min(run["bits"]), 1), round(max(run["bits"]), 1)) for run in late] == table
    light, square, no_square, fixed = [(min(run[last]), max(run[last])) for run in late]
    assert [round(growth, -2) for growth in light] == [1200, 5400]
    assert [round(growth, -6) for growth in square] == [6e6, 1e7]
    assert [round(growth, -5) for growth in no_square] == [5e5, 1.1e6]
    assert [round(growth, -6) for growth in fixed] == [2e6, 7e6]
    assert max(late[3]["bits"]) < min(late[1]["bits"])
    starts = zip(late[2][first], late[1][first], strict=True)
    assert all(abs(each - start) < 0.1 * start for each, start in starts)
    alone = {lr: bits[f"NoMixer, none, post-norm, rate {lr}"] for lr in SOFTMAX_RATES}
    assert [*means(alone, 1).values()] == [3.6, 3.4, 3.4]
    no_norm = [bits[f"LightConv, none, no norm, rate {lr}"] for lr in (*SOFTMAX_RATES, 0.1)]
    assert all(max(runs) < 3.7 for runs in no_norm[:3]) and min(no_norm[3]) > 90_000


def test_lesson_07s_controls_lose_the_square_or_gain_a_fixed_kernel():
    torch.manual_seed(0)
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    for mixer, power in ((NoSquare, 1), (DynamicConv, 2)):
        layer = mixer(6, 2, 3, causal=True, normalize="none").double()
        for name, values in layer.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(values)
        assert torch.allclose(layer(2 * x), 2**power * layer(x))
    layer = PlusFixed(6, 2, 3, causal=True, normalize="none").double()
    nn.init.zeros_(layer.kernel_proj.weight)
    assert torch.allclose(layer.logits(x), layer.fixed.expand(2, 9, 2, 3) / 2**0.5)


def test_lesson_08_still_defines_what_its_controls_use():
    names = run_definitions("08_dropconnect", "ALPHABET", "LAWS", "SHAPES", "training", "held_out")
    assert {"shared", "fresh"} <= names["LAWS"].keys()
    assert "passages" in signature(names["fit"]).parameters
    record = ledger.read("controls-dropconnect")["numbers"]
    laws = [f"{passages} passages, {law}" for passages in (8, 64) for law in ("shared", "fresh")]
    assert [*record] == laws and all(len(runs) == 6 for runs in record.values())


def test_lesson_12_still_defines_what_its_controls_use():
    names = run_definitions("12_normalizers", "TEN", "training")
    assert {"times", "fit", "fresh", "bits_on_validation", "training", "validation"} <= names.keys()
    record = ledger.read("controls-normalizers")["numbers"]
    assert record["default weights"].keys() == names["TEN"].keys()
    assert tuple(record["200 steps"]) == tuple(record["quiet start"]) == LOUD
    kinds = ("quiet start", "shortcut", "pre-norm")
    several = [bits for kind in kinds for bits in record[kind].values()]
    assert all(len(bits) == 3 for bits in several)
    assert min(min(record["shortcut"][kind]) for kind in LOUD) > max(record["mixers off"])


def test_lesson_13_still_defines_what_its_controls_use():
    names = run_definitions("13_averaging", "training")
    assert {"Restorer", "fitted", "restored", "is_vowel", "training", "validation"} <= names.keys()
    record = ledger.read("controls-averaging")["numbers"]
    assert [*record] == [f"{encoder} -> {decoder}" for encoder, decoder in SIDES]
    alone = ledger.read("controls-averaging-alone")["numbers"]
    assert [*alone] == ["800 steps", "2,400 steps", "mean of 63, 200 steps"]
    longer = ledger.read("controls-averaging-long")["numbers"]
    assert longer.keys() < record.keys()
    widths = ledger.read("controls-averaging-widths")["numbers"]
    assert len(widths) == 12 and all(len(runs) == 3 for runs in widths.values())


def test_lesson_17_still_defines_what_its_control_uses():
    names = run_definitions("17_talk")
    assert "depth" in signature(names["copy_model"]).parameters
    assert {"start", "step", "rate"} <= signature(names["copy_losses"]).parameters.keys()
    record = ledger.read("controls-loudness")["numbers"]
    more = {what: record.pop(what) for what in [*record] if "seeds 6 to 13" in what}
    assert len(record) == 4 * len(RATES) + 4 + len(UNDONE) and len(more) == 3
    assert all(len(needed) == 6 for needed in record.values())
    edge = "reach 1, rate 0.03"
    medians = []
    for way, added in zip(("", ", small start", ", short steps"), more.values(), strict=True):
        needs = [needed or inf for needed in record[f"not divided, {edge}{way}"] + added]
        assert len(needs) == 14
        medians.append(median(needs))
    assert 195 < medians[0] < 205 and all(120 < each < 135 for each in medians[1:])
    assert 72 == max(record[f"divided, {edge}"])
    learned = [updates for updates in record[f"not divided, {edge}"] if updates]
    assert len(learned) == 4 and (min(learned), max(learned)) == (153, 213)
    assert [record[f"not divided, {edge}, {way}"].count(None) for way in UNDONE] == [1, 1, 0]


def test_lesson_23_still_defines_what_its_controls_use():
    names = run_definitions("23_recipe", "EINS", "ZEHN", "ONE", "TEN", "FIXED", "WORDS")
    assert {"new_model", "adam", "make_updates", "no_warmup", "batch_of"} <= names.keys()
    record = ledger.read("controls-recipe")["numbers"]
    assert [*record] == ["filled nothing", "filled v", "filled m and v"]
    assert all(len(each) == 3 for runs in record.values() for each in runs.values())
    record = ledger.read("controls-warmup")["numbers"]
    assert [*record] == [*WARMED] and all(len(losses) == 3 for losses in record.values())
    assert {"full_run", "descent", "cosine_rate", "digits_right"} <= names.keys()
    record = ledger.read("controls-descent")["numbers"]
    assert [*record] == [*DESCENTS] and all(len(shares) == 6 for shares in record.values())


def test_lesson_27_says_what_its_translations_score():
    names = run_definitions("27_iwslt", "pairs")
    outputs = {}
    records = ("translations", "translations-corpora", "translations-random", "translations-seeds")
    for record in records:
        outputs |= ledger.read(record)["numbers"]["outputs"]
    phrases, test = names["phrases"], names["pairs"]["test"]
    training = names["all_phrases"]("train")
    known = [i for i, pair in enumerate(test) if phrases(pair) & training]
    fresh = [i for i, pair in enumerate(test) if phrases(pair) and not phrases(pair) & training]
    assert (len(known), len(fresh)) == (303, 549)

    def lead(model: str) -> float:
        return bleu_of(model, known) - bleu_of(model, fresh)

    def bleu_of(model: str, lines: list[int]) -> float:
        return bleu([outputs[model][i] for i in lines], [test[i][1] for i in lines]).value

    seeds = (", seed 1", ", seed 2", ", seed 3")
    for model, mean_lead in {"demo": 20.5, "demo-random": 20.0, "demo-clean": 8.0}.items():
        assert round(sum(lead(model + seed) for seed in seeds) / 3, 1) == mean_lead
    seeds = ("", ", seed 2", ", seed 3")
    for model, mean_lead in {"dynamic": 11.7, "dynamic-random": 12.0, "dynamic-clean": 6.9}.items():
        assert round(sum(lead(model + seed) for seed in seeds) / 3, 1) == mean_lead


def test_lesson_30_says_what_its_models_lose_without_a_paragraph():
    record = ledger.read("synopsis-unread")["numbers"]
    first = ledger.read("synopsis-reading")["numbers"]["models"]
    assert record.keys() == first.keys() == {"attention", "dynamic"}
    for name, row in record.items():
        assert row["updates"] == first[name]["updates"]
        for loss in ("valid_loss", "valid_loss_swapped"):
            assert abs(row[loss] - first[name][loss]) < 0.02
        without, other = row["valid_loss_unread"], row["valid_loss_swapped"]
        assert abs(other - without) < 0.2 and min(without, row["valid_loss_mixed"]) > 3.9 + 1
    assert round(record["dynamic"]["valid_loss_mixed"], 2) == 4.99


def test_lesson_33_still_defines_what_its_controls_use():
    names = run_definitions("33_forgetting")
    assert {"Reader", "Stack", "deal", "error", "teach_reader"} <= names.keys()
    record = ledger.read("controls-forgetting")["numbers"]
    assert len(record) == 13 and all(len(scores) == 3 for scores in record.values())


def test_lesson_34_still_defines_what_its_control_uses_and_says():
    names = run_definitions("34_which")
    needed = ("mixers", "heads", "updates", "in_order", "seed")
    assert tuple(signature(names["learn_to_recall"]).parameters) == needed
    record = ledger.read("controls-pointing")["numbers"]
    assert [*record] == [describe_stack(*stack) for stack in STACKS]
    assert all(len(shares) == 3 for shares in record.values())
    first, solved, *one_layer = record.values()
    assert max(first) < 0.31 and min(solved) > 0.99
    assert 0.26 < min(map(min, one_layer)) and max(map(max, one_layer)) < 0.285


def test_what_positive_factors_could_do_in_lesson_32():
    """63 exponentials fitted to a spike, in integers of 800 bits: least error and weights."""
    bits, count = 800, 63
    columns = [
        [(count - 1 + i) ** j * 2**bits // (2 * count - 2) ** j for j in range(160)]
        for i in range(count)
    ]

    def dot(a, b):
        return sum(map(mul, a, b)) >> bits

    basis = []
    for column in columns:
        for _ in range(2):  # twice: once leaves the basis not orthogonal enough
            for q in basis:
                share = dot(q, column)
                column = [x - (share * y >> bits) for x, y in zip(column, q, strict=True)]
            length = isqrt(dot(column, column) << bits)
            column = [(x << bits) // length for x in column]
        basis.append(column)
    assert abs(sum(dot(a, b) for a, b in combinations(basis, 2))) < 2 ** (bits // 2)
    along = [Fraction(q[40], 2**bits) for q in basis]
    assert round(float(1 - sum(share**2 for share in along)), 2) == 0.64
    weights = [Fraction(0)] * count
    for i in reversed(range(count)):
        row = [Fraction(dot(basis[i], column), 2**bits) for column in columns[i:]]
        rest = along[i] - sum(map(mul, row[1:], weights[i + 1 :]))
        weights[i] = Fraction(round(rest / row[0] * 2**bits), 2**bits)
    assert max(map(abs, weights)) > 10**49
