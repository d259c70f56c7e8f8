"""Several processes train the model that one would train, and when one fails all end, in words.

Tests of signals and of the command itself start torchrun, the others `run_ranks`, which is quicker.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from helpers.commands import command
from helpers.ranks import TRAIN, run_ranks
from helpers.training import weights

from dynconv import cli
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.events import read_log


def said(done: subprocess.CompletedProcess) -> list[str]:
    """The messages of dynconv among what torchrun prints."""
    return [line for line in done.stderr.splitlines() if line.startswith("dynconv: ")]


LONG = [
    "train.updates=20",
    "train.checkpoint_every=10",
    "model.dropout=0.1",
    "model.weight_dropout=0.1",
]


@pytest.mark.parametrize("size", [2, 4])
def test_n_ranks_train_the_model_of_one(prepared_recipe_file, tmp_path, size):
    """Parameter by parameter, with accumulation, batches of any size, and dropout."""
    settings = {
        processes: [
            str(prepared_recipe_file),
            *LONG,
            f"train.accumulate={2 * size // processes}",
            f"--run-dir={tmp_path / str(processes)}",
        ]
        for processes in (1, size)
    }
    assert cli.main(["train", *settings[1]]) == 0
    if size == 2:
        line = command(2, *settings[2])
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    else:
        done = run_ranks(size, tmp_path, TRAIN, *settings[size])
    assert done.returncode == 0, done.stderr
    one, many = weights(tmp_path / "1"), weights(tmp_path / f"{size}")
    assert one.keys() == many.keys()
    worst = max((one[name] - many[name]).abs().max().item() for name in one)
    assert worst < 1e-6
    logs = [read_log(tmp_path / name) for name in ("1", f"{size}")]
    assert [e["update"] for e in logs[0]] == [e["update"] for e in logs[1]]
    for a, b in zip(*logs, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a.get("score") == b.get("score")


GRADIENTS = """
import torch
from dynconv.config import load_recipe
from dynconv.models import build, loss
from dynconv.models.activation_checkpointing import set_activation_checkpointing
from dynconv.tasks import task_of
from dynconv.text import collate_pairs
from dynconv.train.data import DataPosition, UpdateBatches
from dynconv.train.distributed import join_processes
from dynconv.train.stopwatch import Stopwatch
from dynconv.train.update import BatchLoss, accumulate_gradients

small = ["model.vocab_size=300", "model.channels=32", "model.ffn=32", "model.heads=2"]
recipe = load_recipe("help-de-en-dynamic", [*small, "model.dropout=0.1"])
task = task_of(recipe)
with join_processes(60) as world:
    torch.manual_seed(0)
    model = build(recipe.model)
    # two batches on each rank, of other sentences on the other one
    batches = [
        collate_pairs(
            [([5 + i, 6, 7, 9 + world.rank], [8, 9 + i, 30]), ([5, 9], [7, 60 + i, 5, 8])]
        )
        for i in range(2)
    ]
    update = UpdateBatches(batches, [], [3, 4], 28, DataPosition())

    def gradients(precision, scale):
        model.zero_grad()
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=precision == "float16")
        loss_module = world.wrap(BatchLoss(model, task, precision))
        accumulate_gradients(loss_module, update, scaler, world, Stopwatch())
        parts = [p.grad.flatten() / scale for p in model.parameters()]
        return torch.cat(parts)

    cases = [("float32", 1.0, 1e-5), ("float16", 2.0**10, 5e-3)]
    plain = [gradients(precision, scale) for precision, scale, _ in cases]
    set_activation_checkpointing(model, True)
    loss.MAX_LOGITS = 2 * 300
    for (precision, scale, most), expected in zip(cases, plain):
        error = (gradients(precision, scale) - expected).norm() / expected.norm()
        if world.is_rank_zero:
            print(precision, "equal" if expected.norm() > 0 and error < most else error.item())
    first = gradients("float32", 1.0)
    same = all(torch.equal(first, other) for other in world.gather(first))
    if world.is_rank_zero:
        print("on all ranks" if same else "not on all ranks")
