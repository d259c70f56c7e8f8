"""What `import dynconv.ops` loads, and how long that takes."""

import re
import subprocess
import sys
from statistics import median

from conftest import ROOT

HEAVY = ("cupy", "pydantic", "matplotlib", "torch._dynamo", "sympy")
LOADED = "import sys, dynconv.ops; print(*sys.modules)"
TIMED = """
import sys, time, resource
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime
import torch
first = used()
import dynconv.ops
print(first, used() - first)
"""


def python(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_nothing_but_the_operators_and_kernels_is_loaded():
    """It loads no simulator, NVRTC, CuPy, module of another ring, or PyTorch's compiler."""
    loaded = python(LOADED)
    ours = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("dynconv.")}
    shared = ("choices", "dtypes", "errors", "lazy", "machine", "value_checks", "paths")
    allowed = (*shared, "kernels", "ops")
    assert ours == {f"dynconv.{name}" for name in allowed}
    assert not [name for name in loaded if name.startswith(HEAVY)]


def test_the_packages_for_other_code_are_imported_when_they_are_used():
    """They are those of the book's page, and nothing else is a name of `dynconv`."""
    program = """
import sys, dynconv
shown = dir(dynconv)
assert "torch" not in sys.modules
print(*shown, *(getattr(dynconv, name).__name__ for name in shown))
"""
    page = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
    packages = sorted(set(re.findall(r"auto\w+:: dynconv\.(\w+)", page)))
    assert python(program) == packages + [f"dynconv.{name}" for name in packages]


def test_importing_it_takes_hardly_longer_than_importing_pytorch():
    """At most 1.2 times as long as torch, in CPU seconds, as the median of three."""
    for _ in range(3):
        runs = [map(float, python(TIMED)) for _ in range(3)]
        share = median(ours / torch for torch, ours in runs)
        if share <= 0.2:
            return
    raise AssertionError(f"{share:.0%} more than torch alone")
