"""Runs controls of lessons 03, 05, 08, 12, 13, 23 and 33 that take minutes, with their own code.

`python -m dynconv.teach.controls` writes the records of `RECORDS`, data/results/controls-*.json.
"""

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

import jupytext
import torch
from torch import Tensor, nn

from dynconv.lab import ledger
from dynconv.layers import DynamicConv, LightConv
from dynconv.paths import data_dir
from dynconv.teach.checkout import require_checkout, run_tool

COMMAND = "python -m dynconv.teach.controls"
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
LOUD = ("none", "sigmoid", "tanh", "power2", "abs", "abs_l2")
SIDES = (
    ("DynamicConv", "DynamicConv"),
    ("DynamicConv", "average"),
    ("average", "DynamicConv"),
    ("nothing", "DynamicConv"),
)
WARMED = {
    "untrained model, new Adam, peak 0.015": (False, False, 0.015),
    "warmed-up model, new Adam, peak 0.015": (True, False, 0.015),
    "warmed-up model, new Adam, peak 0.02": (True, False, 0.02),
    "warmed-up model, kept Adam, peak 0.02": (True, True, 0.02),
}
DESCENTS = {
    "peak 0.3, warm-up": (0.3, 60),
    "peak 0.3, no warm-up": (0.3, 0),
    "peak 0.6, warm-up": (0.6, 60),
    "peak 0.6, no warm-up": (0.6, 0),
}


def definitions(lesson: str, *values: str) -> dict[str, Any]:
    """Return what the cells of a lesson import and define, and its `values`, by name."""
    names: dict[str, Any] = {"__name__": lesson}
    for cell in jupytext.read(require_checkout() / "lessons" / f"{lesson}.md").cells:
        if cell.cell_type != "code" or "solution" in cell.metadata.get("tags", []):
            continue
        for node in ast.parse(cell.source).body:
            assigned = set()
            if isinstance(node, ast.Assign):
                targets = (name for target in node.targets for name in ast.walk(target))
                assigned = {name.id for name in targets if isinstance(name, ast.Name)}
            if isinstance(node, DEFINITIONS) or assigned & {*values}:
                exec(compile(ast.Module([node], []), lesson, "exec"), names)
    return names


def attention() -> dict[str, Any]:
    """Return the gaps that lesson 03's models fill, and how much their heads look back."""
    texts = ("german", "german_test", "often", "pieces", "ids", "x", "goal", "x_test", "goal_test")
    names = definitions("03_attention", "ARTICLES", *texts)
    sentence, t = (names["goal_test"] >= 0).nonzero(as_tuple=True)
    before = torch.arange(20) < t[:, None]  # (gaps, T)
    numbers: dict[str, Any] = {}
    for heads, tables in ((2, 0), (1, 1), (2, 1), (2, 2), (4, 4)):
        scores, shares = [], []
        for seed in range(4):
            model, score = names["trained"](heads, tables, seed)
            scores.append(round(score, 3))
            with torch.no_grad():
                p, _ = model.weights(names["x_test"])  # (N, H, T, T)
            share = (p[sentence, :, t] * before[:, None]).sum(dim=2).mean(dim=0)  # (H,)
            shares.append([round(each, 2) for each in share.tolist()])
        numbers[f"{heads} heads, {tables} tables"] = {"filled": scores, "looks back": shares}
    return numbers


def gates() -> dict[str, Any]:
    """Return the losses of two designs of lesson 05 for other updates and rates."""
    names = definitions("05_gates", "HALF", "DESIGNS", "text", "letters", "code")
    designs, train = names["DESIGNS"], names["train_letters"]

    def losses(name: str, **settings: Any) -> list[float]:
        return [round(train(*designs[name], seed, **settings), 2) for seed in range(3)]

    numbers = {
        f"{name}, {updates} updates, rate {rate}": losses(name, updates=updates, rate=rate)
        for updates, rate in ((60, 0.003), (60, 0.001), (60, 0.009), (240, 0.003))
        for name in ("both changes", "as published")
    }
    large = {"start": 2**0.5, "scale": 1 / 40}
    for updates, rate in ((20, 0.003), (30, 0.003), (60, 0.003), (480, 0.0005)):
        what = f"both changes, embeddings at √2, scores / 40, {updates} updates, rate {rate}"
        numbers[what] = losses("both changes", updates=updates, rate=rate, **large)
    return numbers


