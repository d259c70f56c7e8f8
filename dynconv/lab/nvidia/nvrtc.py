"""Compiles CUDA sources with NVIDIA's compiler, for the resources that each kernel needs.

NVRTC is the compiler that CuPy calls. It needs neither a GPU nor a driver, and the log of its
assembler, ptxas, counts registers, spills and memory. Our sources include no header of the system.
"""

import ctypes
import ctypes.util
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
"""packages that contain NVRTC, for CUDA 13 and 12"""
INVALID_OPTION = 5
"""a value of nvrtcResult"""
FIRST = 5
"""lines of the log that an error shows"""
LIBRARY = re.compile(r"libnvrtc(-builtins)?\.so(\.\d+)*")

ENTRY = re.compile(r"Compiling entry function '([^']+)'")
FUNCTION = re.compile(r"Function properties for '?([^\s']+)")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
# Both NVRTC and ptxas write these; the source lines that the log repeats are indented.
ERROR = re.compile(r"^\S.*\berror\b[^:]*:")
WARNING = re.compile(r"^\S.*\bwarning\b[^:]*:")


class NoNvrtcError(RuntimeError):
    """Reports why NVRTC cannot run here, and what to install."""


class NvrtcError(RuntimeError):
    """Reports the first errors that NVRTC finds in a source: kernel.cu(12): error: ..."""


class Resources(NamedTuple):
    """What one kernel needs, without the functions that it calls without inlining them."""

    registers: int
    """registers per thread"""
    spilled: int
    """bytes per thread that are stored and loaded for lack of registers"""
    stack: int
    """bytes per thread: spilled registers, and arrays with an index known only at run time"""
    shared: int
    """bytes per block that the source declares, without dynamic shared memory"""


class Compiled(NamedTuple):
    """The resources of each kernel, by the name requested, the warnings, and the code."""

    kernels: dict[str, Resources]
    warnings: list[str]
    mangled: dict[str, str]
    """the kernels' names in the code"""
    cubin: bytes


def why_unavailable() -> str | None:
    """Return why NVRTC cannot run on this machine and what to install, or None if it can."""
    try:
        load_nvrtc()
    except NoNvrtcError as reason:
        return str(reason)
    return None


