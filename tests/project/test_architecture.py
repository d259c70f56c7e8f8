"""ARCHITECTURE.md is true: its tree, its imports, its files, and its mixer, which is trained."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tokenize
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest
from conftest import ROOT
from helpers.forked import Forked, execute
from helpers.module_map import ROOMS, SECTION, module_map

from dynconv import cli
from dynconv.layers import check_mixer
from dynconv.models.mixers import MIXERS
from dynconv.ops import step
from dynconv.ops.registry import MODULES

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
HOW_TO = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RINGS = [
    {"ops", "kernels", "layers", "models"},
    {"config", "text", "score", "decode", "tasks", "train"},
    {"cli", "lab", "teach"},
]


def test_the_tree_is_the_package():
    tree = TEXT.split("```")[1]
    named = set(re.findall(r"^  (\w+)(?:/|\.py)", tree, re.MULTILINE))
    there = {path.stem for path in (ROOT / "dynconv").iterdir() if not path.name.startswith("__")}
    assert named == there - {"py"}  # py.typed tells type checkers that there are types


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+[\w.]+)`", TEXT + HOW_TO))))
def test_every_file_that_it_names_is_there(path):
    there = (ROOT / path).exists() or (ROOT / "dynconv" / path).exists()
    assert there or re.search("NAME|NN", path)


def test_every_name_that_it_gives_is_in_the_code():
    suffixes = {".py", ".c", ".h", ".cu", ".cuh", ".yaml"}
    files = [f for room in ("dynconv", "tests") for f in (ROOT / room).rglob("*.*")]
    texts = [f.read_text(encoding="utf-8") for f in files if f.suffix in suffixes]
    known = set(re.findall(r"\w+", "\n".join(texts))) | {"pypi"}  # an environment of GitHub's
    prose = re.sub("```.*?```", "", TEXT + HOW_TO, flags=re.DOTALL)
    named = re.findall(r"`([A-Za-z_][\w.]*)(?:\([\w, =]*\))?`", prose)
    assert len(named) > 90
    assert not {name for name in named if name.split(".")[-1] not in known}


@pytest.mark.parametrize(
    ("name", "path"), re.findall(r"`(\w+)`\s+(?:in|of)\s+`((?:\w+/)+[\w.]+)`", TEXT + HOW_TO)
)
def test_every_name_is_in_the_file_that_it_is_said_to_be_in(name, path):
    path = next(root / path for root in (ROOT, ROOT / "dynconv") if (root / path).exists())
    assert re.search(rf"\b{name}\b", path.read_text(encoding="utf-8"))


def resolves(name: str) -> bool:
    """Whether a dotted name leads from dynconv to a module or to an attribute of one."""
    try:
        resolve_name(f"dynconv.{name.removeprefix('dynconv.')}")
    except (ImportError, AttributeError):
        return False
    return True


PAGES = [ROOT / "README.md", *(ROOT / "lessons").glob("*.md"), *(ROOT / "book").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_name_in_prose_is_in_the_package(page):
    prose = re.sub("```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    rooms = "dynconv|ops|layers|models|kernels|lab|tasks"  # others are also sections of recipes
    named = set(re.findall(rf"`((?:{rooms})(?:\.[A-Za-z_]\w*)+)(?=[(`])", prose))
    assert not {name for name in named if not resolves(name)}


PROMISES = {"find_": r"\bNone\b|^dict|^list", "require_": r"^(?!.*\bNone\b)", "check_": "^None$"}
"""what functions return whose names begin so; CONTRIBUTING.md has the rule"""


def test_the_beginning_of_a_name_keeps_its_promise():
    paths = [path for path in (ROOT / "dynconv").rglob("*.py") if "teach" not in path.parts]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.returns]
    broken = {
        function.name
        for function in functions
        for beginning, promise in PROMISES.items()
        if function.name.startswith(beginning)
        and not re.search(promise, ast.unparse(function.returns))
    }
    assert not broken


def test_a_noun_is_repeated_and_no_function_of_a_module_is_hidden():
    """Two rules of CONTRIBUTING.md."""
    for path in (ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "dynconv").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(that|those)\s+of\b|^(def|class) _(?!_)", text, re.MULTILINE), path


def imports(path: Path) -> set[str]:
    """Return the rooms of dynconv that a file imports anywhere in it, but for type checkers."""
    rooms, tree = set(), ast.parse(path.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    types = [block for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING"]
    skipped = {id(part) for block in types for part in ast.walk(block)}
    for node in (node for node in ast.walk(tree) if id(node) not in skipped):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("dynconv.")}
    return rooms


@pytest.mark.parametrize("room", sorted(RINGS[0] | RINGS[1]))
def test_imports_point_down(room):
    inner = next(i for i, ring in enumerate(RINGS) if room in ring)
    forbidden = set().union(*RINGS[inner + 1 :])
    for path in (ROOT / "dynconv" / room).rglob("*.py"):
        assert not imports(path) & forbidden, path


def test_each_file_of_an_operator_begins_with_its_loop():
    for module in (*MODULES, step):
        file = Path(module.__file__)
        body = ast.parse(file.read_text(encoding="utf-8")).body
        names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
        operator = names[-1]
        names = [name for name in names if not name.endswith("_step")]  # what a loop may fold
        assert next(name for name in names if name.startswith(operator)) == f"{operator}_loop", file


def commands(parser: ArgumentParser, name: str) -> Iterator[str]:
    """Yield the name of every command: `dynconv train`, `dynconv bench ops`."""
    groups = [a for a in parser._actions if isinstance(a, _SubParsersAction)]
    for word, sub in (item for group in groups for item in group.choices.items()):
        yield from commands(sub, f"{name} {word}")
    if not groups:
        yield name


def test_every_command_is_in_the_map():
    named = re.findall(r"^\| `(dynconv [a-z]+(?: [a-z][a-z-]*)?)` \|", TEXT, re.MULTILINE)
    assert set(named) == set(commands(cli.make_parser(), "dynconv"))


def test_the_map_has_the_first_sentence_of_every_module():
    assert set(ROOMS) == set.union(*RINGS)
    assert SECTION.search(TEXT)[0] == module_map(), "`make map` writes it"


def test_only_the_command_line_speaks_of_options():
    """Where strings of the other two rings name an option, the sentence has a whole command."""
    names = "|".join([*commands(cli.make_parser(), "dynconv"), "torchrun"])
    bare = {
        f"{file.relative_to(ROOT)}: {sentence}"
        for room in RINGS[0] | RINGS[1]
        for file in (ROOT / "dynconv" / room).rglob("*.py")
        for text in strings(file)
        for sentence in re.split(r"[.;:] ", text)
        if re.search(r"(?<!-)--[a-z]", sentence) and not re.search(rf"\b({names})\b", sentence)
    }
    assert not bare


def strings(file: Path) -> list[str]:
    """Return the strings of a Python file as in its code, except docstrings."""
    nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    skipped |= {
        id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values
    }
    kinds = (ast.Constant, ast.JoinedStr)
    return [ast.unparse(n) for n in nodes if isinstance(n, kinds) and id(n) not in skipped]


def test_every_path_in_a_comment_or_docstring_exists():
    """Paths as `tests/ops/test_ops.py`, from the root, the package, or the file's own folder.

    Left out are placeholders (`lessons/NN_name.md`) and results, which a command may yet write.
    """
    folders = "|".join(sorted(set.union(*RINGS) | {"dynconv", "tests", "lessons", "data", "book"}))
    kinds = "py|md|ipynb|ya?ml|json|cuh?|[ch]"
    path = re.compile(rf"(?<![\w/.])(?:{folders})/(?:[\w.-]+/)*[\w.-]+\.(?:{kinds})\b")
    missing = []
    for file in (f for room in ("dynconv", "tests") for f in (ROOT / room).rglob("*.py")):
        for name in path.findall(prose(file)):
            places = (place / name for place in (ROOT, ROOT / "dynconv", file.parent))
            if not re.search("NN|NAME|data/results/", name) and not any(map(Path.exists, places)):
                missing.append(f"{file.relative_to(ROOT)}: {name}")
    assert not missing


def test_every_name_in_a_docstring_exists():
    """Names as `path_inside` or `ops.talk`: somewhere in the code or the strings of the package."""
    known, named = {"tensor_split"}, set()  # PyTorch's
    for file in (ROOT / "dynconv").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        expressions = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        with tokenize.open(file) as lines:
            tokens = tokenize.generate_tokens(lines.readline)
            known |= {token.string for token in tokens if token.type == tokenize.NAME}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) in expressions:
                    names = re.findall(r"`([A-Za-z_][\w.]*)(?:\(\))?`", node.value)
                    named |= {(name, file.name) for name in names}
                else:
                    known |= set(re.findall(r"\w+", node.value))
    assert not {(name, file) for name, file in named if name.split(".")[-1] not in known}


def test_what_a_constant_means_is_a_docstring_below_it():
    """And no comment behind its value, as CONTRIBUTING asks."""
    comment = re.compile(
        r"^([A-Z][A-Z0-9_, ]*)(?:: [^=]+)? = .*[^\s(\[{]  # (?!fmt|noqa|type)", re.M
    )
    files = (ROOT / "dynconv").rglob("*.py")
    assert not {(str(file), name) for file in files for name in comment.findall(file.read_text())}


@pytest.mark.parametrize("folder", ["dynconv", "tests"])
def test_comments_on_lines_of_their_own_are_sentences(folder):
    """They begin with a capital, or with a name from the code, and end with a full stop."""
    for file in (ROOT / folder).rglob("*.py"):
        for text in own_line_comments(file):
            assert not re.match(r"# (?!noqa|type|ruff)[a-z]+[ ,:]", text), (file, text)
            assert text.startswith("# ruff:") or text[-1] in ".:?!", (file, text)


def own_line_comments(file: Path) -> list[str]:
    """Return the comments of a Python file that have lines of their own, each whole."""
    blocks: dict[int, str] = {}  # by the line after each
    with tokenize.open(file) as lines:
        for token in tokenize.generate_tokens(lines.readline):
            (line, column), text = token.start, token.string
            if token.type == tokenize.COMMENT and not token.line[:column].strip():
                blocks[line + 1] = f"{blocks.pop(line)} {text[2:]}" if line in blocks else text
    return list(blocks.values())


def test_docstrings_begin_as_contributing_asks():
    """Functions with an imperative, and no class with one, or with a verb that says nothing."""
    hollow, functions = {"Contains", "Describes", "Holds", "Keeps", "Lists"}, []
    classes = []
    for file in (ROOT / "dynconv").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and (text := ast.get_docstring(node)):
                first = text.split()[0]
                assert first not in hollow, (file, node.name)
                classes.append((first, node.name, file))
            if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
                assert not re.search(r";\s+\w+Error\b", text), (file, node.name, "a sentence")
                if not any("property" in ast.unparse(mark) for mark in node.decorator_list):
                    functions.append((text.split()[0], node.name, file))
    third_person = re.compile(r"(Return|Raise|Yield|Comput|Check|Add|Writ|Read|Giv|Tak)(e?s)")
    assert not [each for each in functions if third_person.fullmatch(each[0])]
    imperatives = {verb for verb, _, _ in functions}
    assert not [each for each in classes if each[0] in imperatives]


def prose(file: Path) -> str:
    """Return the comments and docstrings of a Python file."""
    with tokenize.open(file) as lines:
        tokens = tokenize.generate_tokens(lines.readline)
        comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    statements = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    values = [node.value for node in statements if isinstance(node, ast.Expr)]
    texts = [value.value for value in values if isinstance(value, ast.Constant)]
    return "\n".join(comments + [text for text in texts if isinstance(text, str)])


SHARED = re.findall(r"^  (\w+)\.py", TEXT.split("```")[1], re.MULTILINE)
"""the modules at the end of the tree"""


NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen".split()


def test_files_are_counted_right():
    section = TEXT.split("## What to read first\n")[1].split("\n## ")[0]
    files = set(re.findall(r"`(\w+/\w+\.py)`", section))
    assert f"{NUMBERS[len(files)].capitalize()} files, read in this order" in section
    assert f"import the {NUMBERS[len(SHARED)]} modules at the end" in TEXT


@pytest.mark.parametrize("name", SHARED)
def test_what_all_rings_use_imports_no_ring(name):
    assert imports(ROOT / "dynconv" / f"{name}.py") <= {*SHARED}


def test_the_check_of_the_how_to_passes_for_its_mixer():
    names = {"__name__": "previous"}
    exec(TEXT.split("```python\n")[1].split("```")[0], names)
    try:
        check = re.search(r"^5\. `dynconv\.layers\.(check_mixer\(.+?\))`", TEXT, re.MULTILINE)[1]
        eval(check, {"check_mixer": check_mixer, **names})
    finally:
        del MIXERS["previous"]


def test_the_mixer_of_the_how_to_trains(recipe_file, tmp_path):
    program = TEXT.split("```python\n")[1].split("```")[0]
    run, said = tmp_path / "run", tmp_path / "said"
    changes = ["model.encoder.mixer=previous", "model.decoder.mixer=previous", "train.updates=2"]
    for arguments in (["train", recipe_file, *changes, "--run", run], ["evaluate", run]):
        done = Forked(execute, program, *map(str, arguments), output={2: said}, cwd=ROOT)
        assert done.wait() == 0, said.read_text(encoding="utf-8")
    assert "mixer: previous" in (run / "recipe.yaml").read_text(encoding="utf-8")


ENTRIES = {
    "config/optimizers.py": (
        "OPTIMIZERS = {",
        '"radam": Optimizer("RAdam", {}, ("betas",), ("exp_avg", "exp_avg_sq"), ("step",), "-"),',
    ),
    "config/schedules.py": (
        "SCHEDULES = {",
        '"constant": Schedule(lambda config, done, losses: config.lr),',
    ),
    "score/metric.py": (
        "METRICS = {",
        '"lines": Metric(lambda texts: [Score("lines", len(texts.hypotheses), "-")], note="all"),',
    ),
}
"""the entry that CONTRIBUTING's "Add something smaller" asks for, by file"""
LINES = {
    "config/recipe.py": [
        (
            "class DecodeConfig:",
            "    wider: NonNegativeInt = 0\n    forbidden: tuple[NonNegativeInt, ...] = ()",
        ),
        ("BEAM_SETTINGS = (", '    "wider",\n    "forbidden",'),
    ],
    "decode/search.py": [
        ("    constraints: Sequence[Constraint] = (),", "    wider: int = 0,"),
        ('    check_positive("beam", beam)', "    beam += wider"),
    ],
    "decode/constraints.py": [
        (
            "Constraint = Callable[[Tensor, Tensor], Tensor]",
            "def never(ids):\n"
            "    ids = torch.tensor(ids, dtype=torch.long)\n"
            "    return lambda logp, prefixes: logp.index_fill(2, ids, -torch.inf)",
        )
    ],
    "decode/translating.py": [
        (
            "    constraints = [no_repeat(size)] if size else []",
            "    from dynconv.decode.constraints import never\n\n"
            '    constraints.append(never(options.pop("forbidden")))',
        )
    ],
}
"""the lines that it asks for behind others, by file: an option and a constraint of the search"""


