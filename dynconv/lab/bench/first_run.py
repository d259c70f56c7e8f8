"""`dynconv bench first-run`: everything that only a GPU can show, step by step.

Each step is a command that fits into ten minutes. It writes its output to FOLDER/STEP.log while it
runs, and FOLDER/STEP.json when it ends. A step without a record that says it succeeded is run by
the next call, so calls may be as short as a GPU is lent for.

Without a GPU, the same commands run on the CPU with small sizes, except those that train: to show
that they work before a GPU is lent. Their numbers mean nothing, so they go to a new folder in the
system's temporary one.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch

from dynconv.lab import ledger
from dynconv.paths import find_checkout

LIMIT = 570.0
"""seconds after which a step is ended"""
TAIL = 40
"""last lines of a step's output in its record"""
RECIPE = "wmt16-en-de-dynamic"
SMALL = {
    "cuda": "cpu",
    "1000": "2x9x8x2",
    "112x32x1024x16": "2x8x16x2",
}
"""arguments of the steps, and what replaces them on a CPU"""


class Step(NamedTuple):
    """One command, in whose arguments {folder} is the folder of the results."""

    name: str
    what: str
    command: tuple[str, ...]


def dynconv_command(arguments: str) -> tuple[str, ...]:
    """Return the command line of `dynconv` with these arguments, in this Python."""
    return (sys.executable, "-m", "dynconv", *shlex.split(arguments))


def all_steps() -> list[Step]:
    """Return the steps, the most informative first."""
    pytest = (sys.executable, *shlex.split("-m pytest -o addopts= -p no:cacheprovider -q -m gpu"))
    if find_spec("xdist"):
        pytest += ("-n", str(min(12, os.cpu_count() or 1)), "--dist", "load")
    kernels = "bench kernels --output {folder}/"
    small = "--kernel-sizes 7 --dtypes float32 --rounds 1"
    tool = ("compute-sanitizer", "--error-exitcode", "1", "--tool")
    profile = shlex.split(
        "ncu --clock-control none --launch-count 60 --kernel-name regex:conv|talk "
        "--section SpeedOfLight --section SchedulerStats --section WarpStateStats "
        "--section Occupancy --section MemoryWorkloadAnalysis"
    )
    steps = [
        Step("doctor", "what is installed, and what auto chooses", dynconv_command("doctor")),
        Step("tests", "the tests that need a GPU", pytest),
    ]
    for name, shape in (("1000", "1000"), ("wmt", "112x32x1024x16")):
        rows = f"kernels-{name}-rows.json --shapes {shape} --kernel-sizes 3 31"
        what = "the CUDA kernels, checked and timed"
        steps.append(Step(f"kernels-{name}", what, dynconv_command(kernels + rows)))
    for name, shape in (("1000", "1000"), ("wmt", "112x32x1024x16")):
        what = "all implementations of the operators, beside a copy and PyTorch's attention"
        rows = f"--output {{folder}}/ops-{name}-rows.json --shapes {shape} --rounds 3"
        command = dynconv_command(f"bench ops --device cuda --dtype bfloat16 {rows}")
        steps.append(Step(f"ops-{name}", what, command))
    for tokens, batches in ((3584, 16), (28672, 2), (57344, 1)):
        name = f"train-{tokens}x{batches}"
        command = dynconv_command(
            f"bench train {RECIPE} train.batch_tokens={tokens} train.accumulate={batches} "
            f"--synthetic 40000 --updates 12 --output {{folder}}/{name}-numbers.json"
        )
        steps.append(Step(name, "where the time of an update goes", command))
    demo = dynconv_command("train help-de-en-dynamic --run runs/first-run")
    steps.append(Step("demo", "the demo's recipe to its end", demo))
    steps.append(Step("demo-bleu", "its test BLEU", dynconv_command("evaluate runs/first-run")))
    for check, shape in (("racecheck", "1x40x128x2"), ("memcheck", "2x33x102x6")):
        checked = dynconv_command(f"{kernels}{check}-rows.json --shapes {shape} {small}")
        steps.append(Step(check, f"{check} of the kernels", (*tool, check, *checked)))
    rows = "profile-rows.json --shapes 1000 --kernel-sizes 31 --dtypes bfloat16 --rounds 1"
    what = "the kernels under Nsight Compute; its times of the kernels are void"
    steps.append(Step("profile", what, (*profile, *dynconv_command(kernels + rows))))
    return steps if find_checkout() else [step for step in steps if step.name != "tests"]


