"""YAML as recipes are written in: version 1.2, and what is ambiguous or endless refused."""

import math
import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynconv.config import load_recipe
from dynconv.config.tree import parse_overrides
from dynconv.errors import UserError
from dynconv.yaml12 import as_override, dump_yaml, parse_value, parse_yaml

BILLION = "b0: &b0 [x, x]\n" + "".join(f"b{i + 1}: &b{i + 1} [*b{i}, *b{i}]\n" for i in range(50))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[no, on, off, yes, y]", ["no", "on", "off", "yes", "y"]),
        ("[010, +7, -0]", [10, 7, 0]),
        ("[1:30, 2020-01-01, 1_000, 0x10, 0b1]", ["1:30", "2020-01-01", "1_000", "0x10", "0b1"]),
        ("[5e-4, .5, 1., 1e3, -.inf]", [5e-4, 0.5, 1.0, 1000.0, -math.inf]),
        ("[true, False, ~, null, ]", [True, False, None, None]),
        ("['no', \"010\", 'true']", ["no", "010", "true"]),
        ("on: 1", {"on": 1}),
        ("1" * 5000, "1" * 5000),
        ("# nothing", None),
        ("[&a {b: 1}, *a]", [{"b": 1}, {"b": 1}]),
    ],
)
def test_scalars_are_those_of_version_1_2(text, value):
    assert parse_yaml(text, "") == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: 'a' occurs twice"),
        ("a: 1\nb:\n  c: 2\n  c: 2", "line 4: 'c' occurs twice"),
        (BILLION, r"line 11: the alias .* too much: write out"),
        ("a: *x", "line 1: the alias .x is not known"),
        ("a: &x [*x]", "line 1: the alias .x is not known"),
        ("a: 1\n---\nb: 2", "line 2: a second document begins"),
        ("a: !!python/object/apply:os.system [ls]", "line 1: the tag 'tag:yaml.org"),
        ("1: 2", "line 1: the key 1 is not text: quote it"),
        ("? [a]\n: 1", "is not text"),
        ("a: \ud800", "not readable YAML"),
        ("a: '\0'", "not readable YAML"),
        *((text * 5000, "line 1: more than 20 mappings") for text in ("[", "{a: ", "- ")),
        ("[" * 100_000, "more than 20 mappings"),
        ('{"a":' * 100_000, "more than 20 mappings"),
        ("a: " * 5000, "mapping values are not allowed"),
    ],
)
def test_what_is_refused_with_its_line(text, words):
    start = time.process_time()  # of this process alone, however busy the machine is
    with pytest.raises(UserError, match=words) as error:
        parse_yaml(text, "mine.yaml")
    assert str(error.value).startswith("mine.yaml: ") and "\n" not in str(error.value)
    assert len(str(error.value)) < 300 and time.process_time() - start < 5


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
LIKE_NUMBERS = st.from_regex(r"[-+0-9._eExo:]{1,8}", fullmatch=True)


@given(st.dictionaries(st.text(), SCALARS | LIKE_NUMBERS | st.lists(SCALARS | LIKE_NUMBERS)))
def test_what_is_written_is_read_as_the_same(tree):
    again = parse_yaml(dump_yaml(tree), "")
    assert again == tree and repr(again) == repr(tree)  # 1 == 1.0 == True


@given(st.text(st.characters(exclude_categories=())) | st.text(st.characters(categories=["Cs"])))
def test_a_value_that_is_accepted_can_be_written_and_read(text):
    """Also lone surrogates, with which Python spells the bytes of a name that is not UTF-8."""
    try:
        value = parse_value(text, "here")
    except UserError:
        return
    assert repr(parse_yaml(dump_yaml([value]), "there")) == repr([value])


