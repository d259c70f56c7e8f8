"""The shipped recipes and experiments: each can be read and built, and says what it is for."""

import re
from dataclasses import asdict
from functools import cache

import pytest
import torch
import yaml

from dynconv import cli
from dynconv.cli.listing import WIDTH, list_recipes
from dynconv.config import (
    Recipe,
    find,
    load_experiment,
    load_recipe,
    recipe_names,
    require_recipe,
    shipped_experiments,
    shipped_recipes,
)
from dynconv.config.load import base_overlays, default_entries, merge_overlays, read_comment
from dynconv.config.tree import flatten
from dynconv.config.unused import find_unused
from dynconv.errors import UserError
from dynconv.models import build
from dynconv.text.manifest import CorpusEntry, read_manifest

NAMES = recipe_names()
FILES = shipped_recipes()
ROWS = [name for name in NAMES if ":" in name]

ERRATA = {
    "wmt16-en-de-light": (208.9, "202M fit a GLU on one side alone; the text has it on both"),
    "wmt17-zh-en-light": (291.4, "285M fit a GLU in the encoder alone; vocabularies unpublished"),
    "wikitext-103-talk": (241.8, "240M with about 260K types and 16 kernels for 17 layers"),
}
"""recipes whose parameters are not those that are printed: millions, and why"""

UNPUBLISHED = {"iwslt14-de-en-convs2s", "wmt16-en-de-convs2s"}
"""systems at full size on sets that their paper did not try"""


@cache
def loaded(name: str) -> Recipe:
    return load_recipe(name)


@cache
def manifest() -> dict[str, CorpusEntry]:
    return read_manifest()


def laptop(name: str) -> bool:
    return not loaded(name).data.corpus.startswith("prepared/")


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_that_the_papers_print(name):
    with torch.device("meta"):
        model = build(loaded(name).model)
    count = sum(p.numel() for p in model.parameters()) / 1e6
    printed = {int(p.parameters.removesuffix("M")) for p in loaded(name).published if p.parameters}
    # Cut off, as 87.64M to 87M, or rounded, as 199.59M to 200M: the papers do both.
    agrees = all(millions - 0.5 <= count < millions + 1 for millions in printed)
    if name in ERRATA:
        assert count == pytest.approx(ERRATA[name][0], abs=0.05)
        assert not agrees, "no erratum any more"
    else:
        assert agrees, f"{count:.2f}M parameters, not {printed}"


@pytest.mark.parametrize("name", FILES)
def test_the_comment_says_what_to_expect(name):
    text, recipe = read_comment(FILES[name]), loaded(name)
    assert text
    for row in recipe.published:
        paper, table = row.source.split(", ")
        assert row.value in text and paper in text and table.removeprefix("Table ") in text
        assert row.parameters is None or row.parameters in text
    if not laptop(name):
        assert "We have not run it." in text
        assert recipe.published or name in UNPUBLISHED and "no published value" in text


@pytest.mark.parametrize("name", ROWS)
def test_the_comment_of_an_experiment_says_what_to_expect(name):
    """A row's own numbers stand in the row."""
    (row,) = loaded(name).published
    text = read_comment(require_recipe(name))
    assert row.source in text and "We have not run it" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_data_set_is_in_the_manifest_and_in_the_name(name):
    corpus = loaded(name).data.corpus.removeprefix("prepared/")
    sets = [known for known in manifest() if f"{corpus}-".startswith(f"{known}-")]
    assert len(sets) == 1, f"{corpus} is not in data/manifest.yaml"
    if laptop(name):
        assert manifest()[corpus].shipped
    else:
        assert name in ROWS or name.startswith(sets[0]) or name == "duc-2004-convs2s"


@pytest.mark.parametrize("name", FILES)
def test_what_a_base_says_is_not_said_again(name):
    tree = yaml.safe_load(FILES[name].read_text("utf-8"))
    if "base" not in tree:
        return
    base = loaded(tree.pop("base"))
    other = base.model.architecture != loaded(name).model.architecture  # which takes none of it
    base, ours = (dict(flatten(asdict(recipe))) for recipe in (base, loaded(name)))
    said = {key for key, _ in flatten(tree)} - {"published"}
    said = {key for key in said if not (other and key.startswith("model."))}
    assert {key: base[key] for key in said if base.get(key) == ours[key]} == {}


