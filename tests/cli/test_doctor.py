"""Without a working C compiler, everything else works, and the doctor says what is missing."""

import os
import re
import shutil
import stat
from importlib import metadata
from pathlib import Path

import pytest
import torch
from helpers.forked import Forked, execute
from torch._subclasses.fake_tensor import FakeTensorMode

from dynconv import __version__, ops, paths
from dynconv.cli import doctor
from dynconv.cli.doctor import EXTRAS, describe_machine
from dynconv.cli.missing_package import list_requirements
from dynconv.kernels import compiler
from dynconv.kernels.cpu import build as cpu
from dynconv.kernels.cuda import build as cuda

X, WEIGHT = torch.randn(2, 5, 16), torch.randn(2, 3)


def forget() -> None:
    """What was found out about this machine."""
    for function in vars(cpu).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def said() -> str:
    """The doctor's report, without line breaks."""
    return " ".join(describe_machine().split())


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine whose cache of libraries is empty; its compiler is yours to set: machine(CC)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def choose(path: str) -> None:
        monkeypatch.setenv("CC", path)
        forget()

    forget()
    yield choose
    forget()


def script(tmp_path, text: str) -> str:
    """An executable that stands in for a compiler."""
    path = tmp_path / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def quick(tmp_path) -> str:
    """The machine's own compiler, which here need not optimise."""
    return script(tmp_path, f'exec {cpu.require_compiler()[0]} "$@" -O0')


@pytest.mark.parametrize(("threads", "words"), [(1, "1 thread"), (2, "2 threads")])
def test_it_counts_threads(threads, words, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert describe_machine().splitlines()[0].endswith(f", {words}")


def c_kernels_are_refused(words: str) -> None:
    """Every operator refuses impl="cpu" with these words, and "auto" falls back to PyTorch."""
    for name in ("depthwise_conv", "light_conv", "dynamic_conv", "talk_conv", "cumulative_mean"):
        assert "cpu" not in ops.implementations(name)
    for call in (
        lambda impl: ops.depthwise_conv(X, WEIGHT.repeat(8, 1), pad_left=2, impl=impl),
        lambda impl: ops.light_conv(X, WEIGHT, pad_left=2, impl=impl),
        lambda impl: ops.dynamic_conv(X, WEIGHT.expand(2, 5, 2, 3), pad_left=2, impl=impl),
        lambda impl: ops.talk_conv(X, X[..., :2].abs(), None, max_left=3, max_right=0, impl=impl),
        lambda impl: ops.cumulative_mean(X, impl=impl),
    ):
        torch.testing.assert_close(call("auto"), call("loop"))
        with pytest.raises(ValueError, match=words) as caught:
            call("cpu")
        assert str(caught.value).startswith("impl='cpu' cannot run: ")
        assert "\n" not in str(caught.value)


def test_no_compiler(machine, monkeypatch):
    monkeypatch.setenv("PATH", "")
    machine("/nonexistent/cc")
    c_kernels_are_refused(
        r"no C compiler \(/nonexistent/cc, cc, gcc, clang\): .* 'apt install gcc'"
    )
    text = said()
    assert f"The C kernels (impl='cpu') cannot run: {cpu.why_unavailable()}." in text
    assert "Everything works without them, in PyTorch, but more slowly" in text
    assert "talk_conv loop, band, table, blocked cumulative_mean" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "echo 'no room left' >&2; echo 'more of it' >&2; exit 1",
            "/compiler cannot .*: no room left$",
        ),
        ("exit 1", "/compiler cannot build the C kernels: no message$"),
        ("exit 0", "C kernels"),  # and writes nothing
        (r"printf 'Fehler: \374ber' >&2; exit 1", "/compiler cannot .*: Fehler: \ufffdber$"),
    ],
    ids=["message", "silent", "idle", "Latin-1"],
)
def test_compiler_that_fails(machine, tmp_path, text, words):
    machine(script(tmp_path, text))
    c_kernels_are_refused(words)
    assert f"cannot run: {cpu.why_unavailable()}." in said()
    assert not list((tmp_path / "cache").rglob("*.so"))


