"""Every implementation of every operator, beside a copy and beside attention."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from dynconv.errors import UserError
from dynconv.lab import ledger
from dynconv.lab.bench import table
from dynconv.lab.bench.cases import Shape, cases, foretell, parse_shape, pick
from dynconv.lab.bench.measure import Times, by_turns, peak, ratios, saving, spread
from dynconv.ops.registry import OPERATORS

LIMIT = min(8e9, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2)  # bytes


def measure(shape: Shape, K: int, chosen: dict[str, list[str]], rounds: int) -> dict:
    """The numbers of one shape, as they are written to the file."""
    from tqdm import tqdm

    needs = foretell(shape, K, chosen)
    entered = cases(shape, K, chosen)
    size = entered[0].inputs[0].nbytes
    fit = [case for case, need in zip(entered, needs, strict=True) if need <= LIMIT]
    runs, memory = {}, {}
    total = len(fit) + rounds * sum(1 + (case.gradient is not None) for case in fit)
    bar = tqdm(total=total, unit=" runs", disable=None, leave=False, desc=f"T = {shape.T:,}")
    with torch.no_grad(), bar:
        for case in fit:  # the first runs: they warm up, too
            forward, both = (case.name, "forward"), (case.name, "forward_backward")
            runs[forward] = case.forward
            memory[forward] = {"peak": peak(case.forward) / size}
            if case.gradient is not None:
                runs[both] = case.both
                with saving(case.inputs) as kept:
                    memory[both] = {"peak": peak(case.both) / size}
                memory[both]["saved"] = sum(kept.values()) / size
            bar.update()
        times = by_turns(runs, rounds, bar.update)
    results = []
    for case, need in zip(entered, needs, strict=True):
        row: dict = {"operator": case.operator, "impl": case.impl or None}
        if need > LIMIT:
            row["left_out"] = f"needs about {need / 1e9:.3g} GB, more than {LIMIT / 1e9:.3g} GB"
        row |= {
            part: four_digits(numbers(times, name, part) | memory[name, part])
            for name, part in times
            if name == case.name
        }
        results.append(row)
    return {**shape._asdict(), "x_bytes": size, "results": results}


def numbers(times: Times, name: str, part: str) -> dict:
    """Median and range, over the rounds, of a run's time and ratios; None without attention."""
    mine, attention = times[name, part], times.get(("attention", part), [])
    return {
        **spread("ms", [second * 1e3 for second in mine]),
        "rounds": len(mine),
        **spread("times_copy", ratios(mine, times["copy", "forward"])),
        **spread("attention_by_this", ratios(attention, mine)),
    }


def four_digits(values: dict) -> dict:
    """More than a time is good for."""

    def rounded(value):
        if isinstance(value, list):
            return [rounded(each) for each in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return {name: rounded(value) for name, value in values.items()}


def bench_ops(
    shapes: Sequence[str],
    operators: Sequence[str] | None,
    impls: Sequence[str] | None,
    *,
    kernel_size: int,
    rounds: int,
    output: Path | None,
) -> Iterator[str]:
    """Measure shape by shape, and write all numbers to `output`; yields what to print.

    The file is data/results/bench-ops.json by default, outside the repository bench-ops.json.
    """
    if kernel_size < 3 or kernel_size % 2 == 0:
        raise UserError(f"kernel size {kernel_size} must be odd and at least 3")
    sizes = [parse_shape(text) for text in shapes]
    chosen = pick(operators or list(OPERATORS), impls)
    output = ledger.path("bench-ops", output)
    threads = torch.get_num_threads()
    command = ["dynconv bench ops", "--shapes", ",".join(shapes), "--operators", ",".join(chosen)]
    command += ["--impl", ",".join(impls)] if impls else []
    command += [f"--kernel-size {kernel_size} --rounds {rounds} --threads {threads}"]
    numbers = {"threads": threads, "dtype": "float32", "kernel_size": kernel_size, "shapes": []}
    what = "operators, forward and with backward to all inputs, beside a copy and attention"
    report = ledger.entry(what, " ".join(command), numbers)
    yield table.header(report, rounds)
    for shape in sizes:
        found = measure(shape, kernel_size, chosen, rounds)
        numbers["shapes"].append(found)
        yield table.block(found)
    ledger.write(output, report)
    load = report["load"]
    yield f"\nload {load['before']} before, {load['after']} after; written to {output}"
