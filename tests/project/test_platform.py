"""Other systems and environments: a Python like that of Windows, locales, closed pipes."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import dynconv
from dynconv import cli
from dynconv.errors import out_of_memory_message
from dynconv.train import train

COMMAND = [sys.executable, "-m", "dynconv"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""a locale without umlauts, which Python does not replace"""

LIKE_WINDOWS = """
import os, pkgutil, signal, sys
import sacrebleu, tensorboard, tokenizers, torch.distributed  # they know both systems
for name in "crypt fcntl grp nis ossaudiodev pty pwd readline resource spwd syslog termios".split():
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
for name in ("fork", "getloadavg", "getuid", "killpg", "mkfifo", "nice", "sysconf"):
    delattr(os, name)
del signal.SIGHUP
"""


def python(program: str, *arguments, **environment) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    environment = os.environ | environment
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)


@pytest.fixture
def run(recipe, tmp_path) -> Path:
    train(recipe, tmp_path / "run")
    return tmp_path / "run"


def test_every_module_can_be_imported_without_what_windows_lacks():
    program = """
import dynconv
for module in pkgutil.walk_packages(dynconv.__path__, "dynconv."):
    if not module.name.startswith(("dynconv.__main__", "dynconv.teach")):  # teach is for lessons
        __import__(module.name)
"""
    done = python(LIKE_WINDOWS + program)
    assert done.returncode == 0, done.stderr


def test_without_what_windows_lacks_all_but_training_runs(run, recipe_file, corpus, tmp_path):
    program = """
from dynconv import cli
run, yaml, corpus, output = sys.argv[1:]
print(cli.main(["translate", run, "--input", f"{corpus}/test.de", "--output", output]))
print(cli.main(["train", yaml, "--run", output + "-run"]))
"""
    output = tmp_path / "out.en"
    done = python(LIKE_WINDOWS + program, run, recipe_file, corpus, output)
    assert done.stdout == "0\n2\n", done.stderr
    message = "this needs Python's module fcntl, which Windows lacks: use WSL"
    assert done.stderr == f"dynconv: {message}\n"
    assert len(output.read_text(encoding="utf-8").splitlines()) == 20
    assert not Path(f"{output}-run").exists()


def test_every_text_is_read_and_written_with_an_encoding(run, corpus):
    """The locale's own would be another one on Windows."""
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "always::EncodingWarning"]
    command += ["-m", "dynconv", "evaluate", str(run)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    package = str(Path(dynconv.__file__).parent)
    assert not [line for line in done.stderr.splitlines() if line.startswith(package)]


@pytest.mark.parametrize(
    "environment", [ASCII, {"PYTHONIOENCODING": "latin-1"}], ids=["C", "Latin-1"]
)
def test_translations_are_utf_8_in_any_locale(run, environment):
    program = """
from dynconv import cli
from dynconv.tasks import Translation
Translation.translate = lambda self, *trained: [f"{line} \\u017f \\u2192" for line in trained[-1]]
sys.exit(cli.main(["translate", sys.argv[1]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}", str(run)],
        input="weiß\n".encode(),
        capture_output=True,
        env=os.environ | environment,
    )
    assert done.stdout.decode() == "weiß ſ →\n", done.stderr


@pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["", "unbuffered"])
@pytest.mark.parametrize("words", ["--help", "--version", "train --help", "train --list"])
class TestOutput:
    """Where standard output cannot be written to."""

    def result(self, words, environment, **options) -> tuple[int, str]:
        own = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        command = [*COMMAND, *words.split()]
        options |= {"stderr": subprocess.PIPE, "encoding": "utf-8", "env": own | environment}
        done = subprocess.run(command, **options)
        return done.returncode, done.stderr

    def test_a_full_disk_is_reported(self, words, environment):
        with open("/dev/full", "w") as full:
            result = self.result(words, environment, stdout=full)
        assert result == (1, "dynconv: output: No space left on device\n")

    def test_a_reader_who_has_enough_hears_nothing(self, words, environment):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            assert self.result(words, environment, stdout=writing) == (141, "")
        finally:
            os.close(writing)


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        (1, "standard output is closed: send it to a file, or to /dev/null"),
        (0, "standard input is closed: give --input FILE"),
    ],
)
def test_a_closed_stream_is_reported(run, descriptor, message):
    command = [*COMMAND, "translate", str(run)]
    options = {"preexec_fn": lambda: os.close(descriptor), "stderr": subprocess.PIPE}
    done = subprocess.run(command, encoding="utf-8", **options)
    assert (done.returncode, done.stderr) == (2, f"dynconv: {message}\n")


def test_arguments_that_the_locale_cannot_encode():
    command = [*COMMAND, "train", "help-de-en-dynamic", "data.corpus=größe"]
    done = subprocess.run(command, capture_output=True, env=os.environ | ASCII)
    assert done.returncode == 2
    told = b"cannot be encoded in this locale: set PYTHONUTF8=1\n"
    assert done.stderr.startswith(b"dynconv: ") and done.stderr.endswith(told)
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "not enough memory"),
        (OSError(12, "Cannot allocate memory"), "not enough memory"),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:1] err == 0. DefaultCPUAllocator: can't allocate "
                "memory: you tried to allocate 64 bytes. Error code 12"
            ),
            "not enough memory (DefaultCPUAllocator: can't allocate memory: you tried to allocate "
            "64 bytes)",
        ),
        (ImportError("x.so: failed to map segment from shared object"), "not enough memory (x.so"),
    ],
)
def test_too_little_memory_is_reported(error, reason, monkeypatch, capsys):
    def listing():
        raise error

    monkeypatch.setattr("dynconv.cli.data.corpus_table", listing)
    assert cli.main(["data", "list"]) == 1
    line = capsys.readouterr().err
    assert line.startswith(f"dynconv: {reason}") and line.count("\n") == 1
    assert "lower --beam or the recipe's batch_tokens" in line
    assert out_of_memory_message(RuntimeError("sizes differ")) is None


def test_a_training_that_needs_too_much_memory(recipe_file, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    command = [
        *COMMAND,
        "train",
        str(recipe_file),
        "model.channels=200000",
        "--run",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", preexec_fn=limit)
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("dynconv: not enough memory (")
    assert "lower train.batch_tokens (now 400)" in line


def test_missing_variables_of_torchrun_are_named(recipe_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "of another program")
    monkeypatch.setenv("MASTER_PORT", "1")
    assert cli.main(["train", str(recipe_file), "--run", str(tmp_path / "run")]) == 2
    assert "but not RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR: start" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"dynconv {dynconv.__version__}\n"
