"""The check of an exercise accepts right answers, and says in one line what is wrong.

Right and wrong answers are in answers/, one module for each subject. Mistakes that a check
itself knows by name are not among them: test_names_each_fault_that_it_knows feeds these to it.
"""

import ast
import re
import sys
from collections import Counter
from inspect import getmembers, isfunction

import jupytext
import numpy as np
import pytest
import torch
from answers import (
    beyond_translation,
    convolutions,
    dynamicconv,
    kernels,
    mixing,
    scale,
    sequences,
    states,
    talkconv,
    translation,
)
from conftest import ROOT

from dynconv import ops
from dynconv.errors import UserError
from dynconv.lab import simulate
from dynconv.teach import check
from dynconv.teach.check import installation
from dynconv.teach.check import scale as ring
from dynconv.teach.judge import Wrong, faulty_results, judge

PARTS = [mixing, sequences, convolutions, dynamicconv, talkconv, kernels]
PARTS += [translation, scale, beyond_translation, states]
RIGHT = {name: answers for part in PARTS for name, answers in part.RIGHT.items()}
CHECKS = [name for name, _ in getmembers(check, isfunction) if name != "environment"]

FUNCTIONS = sorted({*CHECKS} - {*kernels.RIGHT})


def collected(tables):
    """Rows of tables {check: rows}; those of kernels are skipped where no compiler is."""
    unable = pytest.mark.skipif(
        bool(simulate.why_unavailable()), reason=simulate.why_unavailable() or ""
    )
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
    if name in kernels.RIGHT and isinstance(value, str) and simulate.why_unavailable():
        pytest.skip(simulate.why_unavailable())
    answer = value if name in kernels.RIGHT else lambda *args, **options: value
    line = rejected(name, answer)
    assert value is not None or "None" in line


NO_TENSOR = {
    "accumulation",
    "chrf",
    "cleaned",
    "gated_chunk",
    "numbers_kept",
    "respell",
    "resumable",
    "rouge_l",
    "schedule",
}
NO_TENSOR |= {"dynamic_step", "seeds_needed", "talk_gradient"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda z: z[None], "a tensor of shape"),
        (lambda z: z.to(torch.int16), "tensor of torch.int16"),
    ],
    ids=["shape", "dtype"],
)
@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - NO_TENSOR))
def test_names_another_shape_or_dtype(name, change, message):
    assert message in rejected(name, lambda *z, **options: change(RIGHT[name][0](*z, **options)))


INPUTS = {
    "adaptive_argmax": "hidden words projections classes",
    "cleaned": "pairs",
    "depthwise": "x weight",
    "dilated": "x weight",
    "dynamic": "x weight",
    "exponential_average": "x",
    "folded": "W_in kernel W_out",
    "gated_chunk": "Z q k v keep",
    "light": "x weight",
    "light_gradient": "x g",
    "moved_positions": "p",
    "numbers_kept": "stack",
    "renormalised": "x logits",
    "respell": "ids",
    "rouge_l": "hypothesis reference",
    "scaled_gradient": "z",
    "softmax_gradient": "x logits g",
    "state_after": "x keep write",
    "summed_area": "image boxes",
    "talk": "x left right",
    "talk_gradient": "g x left right",
    "true_width": "x left right",
    "window_attention": "q k v",
}


@pytest.mark.parametrize(
    ("name", "i", "input"), [(k, i, z) for k, v in INPUTS.items() for i, z in enumerate(v.split())]
)
def test_refuses_that_an_input_is_changed(name, i, input):
    def changing(*inputs, **options):
        out = RIGHT[name][0](*inputs, **options)
        if isinstance(inputs[i], list):
            inputs[i].clear()
        else:
            inputs[i].data.mul_(2).add_(1)
        return out

    assert f"it changes `{input}` in place" in rejected(name, changing)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names_an_exception_and_its_line(name):
    def broken(*args, **options):
        raise KeyError("no such\nthing")

    assert re.search(r"it raises KeyError in line \d+ of broken: ", rejected(name, broken))


