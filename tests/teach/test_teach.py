"""The tools of the lessons say what is so, and fail where they should."""

import importlib
import sys
from functools import partial

import jupytext
import nbformat
import pytest
import torch
from matplotlib.figure import Figure

from dynconv import ops
from dynconv.errors import UserError
from dynconv.models.mixers import MIXERS
from dynconv.teach import book, draw_mixing, mixing_matrix, same, show, style
from dynconv.teach import lessons as runner
from dynconv.teach.checkout import run_tool
from dynconv.teach.floors import print_floors

KERNEL = torch.tensor([[0.2, 0.3, 0.5]])


def test_mixing_matrix_has_outputs_as_rows():
    M = mixing_matrix(partial(ops.light_conv, weight=KERNEL, pad_left=2), 4)
    expected = [[0.5, 0, 0, 0], [0.3, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0, 0.2, 0.3, 0.5]]
    torch.testing.assert_close(M, torch.tensor(expected), rtol=0, atol=0)


def test_mixing_matrix_times_a_channel_is_the_channel_of_the_output():
    torch.manual_seed(0)
    x, weight = torch.randn(1, 9, 6), torch.randn(6, 5)
    mix = partial(ops.depthwise_conv, weight=weight, pad_left=2)
    M = mixing_matrix(mix, 9, channels=6, channel=4)
    torch.testing.assert_close(M @ x[0, :, 4], mix(x)[0, :, 4])


def test_drawn_mixing_matrix_prints_what_is_not_zero():
    axes = Figure().subplots()
    draw_mixing(axes, torch.tensor([[0.25, 0.0], [-0.5, 0.75]]), labels=["a", "b"])
    assert [text.get_text() for text in axes.texts] == [".25", "-.50", ".75"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert axes.images[0].get_clim() == (0, 1)


def test_style_names_a_colour_for_every_mixer_and_for_errors():
    others = "convs2s", "hybrid", "error"  # another architecture, two mixers in one model, mistakes
    assert set(style.COLORS) == {*MIXERS, *others}, "dynconv/lab/style.py has a colour per mixer"
    assert len(set(style.COLORS.values())) == len(style.COLORS)


def test_same_accepts_equal_functions(capsys):
    x = torch.randn(2, 7, 6)
    same(torch.cumsum, lambda x, dim: x.cumsum(dim), x, torch.tensor(1))
    assert capsys.readouterr().out == "values and 1 gradient agree\n"


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (
            lambda x: x.clone().index_fill(0, torch.tensor([1]), 7.0),
            r"values .* \[1\]: .*, right 7",
        ),
        (lambda x: x.detach() * 2 - x, r"gradients of x .* \[0\]"),
        (lambda x: x[:2], r"it returns a tensor of shape \(3,\), not \(2,\)"),
    ],
    ids=["values", "gradients", "shape"],
)
def test_same_names_the_first_difference(theirs, message):
    with pytest.raises(AssertionError, match=message):
        same(lambda x: x * 1.0, theirs, torch.tensor([1.0, 2.0, 3.0]))


def test_same_compares_gradients_within_the_given_tolerance():
    same(lambda x: x * x, lambda x: x * (x + 1e-6), torch.tensor([1.0, 2.0]), rtol=1e-4)


def test_show_prints_the_source(capsys):
    show(ops.implementations)
    assert capsys.readouterr().out.startswith("def implementations(")


def test_floors_mark_the_highest_and_draw_it_in_copies(capsys):
    print_floors({"one": {"DRAM": 20, "L1": 45}, "second try": {"DRAM": 20}}, 20)
    assert capsys.readouterr().out.splitlines() == [
        "µs at least  DRAM     L1   copies",
        "one            20     45*     2.2 ██▎",
        "second try     20*            1.0 █",
    ]


def test_a_worst_case_is_in_brackets_and_never_marked(capsys):
    print_floors({"one": {"DRAM": 20, "L2": 131, "L1": 45}}, 20, worst="L2")
    assert capsys.readouterr().out.splitlines() == [
        "µs at least  DRAM     L2     L1   copies",
        "one            20   (131)    45*     2.2 ██▎",
    ]


LESSON = """\
---
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# Title

```{code-cell} ipython3
print("question")
```

```{solution-start} ex-one
:label: sol-one
:class: dropdown
```

secret

```{code-cell} ipython3
:tags: [solution]

print("answer")
```

```{solution-end}
```

after
"""


@pytest.fixture
def lesson(tmp_path):
    text = tmp_path / "lessons" / "01_title.md"
    text.parent.mkdir()
    text.write_text(LESSON, encoding="utf-8")
    return text