@pytest.mark.skipif(cpu.why_unavailable() is not None, reason=str(cpu.why_unavailable()))
class TestWithACompiler:
    """What the cache keeps, and what happens if it cannot be written."""

    def test_cache_that_cannot_be_written(self, machine, monkeypatch, tmp_path):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        c_kernels_are_refused("file/dynconv.*: Not a directory; set XDG_CACHE_HOME to another")
        assert f"cannot run: {cpu.why_unavailable()}." in said()

    def test_library_that_cannot_be_loaded(self, machine, monkeypatch):
        """It is broken, or on a disk that is mounted noexec."""

        def build(compiler, dtype, path):
            path.write_bytes(b"half a library")

        monkeypatch.setattr(cpu, "build", build)
        c_kernels_are_refused(r"float32-\w+\.so: file too short")
        assert f"cannot run: {cpu.why_unavailable()}." in said()

    def test_library_is_built_once(self, machine, tmp_path):
        machine(quick(tmp_path))
        out = ops.light_conv(X, WEIGHT, pad_left=2, impl="cpu")
        (path,) = compiler.cache_directory().iterdir()
        built = path.stat().st_mtime_ns
        forget()
        assert torch.equal(ops.light_conv(X, WEIGHT, pad_left=2, impl="cpu"), out)
        assert [path] == list(compiler.cache_directory().iterdir())
        assert path.stat().st_mtime_ns == built
        text = said()
        assert cpu.require_compiler()[0] in text and str(compiler.cache_directory()) in text

    def test_a_damaged_library_is_built_again(self, machine, tmp_path):
        """In another process: the loader may end one that maps a damaged library."""
        program = "from dynconv.kernels.cpu import build; print(build.why_unavailable())"
        environment = os.environ | {"CC": quick(tmp_path)}

        def answer() -> str:
            out = tmp_path / "out"
            Forked(execute, program, output={1: out, 2: out}, env=environment).wait(timeout=120)
            return out.read_text()

        assert answer() == "None\n"
        (path,) = compiler.cache_directory().iterdir()
        whole = path.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", b"GIF89a" * 99):
            path.write_bytes(damaged)
            assert answer() == "None\n"
            assert [path] == list(compiler.cache_directory().iterdir())
            assert path.read_bytes() == whole

    def test_a_cached_library_that_cannot_be_loaded_is_built_again(
        self, machine, monkeypatch, tmp_path
    ):
        """It is whole, but links to the OpenMP of another environment, for example."""
        machine(quick(tmp_path))
        assert cpu.why_unavailable() is None
        (path,) = compiler.cache_directory().iterdir()
        foreign = tmp_path / path.name
        foreign.write_bytes(b"a library of another machine")
        foreign = compiler.with_checksum(path.with_stem(path.stem.rpartition("-")[0]), foreign)

        def replace() -> None:
            path.unlink()
            foreign.write_bytes(b"a library of another machine")
            forget()

        replace()
        assert cpu.why_unavailable() is None
        assert [path] == list(compiler.cache_directory().iterdir())
        replace()

        def unlink(path, missing_ok=False):
            raise PermissionError

        monkeypatch.setattr(compiler.Path, "unlink", unlink)
        c_kernels_are_refused(f"file too short.*: remove {foreign}, or set XDG_CACHE_HOME")

    @pytest.mark.parametrize("other", ["/a/mkl/libiomp5.so", "/z/numpy.libs/libgomp-1.so"])
    def test_the_openmp_is_pytorchs(self, monkeypatch, other):
        own = f"{cpu.PYTORCH}/lib/libgomp.so.1"
        maps = "".join(f"7f00-7fff r-xp 0 08:01 5  {path}\n" for path in (other, own, "/b/libc.so"))
        monkeypatch.setattr(cpu.Path, "read_text", lambda path, **options: maps)
        assert cpu.openmp_arguments() == [own]

    def test_a_library_is_tried_with_numbers_while_tensors_are_fake(self):
        """As in `dynconv estimate`, which may be the first command on a machine."""
        path = Path(cpu.load_library(torch.float32)._name)
        with FakeTensorMode():
            assert cpu.find_fault(path, torch.float32) == []

    @pytest.mark.parametrize("fault", ["loading", "answer"])
    def test_flags_that_give_no_working_library_are_passed_over(
        self, machine, monkeypatch, tmp_path, fault
    ):
        """Like clang's OpenMP: PyTorch's lacks its symbols, but the linker succeeds."""
        sources = tmp_path / "cpu"
        shutil.copytree(cpu.SOURCES, sources)
        text = (sources / "average.c").read_text()
        if fault == "loading":
            text += "#ifdef _OPENMP\nvoid nowhere(void);\nvoid f(void) { nowhere(); }\n#endif\n"
        else:
            before, void, after = text.partition("void cumulative_mean")
            text = f"{before}#ifdef _OPENMP\n#define rounded(x) 7\n#endif\n{void}{after}"
        (sources / "average.c").write_text(text)
        monkeypatch.setattr(cpu, "SOURCES", sources)
        machine(quick(tmp_path))
        assert cpu.why_unavailable() is None
        assert not cpu.load_library(torch.float32).threaded()
        torch.testing.assert_close(
            ops.cumulative_mean(X, impl="cpu"), ops.cumulative_mean(X, impl="loop")
        )
        assert "does not fit PyTorch's, so they run on one thread." in said()

    def test_a_compiler_that_fails_for_one_dtype_serves_the_others(self, machine, tmp_path):
        command = cpu.require_compiler()[0]
        lines = f'case "$*" in *-DBF16*) exit 1;; esac; exec {command} "$@" -O0'
        machine(script(tmp_path, lines))
        assert cpu.supports(X) and not cpu.supports(X.bfloat16())
        narrow = X.bfloat16(), WEIGHT.bfloat16()
        torch.testing.assert_close(
            ops.light_conv(*narrow, pad_left=2).float(),
            ops.light_conv(X, WEIGHT, pad_left=2),
            rtol=0.05,
            atol=0.05,
        )
        with pytest.raises(ValueError, match="impl='cpu' cannot run: .*/compiler cannot build"):
            ops.light_conv(*narrow, pad_left=2, impl="cpu")

    @pytest.mark.skipif(not shutil.which("clang"), reason="there is no clang")
    def test_clang(self, machine):
        machine("clang")
        assert cpu.why_unavailable() is None
        assert "/clang and kept in" in said()

    @pytest.mark.parametrize("command", ["{} -O0", "env {} -O0", "'{}' -O0"])
    def test_a_compiler_with_arguments(self, machine, command):
        machine(command.format(cpu.require_compiler()[0]))
        assert cpu.require_compiler()[-1] == "-O0"
        assert cpu.why_unavailable() is None

    def test_a_compiler_that_is_not_there_is_replaced_and_told(self, machine):
        machine("/nonexistent/cc -O0")
        with pytest.warns(UserWarning, match="CC=/nonexistent/cc -O0 is not there, so /.*cc comp"):
            assert cpu.why_unavailable() is None
        assert "CC=/nonexistent/cc -O0 is not there, so" in said()

    def test_an_unknown_user_without_a_home(self, machine, monkeypatch):
        def home():
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(compiler.Path, "home", home)
        c_kernels_are_refused("no home directory: set HOME or XDG_CACHE_HOME")

    def test_other_source_compiler_processor_or_openmp_is_another_library(
        self, machine, monkeypatch, tmp_path
    ):
        """The name of a library is a digest of all that it depends on."""
        names = set()

        def build(compiler, dtype, path):
            names.add(path.name)
            raise cpu.NoCKernelsError("only its name is wanted")

        def look(dtype=torch.float32):
            forget()
            with pytest.raises(cpu.NoCKernelsError, match="only its name"):
                cpu.load_library(dtype)
            return len(names)

        monkeypatch.setattr(cpu, "build", build)
        assert look() == 1 and look() == 1
        assert look(torch.bfloat16) == 2
        copied = tmp_path / "cpu"
        copied.mkdir()
        sources = sorted(cpu.SOURCES.glob("*.[ch]"))
        for source in sources:
            (copied / source.name).write_bytes(source.read_bytes())
        monkeypatch.setattr(cpu, "SOURCES", copied)
        assert look() == 2  # the same sources elsewhere
        for count, source in enumerate(sources, 3):
            with (copied / source.name).open("a") as file:
                file.write("// changed\n")
            assert look() == count, source.name
        count = len(names)
        monkeypatch.setattr(compiler, "processor_features", lambda: "another")
        assert look() == count + 1
        monkeypatch.setattr(cpu, "require_compiler", lambda: ["/usr/bin/another"])
        assert look() == count + 2
        monkeypatch.setattr(cpu, "openmp_arguments", lambda: ["/a/libgomp.so.1"])
        assert look() == count + 3

    def test_two_processes_may_build_at_once(self, tmp_path):
        folder = tmp_path / "cache"
        environment = os.environ | {"XDG_CACHE_HOME": str(folder), "CC": quick(tmp_path)}
        program = (
            "import torch; from dynconv import ops;"
            "print(ops.cumulative_mean(torch.ones(1, 3, 4), impl='cpu').sum().item())"
        )
        answers = [tmp_path / "0", tmp_path / "1"]
        processes = [
            Forked(execute, program, output={1: answer}, env=environment) for answer in answers
        ]
        for process in processes:
            assert process.wait(timeout=120) == 0
        assert [answer.read_text() for answer in answers] == ["12.0\n"] * 2
        assert len(list((folder / "dynconv").iterdir())) == 1  # and no folder is left