def test_a_name_that_is_not_utf_8_is_refused():
    with pytest.raises(UserError, match="^here: not valid UTF-8: rename the file or directory$"):
        parse_value("t\udcff", "here")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a #b", "a #b"),
        ("a: b", "a: b"),
        ("*x", "*x"),
        ("!x", "!x"),
        ("- a", "- a"),
        ("%TAG", "%TAG"),
        ("a\nb", "a\nb"),
        ("no", "no"),
        ("null", None),
        ("", None),
        ("5e-4", 5e-4),
        ("'5e-4'", "5e-4"),
        ("[1, 'a #b'] # two", [1, "a #b"]),
        ("{a: 1}", {"a": 1}),
    ],
)
def test_the_value_of_an_override(text, value):
    assert parse_overrides([f"data.corpus={text}"]) == {"data": {"corpus": value}}


@pytest.mark.parametrize("language", ["no", "on", "y", "off"])
def test_languages_that_were_booleans(language, tmp_path):
    assert load_recipe("help-de-en-dynamic", [f"data.source={language}"]).data.source == language
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: help-de-en-dynamic\ndata: {{source: {language}}}")
    assert load_recipe(path).data.source == language


def test_long_names_are_not_repeated():
    for recipe, override in (
        ("x" * 5000, "train.updates=3"),
        ("wu2019-table6:" + "x" * 5000, "train.updates=3"),
        ("help-de-en-dynamic", "x" * 5000),
        ("help-de-en-dynamic", "train." + "x" * 5000 + "=1"),
        ("help-de-en-dynamic", "x." * 5000 + "=1"),
        ("help-de-en-dynamic", "train.updates=" + "x" * 5000),
        ("help-de-en-dynamic", "train.updates=[" + "x" * 5000),
        ("help-de-en-dynamic", "train.updates=" + "1" * 5000),
        ("help-de-en-dynamic", "model.architecture=" + "x" * 5000),
        ("help-de-en-dynamic", "model.encoder.mixer=" + "x" * 5000),
        ("help-de-en-dynamic", "model.encoder.kernel_size=[" + "3," * 5000 + "]"),
    ):
        with pytest.raises(UserError) as error:
            load_recipe(recipe, [override])
        assert len(str(error.value)) < 600 and "\n" not in str(error.value)


def test_a_chain_of_bases_and_a_cycle_through_a_table(tmp_path, monkeypatch):
    for i in range(2000):
        (tmp_path / f"r{i}.yaml").write_text(f"base: r{i + 1}")
    (tmp_path / "r2000.yaml").write_text("train: {updates: 7000}")
    with pytest.raises(UserError, match="more than 50 recipes build on each other"):
        load_recipe(tmp_path / "r0.yaml")
    assert load_recipe(tmp_path / "r1960.yaml").train.updates == 7000
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.yaml").write_text(
        "{source: s, metric_in_words: m, base: mine.yaml, "
        "rows: [{name: a, recipe: mine.yaml}, {name: b}]}"
    )
    for row in "ab":
        (tmp_path / "mine.yaml").write_text(f"base: table.yaml:{row}")
        for name in ("mine.yaml", f"table.yaml:{row}"):
            with pytest.raises(UserError, match="leads back to it"):
                load_recipe(name)


def test_names_are_suggested_whatever_their_case():
    with pytest.raises(UserError, match=r"did you mean help-de-en-dynamic\?"):
        load_recipe("Help-DE-EN-Dynamic")


@pytest.mark.parametrize(
    "command", [["train", "--list"], ["experiment", "--list"], ["data", "list"]]
)
def test_lists_are_shown_without_pytorch(command):
    """Its import alone takes longer than a list may."""
    program = (
        f"import sys; from dynconv.cli import main\n"
        f"try: main({command})\n"
        f"finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "False\n") and done.stdout.count("\n") > 9


@pytest.mark.parametrize("value", [None, True, 7, 0.25, "de", [300, 400], [0.9, None]])
def test_a_proposed_override_is_read_as_the_value(value):
    assert parse_value(as_override(value), "here") == value
    assert " " not in as_override(value)


VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(VALUES | st.lists(VALUES))
@example("/data/" + "a name " * 30 + "A.txt")
@example("a\nb")
@example(["a, b", "[c]", "?d", ":e", "f: g"])
def test_any_value_is_proposed_as_one_line(value):
    line = as_override(value)
    assert parse_value(line, "here") == value
    assert len(line.splitlines()) <= 1