def version() -> str:
    """Return NVRTC's version, such as "13.5"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    call_nvrtc("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def compile_program(code: str, names: Sequence[str], architecture: str = "sm_80") -> Compiled:
    """Compile the code and read in the log what its kernels need.

    names     name expressions, such as "light_conv<float, 4>"; a template is compiled for these
    returns   for each name its Resources, all warnings, and the machine code
    """
    program = ctypes.c_void_p()
    call_nvrtc(
        "nvrtcCreateProgram", ctypes.byref(program), code.encode(), b"kernel.cu", 0, None, None
    )
    try:
        for name in names:
            call_nvrtc("nvrtcAddNameExpression", program, name.encode())
        log = compile_logged(program, architecture)
        lowered = {name: lowered_name(program, name) for name in names}
        cubin = machine_code(program)
    finally:
        call_nvrtc("nvrtcDestroyProgram", ctypes.byref(program))
    kernels = parse_log(log)
    if missing := [name for name in names if lowered[name] not in kernels]:
        raise NvrtcError(f"no resources of {', '.join(missing)} in the log for {architecture}")
    warnings = [line for line in log.splitlines() if WARNING.search(line)]
    return Compiled({name: kernels[lowered[name]] for name in names}, warnings, lowered, cubin)


def compile_logged(program: ctypes.c_void_p, architecture: str) -> str:
    """Compile the program and return its log.

    Raises NvrtcError with its first errors if that fails.
    """
    flags = compiler_options(architecture)
    array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    status = load_nvrtc().nvrtcCompileProgram(program, len(flags), array)
    size = ctypes.c_size_t()
    call_nvrtc("nvrtcGetProgramLogSize", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value + 1)
    call_nvrtc("nvrtcGetProgramLog", program, buffer)
    log = buffer.value.decode(errors="replace")
    if status == 0:
        return log
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if ERROR.search(line)]
    # Too much shared memory fails without an error line: then the log's end tells the most.
    text = errors[:FIRST] or [result_name(status), *lines[-FIRST:]]
    if len(errors) > FIRST:
        text.append(f"and {len(errors) - FIRST} more errors")
    if status == INVALID_OPTION:
        known = ", ".join(list_architectures())
        text.append(f"{architecture} was requested; NVRTC {version()} has {known}")
    raise NvrtcError("\n".join(text))


def compiler_options(architecture: str) -> list[str]:
    """Return the options for NVRTC."""
    flags = [f"--gpu-architecture={architecture}", "-std=c++17", "--ptxas-options=-v"]
    flags.append("-ftz=true")  # as CuPy does
    if tuple(int(part) for part in version().split(".")) >= (12, 9):
        # With a driver, NVRTC keeps what it compiled; the next time, ptxas would report nothing.
        flags.append("--no-cache")
    return flags


def parse_log(log: str) -> dict[str, Resources]:
    """Return the resources of each kernel, by its mangled name, from the log of ptxas -v."""
    frames, used = {}, {}
    entry = function = ""
    for line in log.splitlines():
        if match := ENTRY.search(line):
            entry = match[1]
        elif match := FUNCTION.search(line):  # a kernel, or what it calls
            function = match[1]
        elif match := FRAME.search(line):
            frames[function] = [int(count) for count in match.groups()]
        elif match := USED.search(line):
            declared = SHARED.search(line)  # not named if there is none
            used[entry] = int(match[1]), int(declared[1]) if declared else 0
    kernels = {}
    for name in used.keys() & frames.keys():  # half a report is none
        (registers, shared), (stack, stores, loads) = used[name], frames[name]
        kernels[name] = Resources(registers, stores + loads, stack, shared)
    return kernels


def lowered_name(program: ctypes.c_void_p, name: str) -> str:
    """Return the mangled name of a name expression."""
    pointer = ctypes.c_char_p()  # to memory of the program
    call_nvrtc("nvrtcGetLoweredName", program, name.encode(), ctypes.byref(pointer))
    return (pointer.value or b"").decode()


def machine_code(program: ctypes.c_void_p) -> bytes:
    """Return the compiled code; none for a virtual architecture, such as compute_90."""
    size = ctypes.c_size_t()
    call_nvrtc("nvrtcGetCUBINSize", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    call_nvrtc("nvrtcGetCUBIN", program, buffer)
    return buffer.raw


def list_architectures() -> list[str]:
    """Return the architectures that NVRTC compiles for: "sm_75", "sm_80", ..."""
    count = ctypes.c_int()
    call_nvrtc("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    array = (ctypes.c_int * count.value)()
    call_nvrtc("nvrtcGetSupportedArchs", array)
    return [f"sm_{number}" for number in array]


def call_nvrtc(name: str, *arguments) -> None:
    """Call NVRTC's function of this name. Raises NvrtcError if it does not return success."""
    if status := getattr(load_nvrtc(), name)(*arguments):
        raise NvrtcError(f"{name}: {result_name(status)}")


def result_name(status: int) -> str:
    """Return NVRTC's name for the status that a function returned."""
    return load_nvrtc().nvrtcGetErrorString(status).decode()


@cache
def load_nvrtc() -> ctypes.CDLL:
    """Load NVRTC. Raises NoNvrtcError if there is none."""
    if sys.platform != "linux":
        raise NoNvrtcError(f"no NVRTC on {sys.platform}: it is looked for on Linux only")
    try:
        *_, loaded = [ctypes.CDLL(path) for path in library_paths()]
    except OSError as error:
        remedy = f"'pip install {PACKAGES[0]}' brings it, and no GPU is needed"
        raise NoNvrtcError(f"no NVRTC ({error}): {remedy}") from error
    loaded.nvrtcGetErrorString.restype = ctypes.c_char_p
    return loaded


def library_paths() -> list[str]:
    """Return the libraries to load, builtins before NVRTC: 13.0 does not find them by itself."""
    for package in PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        paths = [Path(file.locate()) for file in files if LIBRARY.fullmatch(file.name)]
        if paths := [path for path in paths if path.exists()]:
            return [str(path) for path in sorted(paths, key=lambda p: "builtins" not in p.name)]
    return [ctypes.util.find_library("nvrtc") or "libnvrtc.so"]