@pytest.fixture(scope="module")
def changed_package(tmp_path_factory) -> Path:
    """A folder with a copy of the package, in which the small how-tos are carried out."""
    folder = tmp_path_factory.mktemp("changed")
    (folder / "data").symlink_to(ROOT / "data")
    package = folder / "dynconv"
    shutil.copytree(ROOT / "dynconv", package)
    after = {file: [*pairs] for file, pairs in LINES.items()}
    for file, (table, entry) in ENTRIES.items():
        assert f"entry in `{table[:-4]}`" in HOW_TO or f"entry of `{table[:-4]}`" in HOW_TO
        after[file] = [(table, f"    {entry}")]
    for file, pairs in after.items():
        text = (package / file).read_text(encoding="utf-8")
        for line, more in pairs:
            assert text.count(f"\n{line}") == 1, (file, line)
            text = text.replace(f"\n{line}", f"\n{line}\n{more}\n")
        (package / file).write_text(text, encoding="utf-8")
    return folder


def call(folder: Path, *commands: list) -> str:
    """Run commands with the package in `folder`, in one process; return what they print."""
    words = [[str(word) for word in command] for command in commands]
    program = f"from dynconv import cli\nfor c in {words}: assert cli.main(c) == 0, c"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_optimizer_a_schedule_and_a_metric_take_the_entries_of_the_how_to(
    changed_package, recipe_file
):
    """The package then trains, evaluates and scores with them, and its help lists the metric."""
    names = ["train.optimizer=radam", "train.schedule=constant", "metric=lines", "train.updates=2"]
    run = recipe_file.with_name("run")
    outputs = run / "test.hypotheses.txt"
    said = call(
        changed_package,
        ["train", recipe_file, *names, "--run", run],
        ["evaluate", run],
        ["score", outputs, outputs, "--metric", "lines"],
        ["score", "--help"],
    )
    assert said.count("lines = 20.00  -\n") == 2 and "lines (all), bleu" in said