def on_cpu(step: Step) -> Step | None:
    """Return the step with small sizes on a CPU, or None if it needs a GPU or trains.

    The CUDA kernels are predicted instead of run, and the tests that need a GPU are skipped.
    """
    if step.command[0] != sys.executable or step.name.startswith(("train", "demo")):
        return None
    command = [SMALL.get(part, part) for part in step.command]
    if "kernels" in command:
        command.append("--predict")
    return step._replace(command=tuple(command))


def first_run(folder: Path | None, limit: int | None, say: Callable[[str], None]) -> int:
    """Run the steps that are left, `limit` at most; return how many have failed."""
    steps = all_steps()
    if torch.cuda.is_available():
        device = ledger.slug(torch.cuda.get_device_name())
        folder = folder or ledger.results_folder() / f"first-run-{device}"
        return run_pending(steps, folder, limit, say)
    say("no GPU here: the steps run on the CPU with small sizes, to show that their commands work")
    small = {step.name: on_cpu(step) for step in steps}
    for name, step in small.items():
        if step is None:
            say(f"{name}: left out on a CPU")
    folder = folder or Path(tempfile.mkdtemp(prefix="dynconv-first-run-"))
    return run_pending([step for step in small.values() if step], folder, limit, say)


def run_pending(
    steps: Sequence[Step], folder: Path, limit: int | None, say: Callable[[str], None]
) -> int:
    """Run the steps that have not succeeded yet, those that have failed last."""
    folder.mkdir(parents=True, exist_ok=True)
    codes = {step.name: last_code(folder, step) for step in steps}
    left = [step for step in steps if codes[step.name] != 0]
    left.sort(key=lambda step: codes[step.name] is not None)
    say(f"{len(steps) - len(left)} of {len(steps)} steps are done; results go to {folder}")
    for step in left[:limit]:
        if shutil.which(step.command[0]) is None:
            say(f"{step.name}: left out, there is no {step.command[0]} here")
            continue
        code, seconds = run_step(step, folder)
        codes[step.name] = code
        say(f"{step.name}: {f'FAILED with {code}' if code else 'done'} in {seconds:.0f} s")
        if code:
            log = folder / f"{step.name}.log"
            *_, last = ["no output", *log.read_text("utf-8", errors="replace").split("\n")[:-1]]
            say(f"    {log} ends: {last}")
    failed = [step.name for step in steps if codes[step.name]]
    missing = [step.name for step in steps if codes[step.name] is None]
    if failed or missing:
        say(f"failed: {', '.join(failed) or 'none'}; not run: {', '.join(missing) or 'none'}")
    return len(failed)


def last_code(folder: Path, step: Step) -> int | None:
    """Return the exit status of a step's last run, or None if it has not finished."""
    path = folder / f"{step.name}.json"
    return ledger.read_file(path)["numbers"]["exit_status"] if path.exists() else None


def run_step(step: Step, folder: Path) -> tuple[int, float]:
    """Run one step and record it; return its exit status and seconds."""
    command = [argument.format(folder=folder) for argument in step.command]
    shown = shlex.join(["python" if part == sys.executable else part for part in command])
    versions = {"cuda": torch.version.cuda or "none"}
    record = ledger.new_record(step.what, shown, {}, versions=versions)
    log = folder / f"{step.name}.log"
    start = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=find_checkout(),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT)
        except BaseException as error:  # its own processes end with it, also at ctrl-C
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code = 124  # the exit status of `timeout`
    seconds = time.perf_counter() - start
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    record["numbers"] = {"exit_status": code, "seconds": round(seconds, 1), "output": lines[-TAIL:]}
    ledger.write(folder / f"{step.name}.json", record)
    return code, seconds