"""


def test_chunks_and_recomputation_change_no_gradient_on_two_ranks(tmp_path):
    """With accumulation, dropout, and the loss scale of float16: up to the order of sums."""
    done = run_ranks(2, tmp_path, GRADIENTS)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["float32 equal", "float16 equal", "on all ranks"]


SCRIPT = """
import os, sys
rank = int(os.environ["RANK"])
{body}
from dynconv.cli import main
sys.exit(main(["train", *sys.argv[1:], *more]))
"""


def run_script(tmp_path, body: str, *arguments, succeeds=False) -> subprocess.CompletedProcess:
    """The same command on 2 ranks, after some lines of Python that set `more` arguments."""
    done = run_ranks(2, tmp_path, SCRIPT.format(body=body), *arguments)
    assert (done.returncode == 0) == succeeds, done.stderr
    return done


def test_ranks_that_disagree_about_the_recipe(prepared_recipe_file, tmp_path):
    body = 'more = [f"train.lr={1 + rank}e-3", f"train.accumulate={1 + rank}"]'
    (line,) = said(run_script(tmp_path, body, prepared_recipe_file, "--run-dir", tmp_path / "gloo"))
    assert "process 1 (on " in line
    assert "disagree: train.accumulate 2, not 1; train.lr 0.002, not 0.001" in line
    assert not (tmp_path / "gloo").exists()


def test_ranks_that_disagree_about_the_vocabulary(prepared_recipe_file, prepared, corpus, tmp_path):
    from dynconv.text import encode_corpus

    turned = tmp_path / "turned"
    turned.mkdir()
    for file in corpus.iterdir():
        (turned / file.name).write_text(file.read_text(encoding="utf-8").upper(), encoding="utf-8")
    other = tmp_path / "there" / "prepared"
    other.parent.mkdir()
    encode_corpus(str(turned), "de", "en", 300, other)
    here = tmp_path / "here" / "prepared"
    here.parent.mkdir()
    here.symlink_to(prepared.directory)
    # The same relative name on two machines with disks of their own.
    body = (
        f'os.chdir("{tmp_path}/" + ("there" if rank else "here")); more = ["data.corpus=prepared"]'
    )
    (line,) = said(run_script(tmp_path, body, prepared_recipe_file, "--run-dir", tmp_path / "run"))
    assert "the text in prepared has another vocabulary" in line


def test_a_machine_without_its_gpus(prepared_recipe_file, tmp_path):
    body = """
import torch
from dynconv.train import distributed
distributed.local_device = lambda *_: torch.device("cpu" if rank else "cuda:0")
more = []
"""
    (line,) = said(run_script(tmp_path, body, prepared_recipe_file, "--run-dir", tmp_path / "run"))
    assert "disagree: one has cpu, the other cuda" in line


def test_a_run_directory_that_is_not_shared(prepared_recipe_file, tmp_path):
    body = f'os.chdir("{tmp_path}/" + str(rank)); more = ["--run-dir", "run"]'
    for rank in range(2):
        (tmp_path / f"{rank}").mkdir()
    (line,) = said(run_script(tmp_path, body, prepared_recipe_file))
    assert "run: this process does not see the run directory of process 0" in line


def test_a_full_disk_stops_all_and_leaves_a_checkpoint(prepared_recipe_file, tmp_path):
    body = """
from dynconv.train import checkpoint_store
def full(path, data):
    if "000010" in str(path):
        raise OSError(28, "No space left on device")
    write(path, data)
write, checkpoint_store.write_through = checkpoint_store.write_through, full
more = []
"""
    (line,) = said(run_script(tmp_path, body, prepared_recipe_file, "--run-dir", tmp_path / "run"))
    assert "000010: cannot be written (No space left on device)" in line
    assert weights(tmp_path / "run", "000005")


EIGHTH = """
import signal, time
from dynconv.train import update
def eighth(*arguments):
    calls.append(1)
    if rank == 1 and len(calls) == 8:
        {what}
    return backward(*arguments)
calls, backward, update.accumulate_gradients = [], update.accumulate_gradients, eighth
more = []
"""
"""what happens to rank 1 in its eighth update"""


def test_a_hung_rank_stops_all(prepared_recipe_file, tmp_path):
    # With its own handler of SIGTERM, torchrun would wait for 30 s.
    hang = "signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(1000)"
    arguments = [prepared_recipe_file, "train.timeout=4", "--run-dir", tmp_path / "run"]
    (line,) = said(run_script(tmp_path, EIGHTH.format(what=hang), *arguments))
    assert "process 0 of 2 has lost another one, which died, hangs, or took longer" in line
    assert "train.timeout (4 s)" in line
    assert weights(tmp_path / "run", "000005")


def test_a_slow_preview_loses_no_process(prepared_recipe_file, tmp_path):
    """Only rank 0 makes it; the others wait, for longer than an update may take."""
    body = """
