"""The check of an exercise accepts right answers, and says in one line what is wrong."""

import re
from inspect import getmembers, isfunction

import numpy as np
import pytest
import torch
from answers import (
    beyond,
    convolutions,
    dynamicconv,
    kernels,
    scale,
    sequences,
    start,
    talkconv,
    translation,
)

from dynconv.lab import simulate
from dynconv.teach import check
from dynconv.teach.check import scale as ring
from dynconv.teach.judge import Wrong

PARTS = [start, sequences, convolutions, dynamicconv, talkconv, kernels]
PARTS += [translation, scale, beyond]
CHECKS = [name for name, _ in getmembers(check, isfunction) if name != "environment"]


def collected(tables):
    """Rows of tables {check: rows}; those of kernels are skipped where no compiler is."""
    unable = pytest.mark.skipif(bool(simulate.missing()), reason=simulate.missing() or "")
    return [
        pytest.param(name, row, id=f"{name}-{i}", marks=unable if name in kernels.RIGHT else ())
        for table in tables
        for name, rows in table.items()
        for i, row in enumerate(rows)
    ]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(ring, "WAIT", 0.3)


def rejected(name, answer):
    """The line that a check says to a wrong answer."""
    with pytest.raises(Wrong) as caught:
        getattr(check, name)(answer)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(("name", "right"), collected(part.RIGHT for part in PARTS))
def test_accepts(name, right, capsys):
    getattr(check, name)(right)
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize(("name", "row"), collected(part.WRONG for part in PARTS))
def test_says_what_is_wrong(name, row):
    wrong, message = row
    line = rejected(name, wrong)
    assert re.search(message, line), line
    assert ("in float32" in line) == ("in float32" in message)


@pytest.mark.parametrize(
    "value",
    [None, (), (1,), [2.5, "x"], "text", np.zeros(3), torch.zeros(2, 1, 1, 1, 1)],
    ids=lambda v: repr(v)[:12],
)
@pytest.mark.parametrize("name", CHECKS)
def test_answers_any_wrong_kind_of_value_with_a_line(name, value):
    if name in kernels.RIGHT and isinstance(value, str) and simulate.missing():
        pytest.skip(simulate.missing())
    answer = value if name in kernels.RIGHT else lambda *args, **options: value
    line = rejected(name, answer)
    assert value is not None or "None" in line


@pytest.mark.parametrize("name", sorted({*CHECKS} - {*kernels.RIGHT}))
def test_names_an_exception_and_its_line(name):
    def broken(*args, **options):
        raise KeyError("no such\nthing")

    assert re.search(r"it raises KeyError in line \d+ of broken: ", rejected(name, broken))


def test_an_answer_not_yet_written_says_so():
    def not_yet(*args, **options):
        raise NotImplementedError

    for name in {*CHECKS} - {*kernels.RIGHT}:
        with pytest.raises(NotImplementedError):
            getattr(check, name)(not_yet)


def test_every_check_has_answers():
    assert {name for part in PARTS for name in part.RIGHT} == set(CHECKS)
    assert {name for part in PARTS for name in part.WRONG} == set(CHECKS)
