"""`dynconv bench recall`: trains stacks of mixers to look up key-value pairs, and counts how many.

Multi-query associative recall (Arora et al. 2023): a sequence lists D pairs of a key and a value,
then each key again in random order, and the model says which value belongs to it. The pair in
question is at no fixed distance, so a kernel that depends on the position, or on the query alone,
cannot point to it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from typing_extensions import TypedDict

from dynconv.config import LanguageModelConfig
from dynconv.config.stack import StackConfig
from dynconv.errors import UserError, quoted
from dynconv.files import read_json
from dynconv.lab import ledger
from dynconv.models import LanguageModel, build
from dynconv.models.mixers import require_mixer
from dynconv.schema import Number, PositiveInt, validated_content

KEYS = 64
"""the number of different keys, and also of values, by default"""
ROWS = 64
"""sequences in a batch"""
UPDATES_PER_TEST = 100
"""updates between two measurements of the accuracy"""
SOLVED = 0.995
"""accuracy at which training ends early"""


class RecallResult(TypedDict):
    """The accuracies of a stack of mixers for one number of pairs, one per seed."""

    stack: str
    pairs: PositiveInt
    lr: Number
    accuracy: list[Number]
    updates: list[PositiveInt]


class RecallNumbers(TypedDict):
    """The `numbers` of a record of `dynconv bench recall`."""

    results: list[RecallResult]


def draw_sequences(
    rows: int, pairs: int, generator: torch.Generator, keys: int = KEYS
) -> tuple[Tensor, Tensor]:
    """Return tokens (rows, 3 * pairs) and the values (rows, pairs) that its last third asks for.

    Keys are tokens 1 to `keys`, each at most once in a sequence; values are the `keys` after them.
    """
    listed = torch.rand(rows, keys, generator=generator).argsort(1)[:, :pairs] + 1
    values = torch.randint(keys + 1, 2 * keys + 1, (rows, pairs), generator=generator)
    order = torch.rand(rows, pairs, generator=generator).argsort(1)
    tokens = torch.cat([torch.stack([listed, values], 2).flatten(1), listed.gather(1, order)], 1)
    return tokens, values.gather(1, order)


def build_stack(
    mixers: Sequence[str], pairs: int, keys: int = KEYS, heads: int = 4
) -> LanguageModel:
    """Build a language model of these mixers, whose windows cover the whole sequence."""
    cover = 3 * pairs | 1  # kernel sizes are odd
    sizes = [require_mixer(mixer).size_key for mixer in mixers]
    covers = {
        size: tuple(cover if takes == size else None for takes in sizes)
        for size in ("kernel_size", "reach")
        if size in sizes
    }
    stack = StackConfig(len(mixers), tuple(mixers), **covers)
    return build(
        LanguageModelConfig(
            vocab_size=2 * keys + 1,
            channels=64,
            ffn=128,
            heads=heads,
            decoder=stack,
            dropout=0.0,
            final_norm=True,
            embeddings="separate",
        )
    )


def measure_accuracy(
    model: LanguageModel, pairs: int, generator: torch.Generator, keys: int
) -> float:
    """Return the share of values that the model recalls in 16 new batches."""
    tokens, values = draw_sequences(16 * ROWS, pairs, generator, keys)
    with torch.inference_mode():
        found = model.output(model.hidden_states(tokens)[:, 2 * pairs :]).argmax(-1)
    return (found == values).float().mean().item()


def train_recall(
    mixers: Sequence[str], pairs: int, lr: float, updates: int, seed: int, keys: int = KEYS
) -> tuple[float, int]:
    """Train a stack, by Adam with warm-up and linear decay; return its accuracy and its updates."""
    torch.manual_seed(seed)
    model = build_stack(mixers, pairs, keys)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min((done + 1) / UPDATES_PER_TEST, 1 - done / updates)
    )
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.Generator().manual_seed(2**20 + seed)
    for done in range(1, updates + 1):
        tokens, values = draw_sequences(ROWS, pairs, generator, keys)
        hidden = model.hidden_states(tokens)[:, 2 * pairs :].flatten(0, 1)
        loss = model.nll(hidden, values.flatten()).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if done % UPDATES_PER_TEST == 0 or done == updates:
            recalled = measure_accuracy(model, pairs, held_out, keys)
            if recalled >= SOLVED:
                break
    return recalled, done


def bench_recall(
    stacks: Sequence[str],
    pairs: Sequence[int],
    rates: Sequence[float],
    *,
    keys: int,
    updates: int,
    seeds: int,
    output: Path | None,
    say: Callable[[str], None],
) -> None:
    """Train every stack for every number of pairs, and record its accuracy.

    stacks  mixers from bottom to top with + between them, such as dynamic+attention
    rates   learning rates to try with the first seed; the best also trains with the others

    Writes after every result; the same command goes on after the last one. Raises UserError for an
    unknown mixer and for more pairs than there are keys.
    """
    try:
        for stack in stacks:
            for mixer in stack.split("+"):
                require_mixer(mixer)
    except ValueError as error:
        raise UserError(f"--stacks {quoted(stack)}: {error}") from None
    if max(pairs) > keys:
        raise UserError(f"--pairs {max(pairs)}: there are only {keys} keys")
    output = ledger.output_path("recall", output)
    options = ["--stacks", *stacks, "--pairs", *pairs, "--lr", *rates]
    options += ["--updates", updates, "--seeds", seeds]
    options += ["--keys", keys] if keys != KEYS else []
    command = ledger.command_line("bench", "recall", *options)
    results: list[RecallResult] = []
    if output.exists():
        remedy = "remove it, and the measurement begins again"
        before = read_json(output, remedy)
        if before.get("command") == command:
            numbers = validated_content(RecallNumbers, before["numbers"], output, remedy)
            results = numbers["results"]
    what = "Accuracy of small language models in multi-query associative recall"
    record = ledger.new_record(what, command, {"results": results}, seeds=range(1, seeds + 1))
    known = {(result["stack"], result["pairs"]) for result in results}
    for stack in stacks:
        for count in pairs:
            if (stack, count) not in known:
                results.append(measure_recall(stack, count, rates, updates, seeds, keys))
                ledger.write(output, record)
                say(format_result(results[-1]))
    say(f"written to {output}")


def measure_recall(
    stack: str, pairs: int, rates: Sequence[float], updates: int, seeds: int, keys: int
) -> RecallResult:
    """Choose a learning rate with seed 1; return the accuracies and updates of all seeds."""
    mixers = stack.split("+")

    def train(lr: float, seed: int) -> tuple[float, int]:
        return train_recall(mixers, pairs, lr, updates, seed, keys)

    tried = {lr: train(lr, seed=1) for lr in rates}
    lr = max(tried, key=lambda lr: (tried[lr][0], -tried[lr][1]))
    runs = [tried[lr], *(train(lr, seed) for seed in range(2, seeds + 1))]
    return {
        "stack": stack,
        "pairs": pairs,
        "lr": lr,
        "accuracy": [round(accuracy, 4) for accuracy, _ in runs],
        "updates": [done for _, done in runs],
    }


def format_result(result: RecallResult) -> str:
    """Return a result as one line."""
    found = ", ".join(f"{accuracy:.1%}" for accuracy in result["accuracy"])
    return f"{result['stack']:<20} {result['pairs']:>3} pairs  lr {result['lr']:g}  {found}"