def dropconnect() -> dict[str, Any]:
    """Return held-out bits per letter of lesson 08's models, in small and in large batches.

    Each is the mean of the last five points of a curve, for six seeds.
    """
    torch.set_default_dtype(torch.float64)  # as in the lesson
    names = definitions("08_dropconnect", "ALPHABET", "LAWS", "SHAPES", "training", "held_out")

    def bits(law: str, seed: int, passages: int) -> float:
        costs, _ = names["fit"](law, seed, passages=passages)
        return round(costs[-5:].mean().item(), 3)

    numbers = {
        f"{passages} passages, {law}": [bits(law, seed, passages) for seed in range(6)]
        for passages in (8, 64)
        for law in ("weight", "entry")
    }
    torch.set_default_dtype(torch.float32)
    return numbers


class Released(DynamicConv):
    """DynamicConv with scores that start as in the Python class of fairseq."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.kernel_proj.reset_parameters()  # uniform, up to 1 / sqrt(C)


def normalizers() -> dict[str, Any]:
    """Return bits per letter of the models of lesson 12 under other settings."""
    names = definitions("12_normalizers", "TEN", "training")
    ten, times, fit, fresh = (names[name] for name in ("TEN", "times", "fit", "fresh"))

    def bits(f: Callable[[Tensor], Tensor], **settings: Any) -> float:
        return round(names["bits_on_validation"](fit(f, **settings)), 3)

    loud = {kind: ten[kind] for kind in LOUD}
    quiet = {kind: times(0.1, f) for kind, f in loud.items()}
    numbers: dict[str, Any] = {
        "rates": {str(lr): {k: bits(f, lr=lr) for k, f in ten.items()} for lr in (0.003, 0.03)},
        "mixers off, 200 steps": bits(times(0, ten["softmax"]), steps=200),
        "times 0.1, 200 steps": {kind: bits(f, steps=200) for kind, f in quiet.items()},
        "200 steps": {kind: bits(f, steps=200) for kind, f in loud.items()},
        "quiet start": {
            kind: [bits(f, start=0.1, seed=seed) for seed in range(3 if kind == "abs" else 1)]
            for kind, f in loud.items()
        },
        "pre-norm": {kind: bits(ten[kind], norm="pre") for kind in ("softmax", *LOUD)},
    }
    names["DynamicConv"] = Released
    numbers["default weights"] = {
        kind: {
            "ratio": round(fresh(f)[0].mean().item(), 3),
            "bits": [bits(f, seed=seed) for seed in range(2)],
        }
        for kind, f in ten.items()
    }
    return numbers


def averaging(steps: int = 800, seeds: int = 2, sides: Any = SIDES) -> dict[str, Any]:
    """Return the vowels that lesson 13's models restore when decoders attend to the source."""
    names = definitions("13_averaging", "training")

    Restorer: Any = names["Restorer"]

    class Attending(Restorer):
        """A Restorer whose decoder reads its own position of the source and attends to all."""

        def __init__(self, encoder: str, decoder: str, C: int = 32) -> None:
            super().__init__(encoder, decoder, C)
            self.norm, self.memory_norm = nn.LayerNorm(C), nn.LayerNorm(C)
            self.attend = nn.MultiheadAttention(C, 4, batch_first=True)

        def forward(self, ids: Tensor) -> Tensor:
            place, decoder = self.place.weight, self.decoder
            memory = self.embed(ids.masked_fill(names["is_vowel"](ids), 27)) + place
            if self.encoder is not None:
                memory = self.encoder(memory)
            before = nn.functional.pad(ids[:, :-1], (1, 0), value=28)
            x = self.embed(before) + place + memory
            x = x + decoder.mixer(decoder.norm(x))
            keys = self.memory_norm(memory)
            x = x + self.attend(self.norm(x), keys, keys, need_weights=False)[0]
            return self.predict(x + decoder.network(x))

    names["Restorer"] = Attending
    return {
        f"{encoder} -> {decoder}": [
            round(names["restored"](encoder, decoder, seed, steps=steps), 3)
            for seed in range(seeds)
        ]
        for encoder, decoder in sides
    }


def averaging_long() -> dict[str, Any]:
    """Return what they restore after three times as many steps, one seed each."""
    return averaging(2400, 1, (SIDES[0], *SIDES[2:]))