def test_runner_stores_outputs_and_writes_the_same_bytes_again(lesson):
    stored = lesson.with_suffix(".ipynb")
    runner.run(lesson)
    first = stored.read_bytes()
    runner.check(lesson)
    code = [cell for cell in nbformat.reads(first.decode(), 4).cells if cell.cell_type == "code"]
    assert [cell.outputs[0].text for cell in code] == ["question\n", "answer\n"]
    hidden = {"source_hidden": True, "outputs_hidden": True}
    assert code[1].metadata == {"tags": ["solution"], "jupyter": hidden}
    stored.unlink()
    runner.run(lesson)
    assert stored.read_bytes() == first


def test_run_takes_lessons_that_changed_or_are_named(lesson, monkeypatch):
    ran = []
    monkeypatch.setattr(runner, "require_checkout", lambda: lesson.parents[1])
    monkeypatch.setattr(
        runner, "run", lambda text, run=runner.run: (ran.append(text.stem), run(text))
    )
    for arguments, expected in [([], 1), ([], 1), (["01"], 2), ([], 2), ("edit", 3)]:
        if arguments == "edit":
            lesson.write_text(lesson.read_text("utf-8").replace("question", "riddle"), "utf-8")
            arguments = []
        monkeypatch.setattr(sys, "argv", ["lessons", "run", *arguments])
        runner.main()
        assert ran == ["01_title"] * expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda nb: nb.cells[1].update(source="print('other')"), "differ"),
        (lambda nb: nb.cells[3].metadata.pop("jupyter"), "hides {} of a cell"),
        (lambda nb: nb.cells[1].update(execution_count=None), "not run 1..N"),
        (
            lambda nb: nb.cells[1].outputs.append(
                nbformat.v4.new_output("error", ename="ValueError", evalue="", traceback=[])
            ),
            "contains errors",
        ),
    ],
    ids=["edited", "unfolded", "not run", "failed"],
)
def test_check_rejects_a_notebook_that_is(lesson, change, message):
    notebook = jupytext.read(lesson)
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
        cell.metadata |= {"jupyter": runner.hidden_parts(cell)} if runner.hidden_parts(cell) else {}
    stored = lesson.with_suffix(".ipynb")
    nbformat.write(notebook, stored)
    runner.check(lesson)
    change(notebook)
    nbformat.write(notebook, stored)
    with pytest.raises(AssertionError, match=message):
        runner.check(lesson)


def test_check_rejects_a_missing_notebook(lesson):
    with pytest.raises(AssertionError, match="01_title.ipynb is missing"):
        runner.check(lesson)


def test_student_notebook_has_no_solutions(lesson, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "require_checkout", lambda: tmp_path)
    monkeypatch.setattr(sys, "argv", ["lessons", "student", "01", "-o", str(tmp_path / "out")])
    runner.main()
    assert f"lab.py --folder {tmp_path / 'out'}\n" in capsys.readouterr().out
    notebook = nbformat.read(tmp_path / "out" / "01_title.ipynb", as_version=4)
    question = ["# Title", 'print("question")']
    assert [cell.source for cell in notebook.cells] == [*question, "", "after"]


def test_colab_notebooks_install_the_repository_first(lesson, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "require_checkout", lambda: tmp_path)
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["lessons", "student", "01", "--colab", "-o", str(out)])
    project = tmp_path / "pyproject.toml"
    project.write_text("[project]\n", encoding="utf-8")
    with pytest.raises(UserError, match="needs the address of the repository"):
        runner.main()
    address = "https://github.com/owner/dynconv"
    project.write_text(f'[project]\nurls.Repository = "{address}"\n', encoding="utf-8")
    runner.main()
    first = nbformat.read(out / "01_title.ipynb", as_version=4).cells[0].source
    assert f"git clone -q --depth 1 {address} /content/dynconv\n" in first


def test_the_runner_names_the_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "jupytext", None)
    monkeypatch.delitem(sys.modules, runner.__name__)
    with pytest.raises(SystemExit, match="^jupytext is missing: pip install 'dynconv.lessons.'$"):
        importlib.import_module(runner.__name__)


@pytest.mark.parametrize("tool", [runner, book])
def test_lesson_tools_outside_a_checkout_ask_for_one(tool, monkeypatch, tmp_path):
    monkeypatch.setattr("dynconv.paths.PACKAGE", tmp_path / "dynconv")
    with pytest.raises(SystemExit, match=f"^dynconv: no lessons .* in {tmp_path}: .*; clone .*$"):
        run_tool(tool.main)