def test_doctor_tries_a_cuda_kernel(monkeypatch):
    ones, outcome = torch.ones, []
    monkeypatch.setattr(cuda, "why_unavailable", lambda: None)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: ones(*shape))

    def light_conv(x, weight, *, pad_left, impl):
        if outcome:
            raise cuda.NoGpuKernelsError(outcome[0])
        assert impl == "cuda"
        return x

    monkeypatch.setattr(ops, "light_conv", light_conv)
    monkeypatch.setattr(cuda, "architecture_name", lambda index: "sm_90")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H100")
    monkeypatch.setattr(cuda, "tested_architectures", dict)
    text = said()
    assert re.search(r"CuPy compiled the first one in \d\.\d s", text)
    assert "cuda:0 NVIDIA H100, sm_90" in text
    assert "have passed: none so far; `pytest -m gpu` in a clone runs them." in text
    assert "This GPU is sm_90, so ask for them with impl='cuda'." in text
    record = {"sm_80": True, "sm_90": True}
    monkeypatch.setattr(cuda, "tested_architectures", lambda: record)
    text = said()
    assert "have passed: sm_80, sm_90. This GPU is sm_90, so it chooses them." in text
    record["sm_90"] = False
    text = said()
    stale = "On sm_90 they passed for older sources: run `pytest -m gpu` in a clone."
    assert f"have passed: sm_80. {stale}" in text
    assert "This GPU is sm_90, so ask for them with impl='cuda'." in text
    outcome.append("no image for this architecture")
    text = said()
    assert "The CUDA kernels (impl='cuda') fail here: no image for this architecture." in text