def averaging_alone() -> dict[str, Any]:
    """Return the vowels restored without attention: no encoder, and a mean of all letters."""
    names = definitions("13_averaging", "training")

    def share(encoder: str, steps: int, seed: int) -> float:
        return round(names["restored"](encoder, "DynamicConv", seed, steps=steps), 3)

    numbers = {
        "800 steps": [share("nothing", 800, 0), share("nothing", 800, 1)],
        "2,400 steps": [share("nothing", 2400, 0)],
    }
    # 63 taps reach all 32 letters from everywhere.
    names["LightConv"] = lambda channels, heads, _: LightConv(channels, heads, 63)
    numbers["mean of 63, 200 steps"] = [share("mean of 3", 200, seed) for seed in range(2)]
    return numbers


def averaging_widths() -> dict[str, Any]:
    """Return the vowels restored with encoders of 3 and of 7 letters and three kinds of weights.

    Each after 200 and after 800 updates.
    """
    names = definitions("13_averaging", "training")

    def share(kind: str, width: int, seed: int, steps: int) -> float:
        def mixer(channels: int, heads: int, K: int, causal: bool) -> nn.Module:
            if causal or kind == "DynamicConv":
                return DynamicConv(channels, heads, K if causal else width, causal=causal)
            layer = LightConv(channels, heads, width)
            if kind == "equal":
                nn.init.zeros_(layer.weight)
                layer.weight.requires_grad_(False)
            return layer

        names["DynamicConv"] = mixer
        return round(names["restored"]("DynamicConv", "DynamicConv", seed, steps), 3)

    return {
        f"{kind}, {width} letters" + (", 800 updates" if steps == 800 else ""): [
            share(kind, width, seed, steps) for seed in range(3)
        ]
        for steps in (200, 800)
        for width in (3, 7)
        for kind in ("equal", "LightConv", "DynamicConv")
    }


def recipe() -> dict[str, Any]:
    """Return after how many updates lesson 23's models know the form, and their last losses.

    They know it at the first loss below 1.8. A fresh m starts at 0, and the rate is divided by
    what Adam's count of 60 earlier updates leaves out of its divisor.
    """
    names = definitions("23_recipe", "EINS", "ZEHN", "ONE", "TEN", "FIXED", "WORDS")
    update, rate = names["make_updates"], names["no_warmup"]

    def losses(filled: str, seed: int) -> list[float]:
        model = names["new_model"](seed)
        optimizer = names["adam"](model)
        if filled:
            update(model, optimizer, lambda u: 0.0, seed, -60, 0)
        if filled != "v":
            return update(model, optimizer, rate, seed, 0, 120)
        for state in optimizer.state.values():
            state["exp_avg"].zero_()  # m
        return update(model, optimizer, lambda u: rate(u) / (1 - 0.9 ** (u + 1)), seed, 0, 120)

    numbers: dict[str, Any] = {}
    for filled, what in (("", "nothing"), ("v", "v"), ("mv", "m and v")):
        runs = [losses(filled, seed) for seed in (1, 2, 3)]
        numbers[f"filled {what}"] = {
            "updates": [next((u for u, x in enumerate(run) if x < 1.8), None) for run in runs],
            "last losses": [round(sum(run[-10:]) / 10, 2) for run in runs],
        }
    return numbers


def warmup() -> dict[str, Any]:
    """Return the last losses of lesson 23's models that get a rate without a warm-up.

    For two peaks, of untrained models and of models that have had 40 updates of the warm-up, with
    a new Adam or with the one that the model has been warmed up with.
    """
    names = definitions("23_recipe", "EINS", "ZEHN", "ONE", "TEN", "FIXED", "WORDS")
    update, rate = names["make_updates"], names["cosine_rate"]

    def loss(warmed: bool, kept: bool, peak: float, seed: int) -> float:
        model = names["new_model"](seed)
        optimizer = names["adam"](model)
        start = 40 if warmed else 0
        update(model, optimizer, rate, seed, 0, start)
        if not kept:
            optimizer = names["adam"](model)

        def falling(u: int) -> float:
            return float(rate(u - start, peak=peak, warmup=0))

        losses = update(model, optimizer, falling, seed, start, start + 120)
        return round(sum(losses[-10:]) / 10, 2)

    return {what: [loss(*how, seed) for seed in (1, 2, 3)] for what, how in WARMED.items()}


