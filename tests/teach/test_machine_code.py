"""data/results/machine-code.json has the kernels of the lessons, as NVRTC compiles them."""

import pytest

from dynconv.lab import ledger
from dynconv.lab.simulate import nvdisasm, nvrtc
from dynconv.teach.machine_code import KERNELS, hash_source, measure, source_of, strings_of

RECORD = ledger.read("machine-code")
PAIRS = [(lesson, kernel) for lesson, kernels in KERNELS.items() for kernel in kernels]


def why_not_comparable() -> str | None:
    """Why this machine cannot repeat the record."""
    if reason := nvrtc.why_unavailable() or nvdisasm.why_unavailable():
        return reason
    recorded = RECORD["versions"]["nvrtc"]
    return None if nvrtc.version() == recorded else f"the record is of NVRTC {recorded}"


def test_strings_are_found_through_names_sums_and_replacements(monkeypatch, tmp_path):
    monkeypatch.setattr("dynconv.teach.machine_code.require_checkout", lambda: tmp_path)
    (tmp_path / "lessons").mkdir()
    cell = (
        '```{code-cell}\nA = "a"\nB = A + "b"\nC = A\nC += "c"\nD = B.replace("b", A)\nn = 1\n```\n'
    )
    (tmp_path / "lessons" / "00_try.md").write_text(cell)
    assert strings_of("00_try") == {"A": "a", "B": "ab", "C": "ac", "D": "aa"}


@pytest.mark.parametrize(("lesson", "kernel"), PAIRS)
def test_the_lesson_still_has_the_kernel_of_the_record(lesson, kernel):
    assert RECORD["numbers"][kernel]["source"] == hash_source(source_of(lesson, kernel))


def test_the_record_has_no_other_kernels():
    assert RECORD["numbers"].keys() == {kernel for _, kernel in PAIRS}


@pytest.mark.skipif(bool(why_not_comparable()), reason=str(why_not_comparable()))
@pytest.mark.parametrize(("lesson", "kernel"), PAIRS)
def test_the_record_is_what_nvrtc_makes(lesson, kernel):
    assert measure(lesson, kernel) == RECORD["numbers"][kernel]
