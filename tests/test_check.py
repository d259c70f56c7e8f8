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
    scale,
    sequences,
    start,
    talkconv,
    translation,
)

from dynconv.teach import check
from dynconv.teach.check import scale as ring
from dynconv.teach.judge import Wrong

PARTS = [start, sequences, convolutions, dynamicconv, talkconv, translation, scale, beyond]
KERNELS = ["depthwise_kernel", "weight_gradient_kernel", "dropconnect_kernel"]
KERNELS += ["chunked_scan_kernel"]
CHECKS = [name for name, _ in getmembers(check, isfunction) if name != "environment"]


def collected(tables):
    rows = [(name, row) for table in tables for name, rows in table.items() for row in rows]
    return [pytest.param(name, row, id=f"{name}-{i}") for i, (name, row) in enumerate(rows)]


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
    answer = value if name in KERNELS else lambda *args, **options: value
    rejected(name, answer)


def test_every_check_has_answers():
    assert {name for part in PARTS for name in part.RIGHT} | set(KERNELS) == set(CHECKS)
    assert {name for part in PARTS for name in part.WRONG} | set(KERNELS) == set(CHECKS)