import time
from dynconv.tasks import Translation
def slow(*arguments):
    time.sleep(next(seconds, 0))
    return "slow"
seconds, Translation.preview = iter([6]), slow
more = []
"""
    arguments = [prepared_recipe_file, "train.timeout=4", "--run-dir", tmp_path / "run"]
    run_script(tmp_path, body, *arguments, succeeds=True)
    assert weights(tmp_path / "run", "000010")


def test_torchrun_restarts_after_a_dead_rank(prepared_recipe_file, tmp_path):
    die = "os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.kill(os.getpid(), signal.SIGKILL)"
    script = SCRIPT.format(body=EIGHTH.format(what=die))
    line = [prepared_recipe_file, "--run-dir", tmp_path / "run"]
    done = run_ranks(2, tmp_path, script, *line, restarts=1)
    assert done.returncode == 0, done.stderr
    assert "update 5 of 10; 2 processes on cpu" in done.stderr  # the second start
    assert len(said(done)) == 1 and "lost another one" in said(done)[0]
    whole = [prepared_recipe_file, "--run-dir", tmp_path / "whole"]
    assert run_ranks(2, tmp_path, TRAIN, *whole).returncode == 0
    ended, whole = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert all(torch.equal(ended[name], whole[name]) for name in whole)


def test_an_unreadable_corpus_is_one_message(prepared_recipe_file, prepared, tmp_path):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(prepared.directory, broken)
    with (broken / "train.tokens").open("r+b") as file:
        file.truncate(100)
    more = f"data.corpus={broken}", "--run-dir", tmp_path / "run"
    done = run_ranks(2, tmp_path, TRAIN, prepared_recipe_file, *more)
    assert done.returncode != 0
    (line,) = said(done)
    assert str(broken / "train.tokens") in line


@pytest.mark.parametrize("processes", [1, 2])
def test_sigterm_saves_and_ends(prepared_recipe_file, tmp_path, processes):
    folder = tmp_path / "run"
    line = command(
        processes, prepared_recipe_file, "train.updates=100000", "train.checkpoint_every=100000"
    )
    going = subprocess.Popen([*line, "--run-dir", folder], stderr=subprocess.PIPE, text=True)
    wait_for(folder / "log.jsonl", '"train"')
    going.send_signal(signal.SIGTERM)
    _, error = going.communicate(timeout=60)
    assert going.returncode == (143 if processes == 1 else 1)  # torchrun's own code
    saved = CheckpointStore(folder).choose("last")
    assert f"stopped at update {saved.meta['update']}, saved" in error
    assert saved.meta["update"] >= 20
    assert "Traceback" not in error or processes > 1  # torchrun prints its own


def test_a_closed_terminal_saves_and_ends(prepared_recipe_file, tmp_path):
    """The kernel sends SIGHUP then, and what is written to the terminal is an error."""
    folder, (terminal, end) = tmp_path / "run", os.openpty()
    line = command(1, prepared_recipe_file, "train.updates=100000", "train.checkpoint_every=100000")
    session = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    session += "os.execv(sys.argv[1], sys.argv[1:])"
    going = subprocess.Popen(
        [sys.executable, "-c", session, *map(str, line), "--run-dir", str(folder)],
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
    )
    os.close(end)
    os.set_blocking(terminal, False)
    log = folder / "log.jsonl"
    while not log.exists() or '"train"' not in log.read_text(encoding="utf-8"):
        assert going.poll() is None
        with suppress(BlockingIOError):
            os.read(terminal, 4096)  # or it would fill up
        time.sleep(0.02)
    os.close(terminal)
    assert going.wait(timeout=60) == 128 + signal.SIGHUP
    assert CheckpointStore(folder).choose("last").meta["update"] >= 20


def wait_for(path: Path, text: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not path.exists() or text not in path.read_text(encoding="utf-8"):
        assert time.monotonic() < end, f"{text} does not appear in {path}"
        time.sleep(0.02)
