"""With no C compiler, or one that fails, everything else works and says what is missed."""

import os
import re
import stat
import subprocess
import sys

import pytest
import torch

from dynconv import ops
from dynconv.cli.doctor import report
from dynconv.kernels.cpu import build as native
from dynconv.kernels.cuda import build as cuda

X, WEIGHT = torch.randn(2, 5, 16), torch.randn(2, 3)


def forget() -> None:
    """What was found out about this machine."""
    for function in vars(native).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def said() -> str:
    """The doctor's report, without line breaks."""
    return " ".join(report().split())


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine whose cache of libraries is empty; its compiler is yours to set: machine(CC)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def compiler(path: str) -> None:
        monkeypatch.setenv("CC", path)
        forget()

    forget()
    yield compiler
    forget()


def script(tmp_path, text: str) -> str:
    """An executable that stands for a compiler."""
    path = tmp_path / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def quick(tmp_path) -> str:
    """The machine's own compiler, which here need not optimise."""
    return script(tmp_path, f'exec {native.find_compiler()} "$@" -O0')


def native_is_refused(words: str) -> None:
    """By name, in every operator, with these words; "auto" gives what PyTorch's ways give."""
    for name in ("depthwise_conv", "light_conv", "dynamic_conv", "talk_conv", "cumulative_mean"):
        assert "native" not in ops.implementations(name)
    for call in (
        lambda impl: ops.depthwise_conv(X, WEIGHT.repeat(8, 1), pad_left=2, impl=impl),
        lambda impl: ops.light_conv(X, WEIGHT, pad_left=2, impl=impl),
        lambda impl: ops.dynamic_conv(X, WEIGHT.expand(2, 5, 2, 3), pad_left=2, impl=impl),
        lambda impl: ops.talk_conv(X, X[..., :2].abs(), None, max_left=3, max_right=0, impl=impl),
        lambda impl: ops.cumulative_mean(X, impl=impl),
    ):
        torch.testing.assert_close(call("auto"), call("loop"))
        with pytest.raises(ValueError, match=words) as caught:
            call("native")
        assert str(caught.value).startswith("impl='native' cannot run: ")
        assert "\n" not in str(caught.value)


def test_no_compiler(machine):
    machine("/nonexistent/cc")
    native_is_refused(r"no C compiler \(/nonexistent/cc\): install one, .* 'apt install gcc'")
    text = said()
    assert f"The C kernels (impl='native') cannot run: {native.missing()}." in text
    assert "Everything works without them, in PyTorch alone, but more slowly" in text
    assert "talk_conv loop, window, table, blocked cumulative_mean" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "echo 'no room left' >&2; echo 'more of it' >&2; exit 1",
            "/compiler cannot .*: no room left$",
        ),
        ("exit 1", "/compiler cannot build the C kernels: no message$"),
        ("exit 0", "C kernels"),  # and writes nothing
    ],
    ids=["message", "silent", "idle"],
)
def test_compiler_that_fails(machine, tmp_path, text, words):
    machine(script(tmp_path, text))
    native_is_refused(words)
    assert f"cannot run: {native.missing()}." in said()
    assert not list((tmp_path / "cache").rglob("*.so"))


@pytest.mark.skipif(native.missing() is not None, reason=str(native.missing()))
class TestWithACompiler:
    """What is kept in the cache, and what happens where nothing can be kept."""

    def test_cache_that_cannot_be_written(self, machine, monkeypatch, tmp_path):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        native_is_refused("file/dynconv")
        assert f"cannot run: {native.missing()}." in said()

    def test_library_that_cannot_be_loaded(self, machine, monkeypatch):
        """Broken, or where no program may be run from."""

        def build(compiler, define, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"half a library")

        monkeypatch.setattr(native, "build", build)
        native_is_refused("float32.so")
        assert f"cannot run: {native.missing()}." in said()

    def test_library_is_built_once(self, machine, tmp_path):
        machine(quick(tmp_path))
        out = ops.light_conv(X, WEIGHT, pad_left=2, impl="native")
        (path,) = native.cache_directory().iterdir()
        built = path.stat().st_mtime_ns
        forget()
        assert torch.equal(ops.light_conv(X, WEIGHT, pad_left=2, impl="native"), out)
        assert [path] == list(native.cache_directory().iterdir())
        assert path.stat().st_mtime_ns == built
        text = said()
        assert native.find_compiler() in text and str(native.cache_directory()) in text

    def test_other_source_compiler_or_processor_is_another_library(
        self, machine, monkeypatch, tmp_path
    ):
        """The name of a library is a digest of all that it depends on."""
        names = set()

        def build(compiler, define, path):
            names.add(path.name)
            raise native.NoKernels("only its name is wanted")

        def look(dtype=torch.float32):
            forget()
            with pytest.raises(native.NoKernels, match="only its name"):
                native.library(dtype)
            return len(names)

        monkeypatch.setattr(native, "build", build)
        assert look() == 1 and look() == 1
        assert look(torch.bfloat16) == 2
        copied = tmp_path / "cpu"
        copied.mkdir()
        sources = sorted(native.SOURCES.glob("*.[ch]"))
        for source in sources:
            (copied / source.name).write_bytes(source.read_bytes())
        monkeypatch.setattr(native, "SOURCES", copied)
        assert look() == 2  # the same sources elsewhere
        for count, source in enumerate(sources, 3):
            with (copied / source.name).open("a") as file:
                file.write("// changed\n")
            assert look() == count, source.name
        count = len(names)
        monkeypatch.setattr(native, "processor", lambda: "another")
        assert look() == count + 1
        monkeypatch.setattr(native, "find_compiler", lambda: "/usr/bin/another")
        assert look() == count + 2

    def test_two_processes_may_build_at_once(self, tmp_path):
        folder = tmp_path / "cache"
        program = (
            "import sys, torch; from dynconv import ops; sys.stdin.readline();"
            "print(ops.cumulative_mean(torch.ones(1, 3, 4), impl='native').sum().item())"
        )
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program],
                env=os.environ | {"XDG_CACHE_HOME": str(folder), "CC": quick(tmp_path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            out, error = process.communicate(timeout=120)
            assert out == "12.0\n", error
        assert len(list((folder / "dynconv").iterdir())) == 1  # and no folder is left


def test_doctor_tries_a_cuda_kernel(monkeypatch):
    ones, outcome = torch.ones, []
    monkeypatch.setattr(cuda, "missing", lambda: None)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: ones(*shape))

    def light_conv(x, weight, *, pad_left, impl):
        if outcome:
            raise cuda.NoGpuKernels(outcome[0])
        assert impl == "cuda"
        return x

    monkeypatch.setattr(ops, "light_conv", light_conv)
    monkeypatch.setattr(cuda, "architecture", lambda index: "sm_90")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H100")
    monkeypatch.setattr(cuda, "verified_architectures", dict)
    text = said()
    assert re.search(r"CuPy compiled the first one in \d\.\d s", text)
    assert "cuda:0 NVIDIA H100, sm_90" in text
    assert "have passed: none so far; `pytest -m gpu` runs them." in text
    assert "This GPU is sm_90, so impl='cuda' must ask for them." in text
    monkeypatch.setattr(cuda, "verified_architectures", lambda: {"sm_80": 1, "sm_90": 2})
    text = said()
    assert "have passed: sm_80, sm_90. This GPU is sm_90, so it chooses them." in text
    outcome.append("no image for this architecture")
    text = said()
    assert "The CUDA kernels (impl='cuda') fail here: no image for this architecture." in text