def test_an_option_and_a_constraint_of_the_search_take_the_lines_of_the_how_to(
    changed_package, recipe_file
):
    """A model that is trained already then decodes with them."""
    for name in ("`beam_search`", "`DecodeConfig`", "`BEAM_SETTINGS`", "`make_search`"):
        assert name in HOW_TO
    run = recipe_file.with_name("run")
    changes = ["decode.wider=1", "decode.forbidden=[5, 6]"]
    call(
        changed_package,
        ["train", recipe_file, "train.updates=2", "--run", run],
        ["evaluate", run, *changes],
    )
    scores = json.loads((run / "test.scores.json").read_text(encoding="utf-8"))
    assert (scores["wider"], scores["forbidden"]) == (1, [5, 6])


def test_a_table_and_a_search_space_take_one_file_each(changed_package, recipe_file, monkeypatch):
    """The package then lists, trains and searches with them by name."""
    package = changed_package / "dynconv"
    table = f"# Mine.\nsource: mine\nmetric: BLEU\nbase: {recipe_file}\nrows: [{{name: small}}]\n"
    (package / "experiments/mine.yaml").write_text(table, encoding="utf-8")
    (package / "spaces/mine.yaml").write_text("settings: {train.lr: [1.0e-3]}", encoding="utf-8")
    short, run = ["train.updates=2"], recipe_file.with_name("run")
    output = run.with_name("tune.json")
    said = call(
        changed_package,
        ["train", "--list"],
        ["train", "mine:small", *short, "--run", run],
        ["tune", "mine:small", *short, "--space", "mine", "--trials", "1", "--output", output],
    )
    assert re.search("^  mine:small +Mine.$", said, re.MULTILINE)
    assert "after 2 updates: train.lr=0.001" in said