def descent() -> dict[str, Any]:
    """Return the share of digits that lesson 23's models get right after gradient descent.

    For two peaks, with a warm-up and without one.
    """
    names = definitions("23_recipe", "EINS", "ZEHN", "ONE", "TEN", "FIXED", "WORDS")

    def share(peak: float, warmup: int, seed: int) -> float:
        model = names["new_model"](seed)
        rate = partial(names["cosine_rate"], peak=peak, warmup=warmup)
        names["full_run"](model, seed, make=names["descent"], rate=rate)
        return round(names["digits_right"](model), 2)

    return {
        what: [share(*how, seed) for seed in (1, 2, 3, 4, 5, 6)] for what, how in DESCENTS.items()
    }


def forgetting() -> dict[str, Any]:
    """Return the scores of lesson 33's layers, and of the word that counts, for three seeds."""
    names = definitions("33_forgetting")
    Reader, teach, deal = (names[name] for name in ("Reader", "teach_reader", "deal"))
    numbers: dict[str, Any] = {}

    def train(what: str, build: Callable[[], nn.Module], late: int) -> list[nn.Module]:
        readers = [teach(build, late, seed) for seed in range(3)]
        errors = [names["error"](reader, late, 2000, 99_999).item() for reader in readers]
        numbers[what] = [round(1 - each, 3) for each in errors]
        return readers

    for late, task in enumerate(("the marked word", "the word after the mark")):
        for conv, width in ((False, "no convolution"), (True, "convolution of 4")):
            for chosen, decay in ((False, "fixed"), (True, "chosen")):
                what = f"{task}, {width}, decay {decay}"
                readers = train(what, partial(Reader, chosen, conv), late)
                if late and chosen and not conv:
                    alone = readers
    train("the word after the mark, two layers, decay chosen", names["Stack"], 1)
    x, answers = deal(2000, 1, 7)
    values, marks = x.unbind(dim=2)
    counts = (marks == 0) & (answers == torch.arange(64))
    numbers["the word that counts itself"] = [
        round(1 - (reader(x) - values)[counts].square().mean().item(), 3) for reader in alone
    ]
    return numbers


RECORDS = {
    "controls-attention": (
        "Share of gaps filled by lesson 03's models, and of the weights before the gap per head",
        [0, 1, 2, 3],
        attention,
    ),
    "controls-gates": (
        "Losses in nats of lesson 05's models for other numbers of updates and other rates",
        [0, 1, 2],
        gates,
    ),
    "controls-dropconnect": (
        "Bits per letter of lesson 08's models under two laws, in batches of 8 and 64 passages",
        [0, 1, 2, 3, 4, 5],
        dropconnect,
    ),
    "controls-normalizers": (
        "Bits per letter of lesson 12's models, other settings",
        [0, 1, 2],
        normalizers,
    ),
    "controls-averaging": (
        "Share of vowels restored by lesson 13's models whose decoders attend, in 800 steps",
        [0, 1],
        averaging,
    ),
    "controls-averaging-alone": (
        "Share of vowels restored by lesson 13's models without attention, other settings",
        [0, 1],
        averaging_alone,
    ),
    "controls-averaging-long": (
        "Share of vowels restored by lesson 13's models whose decoders attend, in 2,400 steps",
        [0],
        averaging_long,
    ),
    "controls-averaging-widths": (
        "Share of vowels restored by lesson 13's models, by weights and width of the encoder",
        [0, 1, 2],
        averaging_widths,
    ),
    "controls-recipe": (
        "Updates until lesson 23's models know the form of a sentence, and losses at the end",
        [1, 2, 3],
        recipe,
    ),
    "controls-warmup": (
        "Last losses of lesson 23's models at rates without a warm-up, by what had one",
        [1, 2, 3],
        warmup,
    ),
    "controls-descent": (
        "Share of digits that lesson 23's models get right after gradient descent with momentum",
        [1, 2, 3, 4, 5, 6],
        descent,
    ),
    "controls-forgetting": (
        "Scores of lesson 33's layers: 1 minus the mean squared error",
        [0, 1, 2],
        forgetting,
    ),
}


def main() -> None:
    """Run the controls and record them."""
    torch.set_num_threads(1)  # enough for models as small as these
    for name, (what, seeds, controls) in RECORDS.items():
        entry = ledger.entry(what, COMMAND, {}, seeds=seeds)
        entry["numbers"] = controls()
        ledger.write(data_dir() / f"results/{name}.json", entry)


if __name__ == "__main__":
    run_tool(main)