def wrong_answers(faults, inputs):
    """{(sentence, n): what the n-th mistake with that sentence returns for these inputs}"""
    count, wrongs = Counter(), {}
    for why, wrong in faulty_results(faults or {}, inputs):
        wrongs[why, count[why]] = wrong
        count[why] += 1
    return wrongs


FAULTS = {
    "adaptive_argmax": 10,
    "chrf": 14,
    "mixing_matrix": 1,
    "moved_positions": 12,
    "rouge_l": 8,
    "schedule": 13,
    "gated_chunk": 7,
    "numbers_kept": 8,
    "seeds_needed": 12,
    "state_after": 4,
    "summed_area": 13,
    "talk": 11,
    "talk_gradient": 16,
    "true_width": 7,
}
"""how many mistakes a check knows by name"""


@pytest.mark.parametrize("name", FAULTS)
def test_names_each_fault_that_it_knows(name, monkeypatch):
    """The answers make the check's own mistakes, one at a time, in all cases that have it."""
    mistakes, mistake = set(), None

    def judge_mistake(mine, right, cases, faults=None, **options):
        def answer(*inputs, **by_name):
            wrongs = wrong_answers(faults, (*inputs, *by_name.values()))
            mistakes.update(wrongs)
            return wrongs.get(mistake, right(*inputs, **by_name))

        judge(answer, right, cases, faults, **options)

    check_answer = getattr(check, name)
    monkeypatch.setattr(sys.modules[check_answer.__module__], "judge", judge_mistake)
    check_answer(RIGHT[name][0])  # for now without a mistake
    named = set()
    for mistake in sorted(mistakes):
        try:
            check_answer(RIGHT[name][0])
        except Wrong as wrong:
            named.add(mistake[0])
            assert str(wrong).endswith(f"; {mistake[0]}")
    assert named == {why for why, _ in mistakes} and len(named) == FAULTS[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_answer_not_yet_written_says_so(name):
    def my_answer(*args, **options):
        raise NotImplementedError

    assert rejected(name, my_answer) == "my_answer is not written yet"


def test_what_pytorch_does_not_implement_is_an_error_of_the_answer():
    def my_answer(*args, **options):
        raise NotImplementedError('"addmm" not implemented')

    line = rejected("mixing_matrix", my_answer)
    assert "it raises NotImplementedError in line" in line and line.endswith("not implemented")


def test_every_check_has_answers():
    assert {name for part in PARTS for name in part.RIGHT} == set(CHECKS)
    assert {name for part in PARTS for name in part.WRONG} == set(CHECKS)


def test_environment_is_ready(capsys):
    check.environment()
    assert capsys.readouterr().out == "ready: packages, text and operators are here\n"


def test_environment_names_what_is_missing(monkeypatch):
    def unreadable(*split):
        raise UserError("no file test.de")

    def broken(*inputs, impl, **options):
        if impl == "auto":
            raise RuntimeError("the kernel fails")
        return depthwise_conv(*inputs, impl=impl, **options)

    depthwise_conv = ops.depthwise_conv
    monkeypatch.setattr(installation, "find_spec", lambda name: None if name == "tokenizers" else 1)
    monkeypatch.setattr(installation, "load_parallel", unreadable)
    monkeypatch.setattr(ops, "depthwise_conv", broken)
    with pytest.raises(AssertionError) as raised:
        check.environment()
    assert re.sub(r"line \d+", "line N", str(raised.value)).splitlines() == [
        "A convolution goes wrong, and `dynconv doctor` may say why: it raises RuntimeError in "
        "line N of broken: the kernel fails.",
        "The package tokenizers is missing: run pip install -e '.[lessons]' in the repository's "
        "folder.",
        "The text of the lessons cannot be read: no file test.de.",
    ]


@pytest.mark.parametrize(
    "text", sorted((ROOT / "lessons").glob("*.md")), ids=lambda text: text.stem
)
def test_environment_knows_every_package_that_a_lesson_imports(text):
    modules = set()
    for cell in jupytext.read(text).cells:
        for node in ast.walk(ast.parse(cell.source if cell.cell_type == "code" else "")):
            if isinstance(node, ast.ImportFrom):
                modules.add(node.module.split(".")[0])
            elif isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
    assert modules - sys.stdlib_module_names - {"dynconv"} <= installation.PACKAGES