@pytest.mark.parametrize("name", shipped_experiments())
def test_no_row_repeats_what_its_base_says(name):
    """At neither size, that is: 13 layers of the paper's can be another number on a laptop."""
    experiment = load_experiment(shipped_experiments()[name])
    versions = [each for each in (experiment, experiment.laptop) if each and each.base]
    trees = [dict(flatten(merge_overlays([*base_overlays(v.base), v.changes]))) for v in versions]
    for row in experiment.rows:
        bases = trees
        if row.recipe:
            overlays = [*base_overlays(row.recipe), experiment.changes]
            bases = [dict(flatten(merge_overlays(overlays)))]
        for key, value in flatten(row.changes):
            assert any(tree.get(key) != value for tree in bases), (row.name, key)
        for key, value in flatten(row.laptop):
            assert trees[1].get(key) != value or key in dict(flatten(row.changes)), (row.name, key)


def test_entries_without_effect_are_for_the_recipes_that_build_on_them():
    """Attention reads the dropout that these say; a user's own file would be refused."""
    found = {}
    for name in FILES:
        unread, entries = find_unused(loaded(name)), dict(flatten(asdict(loaded(name))))
        standard = default_entries(loaded(name))
        said = dict(flatten(yaml.safe_load(FILES[name].read_text("utf-8"))))
        if keys := {key for key in said.keys() & unread if entries[key] != standard[key]}:
            found[name] = keys
    assert found == {
        "billion-word-dynamic": {"model.attention_dropout"},
        "wikitext-103-talk": {"model.attention_dropout"},
    }


def test_the_number_of_positions_matters_only_where_they_are_learned():
    name = next(n for n in FILES if loaded(n).model.architecture == "convs2s")
    assert load_recipe(name, ["model.positions=none", "data.max_example_tokens=5000"])
    with pytest.raises(UserError, match="exceeds model.max_positions"):
        load_recipe(name, ["data.max_example_tokens=5000"])
    with pytest.raises(UserError, match="model.max_positions.*model.positions is none"):
        load_recipe(name, ["model.positions=none", "model.max_positions=5000"])


PREPARE = r"#   (dynconv data prepare [^\\\n]*--vocab[^\\\n]*(\\\n#.*)?)"
"""a command in the head of a recipe, which may go over two lines"""


def test_preparations_have_the_vocabulary_of_their_recipe():
    """The command in the comment makes what data and model ask for."""
    commands = 0
    for name, path in FILES.items():
        command = re.search(PREPARE, path.read_text("utf-8"))
        if command is None:
            continue
        commands += 1
        options = cli.make_parser().parse_args(re.sub(r"\\\n#", "", command[1]).split()[1:])
        data, sizes = loaded(name).data, loaded(name).model.vocab_size
        assert options.kind == data.vocabulary
        assert tuple(options.vocab_size) == (sizes if isinstance(sizes, tuple) else (sizes,))
        assert str(options.out or f"prepared/{options.corpus}") == data.corpus
        if options.suffixes:
            assert options.suffixes == [*data.suffixes]
    assert commands == 12


def test_the_list_has_every_recipe_and_every_row(capsys):
    assert cli.main(["train", "--list"]) == 0
    text = capsys.readouterr().out
    assert text == list_recipes() + "\n"
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line.split()[0] for line in lines if line[:3].strip()].count("wmt16-en-de-light") == 1
    shown = {line.split()[0] for line in lines if line.startswith("  ") and line.strip()}
    assert set(NAMES) <= shown
    rows = sum(len(loaded(name).published) for name in NAMES)
    assert sum(", Table " in line for line in lines) == rows
    small = next(i for i, line in enumerate(lines) if line.endswith("for a laptop"))
    assert not any(", Table " in line for line in lines[small:])


def test_the_list_quotes_the_comment_of_a_table_without_published_scores(monkeypatch, tmp_path):
    """As CONTRIBUTING describes a table: its rows state only what differs from the base."""
    table = "source: mine\nmetric_in_words: BLEU\nbase: help-de-en-dynamic\nrows:\n"
    row = "  - {name: small, changes: {model: {channels: 64}}}\n"
    (tmp_path / "mine.yaml").write_text(f"# Two widths.\n{table}{row}", encoding="utf-8")
    monkeypatch.setattr(find, "EXPERIMENTS", tmp_path)
    line = next(line for line in list_recipes().splitlines() if "mine:small" in line)
    assert line.split(maxsplit=1) == ["mine:small", "Two widths."]


def test_a_list_into_a_closed_pipe_says_nothing(monkeypatch):
    def closed(text):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("builtins.print", closed)
    monkeypatch.setattr(cli, "fail", lambda message, code: (message, code))
    monkeypatch.setattr(cli, "discard_stdout", lambda: None)
    assert cli.main(["train", "--list"]) == 141