def test_an_installed_package_wants_neither_lessons_nor_tests(monkeypatch, tmp_path):
    assert "for the lessons" in said() and "for the tests" in said()
    monkeypatch.setattr(paths, "PACKAGE", tmp_path / "dynconv")
    assert "for the lessons" not in said() and "for the tests" not in said()


def test_a_checkout_that_is_not_installed_has_a_doctor(monkeypatch):
    def not_installed(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", not_installed)
    monkeypatch.setattr(metadata, "version", not_installed)
    assert f"dynconv {__version__}, Python" in said()


def test_every_extra_is_said_to_be_for_something():
    assert {*EXTRAS} == {extra for _, extra in list_requirements()} - {None}


@pytest.mark.parametrize("checkout", [True, False])
def test_missing_packages_are_named_with_the_remedy(monkeypatch, checkout):
    monkeypatch.setattr(doctor, "installed_version", lambda name: None if name == "tqdm" else "1")
    assert "tqdm MISSING: pip install tqdm typing-extensions 1" in said()
    monkeypatch.setattr(doctor, "installed_version", lambda name: None)
    monkeypatch.setattr(doctor, "find_checkout", lambda: "here" if checkout else None)
    text = said()
    assert "for dynconv tune: MISSING optuna: pip install 'dynconv[tune]'" in text
    assert ("dynconv[lessons]" in text) == checkout
