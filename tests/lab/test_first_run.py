"""`dynconv bench first-run`: steps are recorded, and a later call goes on where one ended."""

import fcntl
import shutil
import sys

import torch

from dynconv import cli
from dynconv.lab import ledger
from dynconv.lab.bench import first_run as module
from dynconv.lab.bench.first_run import Step, all_steps, on_cpu, run_pending


def python(name: str, program: str) -> Step:
    return Step(name, "a test", (sys.executable, "-c", program))


def test_steps_are_recorded_and_done_once(tmp_path):
    said, marks = [], tmp_path / "marks"
    mark = f"open({str(marks)!r}, 'a').write('x'); print('hello')"
    steps = [python("one", mark), python("two", mark)]
    folder = tmp_path / "results"
    assert run_pending(steps, folder, 1, said.append) == 0
    assert marks.read_text() == "x" and "not run: two" in said[-1]
    assert run_pending(steps, folder, None, said.append) == 0
    assert run_pending(steps, folder, None, said.append) == 0
    assert marks.read_text() == "xx" and said[-1].startswith("2 of 2 steps are done")
    record = ledger.read_file(folder / "one.json")
    assert record["numbers"]["exit_status"] == 0 and record["numbers"]["output"] == ["hello"]
    assert record["command"].startswith("python -c") and {"device", "date"} <= record.keys()
    assert {"python", "torch", "cuda"} <= record["versions"].keys()


def test_a_failed_step_is_repeated_after_those_that_have_not_run(tmp_path):
    repaired = tmp_path / "repaired"
    bad = f"import os, sys; print('oh'); sys.exit(0 if os.path.exists({str(repaired)!r}) else 3)"
    steps = [python("bad", bad), python("good", "")]
    said = []
    assert run_pending(steps, tmp_path, 1, said.append) == 1
    assert said[2] == f"    {tmp_path / 'bad.log'} ends: oh"
    assert "bad: FAILED with 3" in said[1] and "failed: bad; not run: good" in said[-1]
    assert run_pending(steps, tmp_path, 1, said.append) == 1
    assert said[-2].startswith("good: done")
    repaired.touch()
    assert run_pending(steps, tmp_path, None, said.append) == 0


def test_a_step_ends_with_its_processes_when_its_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LIMIT", 3.0)
    late = tmp_path / "late"
    child = (
        f"import fcntl, time; file = open({str(late)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX); "
        "time.sleep(20); file.write('late')"
    )
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    said = []
    assert run_pending([python("slow", program)], tmp_path, None, said.append) == 1
    assert "slow: FAILED with 124" in said[1]
    with late.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # when the child has ended
        assert file.read() == ""


def test_what_a_missing_tool_would_do_is_left_out(tmp_path):
    said = []
    assert run_pending([Step("x", "a test", ("no-such-tool",))], tmp_path, None, said.append) == 0
    assert said[1] == "x: left out, there is no no-such-tool here" and "not run: x" in said[2]


def test_without_a_gpu_the_commands_run_small_on_the_cpu(tmp_path, capsys, monkeypatch):
    """Those of two steps here, which take seconds; the next call has nothing left to do."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    chosen = [step for step in all_steps() if step.name in ("doctor", "ops-1000", "memcheck")]
    monkeypatch.setattr(module, "all_steps", lambda: chosen)
    assert cli.main(["bench", "first-run", "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("no GPU here") and said[1] == "memcheck: left out on a CPU"
    assert [line.split(" in ")[0] for line in said[3:]] == ["doctor: done", "ops-1000: done"]
    assert cli.main(["bench", "first-run", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("2 of 2 steps are done")
    (shape,) = ledger.read_file(tmp_path / "ops-1000-rows.json")["numbers"]["shapes"]
    timed = {(row["operator"], row["impl"]) for row in shape["results"] if "forward" in row}
    assert {("attention", None), ("light_conv", "conv1d"), ("talk_conv", "table")} <= timed


def test_no_step_on_a_cpu_has_the_sizes_of_a_gpu():
    steps = {step.name: on_cpu(step) for step in all_steps()}
    left_out = [name for name, step in steps.items() if step is None]
    training = [name for name in steps if name.startswith(("train", "demo"))]
    assert left_out == [*training, "racecheck", "memcheck", "profile"]
    for step in filter(None, steps.values()):
        assert not set(step.command) & set(module.SMALL), step.name
        assert "cuda" not in step.command


def test_every_step_of_dynconv_can_be_parsed():
    """Their options exist; names are unique, and no file of a step is its record."""
    steps = all_steps()
    assert len({step.name for step in steps}) == len(steps)
    for step in [*steps, *filter(None, map(on_cpu, steps))]:
        if "dynconv" in step.command:
            arguments = step.command[step.command.index("dynconv") + 1 :]
            cli.make_parser().parse_args([argument.format(folder="f") for argument in arguments])
            outputs = [name for name in arguments if name.endswith(".json")]
            assert f"{{folder}}/{step.name}.json" not in outputs
        elif "pytest" in step.command:
            assert shutil.which(step.command[0])
