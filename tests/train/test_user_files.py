"""What a user wrote stays as it was, byte for byte, whatever a command is given."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dynconv import cli, files
from dynconv.config import dump_recipe
from dynconv.errors import UserError
from dynconv.files import claim, path_inside, replace_text, scratch_folder, set_aside
from dynconv.text import encode_corpus
from dynconv.train import train
from dynconv.train.checkpoint_store import CheckpointStore

MINE = {
    "letter.txt": "Dear",
    "recipe.yaml": "soup: leek\n",
    "log.jsonl": '{"event": "rain", "update": 3}\n',
    "vocabulary.json": '["leek"]',
    "environment.json": '{"rooms": 4}',
    "data/train.de": "mein\n",
    "data/train.en": "mine\n",
    "checkpoints/keep/thesis": "chapter 1",
    "checkpoints/000005/meta.json": '{"format": "of mine"}',
    "tensorboard/table": "oak",
    "curves.png": "a picture",
    "test.scores.json": "{}",
    ".lock": "of the door",
    ".part/one": "of two",
    "p.part/one": "of two",
    ".p.part/one": "of two",
}


def write(home: Path, names) -> None:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(MINE[name], encoding="utf-8")


def tree(home: Path) -> dict[str, object]:
    """Everything below a directory: the bytes of files, the targets of links."""
    found = {}
    for path in home.rglob("*"):
        name = str(path.relative_to(home))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


@pytest.fixture
def home(tmp_path):
    """A directory of the user's with names like ours, and links."""
    home = tmp_path / "home"
    write(home, MINE)
    (tmp_path / "elsewhere").write_text("far", encoding="utf-8")
    (home / "link").symlink_to(tmp_path / "elsewhere")
    (home / "broken").symlink_to("nowhere")
    return home


def refused(capsys, *arguments) -> str:
    """The one line of a command that must fail for what the user gave."""
    capsys.readouterr()
    assert cli.main([str(a) for a in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dynconv: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    "command",
    [
        "train YAML --run HOME",
        "plot HOME",
        "translate HOME --output HOME/letter.txt",
        "generate HOME",
        "evaluate HOME",
        "experiment TABLE --run HOME",
        "experiment help-de-en-mixers --output HOME/curves.png",
        "data prepare CORPUS --suffixes de en --vocab-size 300 --out HOME",
        "data prepare CORPUS --suffixes de en --vocab-size 300 --out HOME/p",
        "data fetch iwslt14-de-en --from HOME --out HOME",
    ],
)
def test_a_directory_of_the_users(
    home, recipe_file, corpus, tmp_path, monkeypatch, capsys, command
):
    table = tmp_path / "table.yaml"
    table.write_text(
        f"source: '-'\nmetric_in_words: BLEU\nbase: {recipe_file}\nrows: [{{name: a}}]\n"
    )
    paths = {"HOME": home, "YAML": recipe_file, "CORPUS": corpus, "TABLE": table}
    for word, path in paths.items():
        command = command.replace(word, str(path))
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    refused(capsys, *command.split())
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", sorted(MINE))
def test_one_thing_of_the_users_is_enough(recipe, tmp_path, name):
    home = tmp_path / "home"
    write(home, [name])
    before = tree(home)
    with pytest.raises(UserError, match="name another run directory|rename the file"):
        train(recipe, home)
    assert tree(home) == before


def test_a_lock_that_is_no_text_is_the_users(recipe, tmp_path):
    (tmp_path / ".lock").write_bytes(b"\xff\xfe\x00")
    before = tree(tmp_path)
    with pytest.raises(UserError, match="is not a lock of dynconv.*rename the file"):
        train(recipe, tmp_path)
    assert tree(tmp_path) == before


def test_a_new_an_empty_and_an_old_directory(recipe, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        train(recipe, tmp_path / name)
        (tmp_path / name / ".dynconv").unlink()  # as in runs of an earlier version
        train(recipe, tmp_path / name)
    (tmp_path / "new" / "recipe.yaml").unlink()
    with pytest.raises(UserError, match="dynconv did not make it: name another run directory"):
        train(recipe, tmp_path / "new")


def test_a_file_instead_of_a_directory(recipe, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file: is a file, not a directory: name another"):
        claim(tmp_path / "file", "name another")


def test_text_of_the_users_in_a_run_that_has_no_checkpoint_yet(recipe, tmp_path):
    run = tmp_path / "run"
    claim(run, "-")
    encode_corpus(recipe.data.corpus, "de", "en", 300, run / "data")
    (run / "data" / "notes").write_text("mine")
    before = tree(run)
    with pytest.raises(UserError, match="data/notes: not made by dynconv"):
        train(recipe, run)
    assert tree(run) == before
    (run / "data" / "notes").unlink()
    assert train(recipe, run) is None


def test_checkpoints_of_the_users(recipe, tmp_path):
    """Copies under other names, notes in one, and directories that are none of ours."""
    run, more = tmp_path / "run", replace(recipe.train, keep_checkpoints=1)
    train(replace(recipe, train=more), run)
    folder = run / "checkpoints"
    for copy in ("keep", "2024"):
        shutil.copytree(folder / "000010", folder / copy)
    (folder / "average.part").mkdir()
    (folder / "000010" / "notes").write_text("mine")
    (folder / "000003").mkdir()
    (folder / "000003" / "thesis").write_text("chapter 1")
    mine = {name: content for name, content in tree(folder).items()}
    path = run / "recipe.yaml"
    path.write_text(path.read_text().replace("updates: 10", "updates: 25"))
    train(replace(recipe, train=replace(more, updates=25)), run)
    assert mine.items() <= tree(folder).items()
    names = [checkpoint.path.name for checkpoint in CheckpointStore(run).list_readable()]
    assert "000025" in names and "000020" not in names and "2024" not in names


LINKED = [
    "checkpoints",
    "checkpoints/000010",
    "checkpoints/000010/meta.json",
    "checkpoints/.part",
    "data",
    "tensorboard",
    ".lock",
    ".dynconv",
    "recipe.yaml",
    "vocabulary.json",
    "environment.json",
    "log.jsonl",
    "trace.json",
    "test.scores.json",
    "test.hypotheses.txt",
    "curves.png",
]


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A run that is to be copied, and its recipe."""
    from dynconv.config import load_recipe

    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(TINY.format(corpus=corpus), encoding="utf-8")
    recipe = load_recipe(str(folder / "tiny.yaml"))
    train(recipe, folder / "run")
    return recipe, folder / "run"


TINY = """
data: {{corpus: {corpus}, source: de, target: en}}
model:
  vocab_size: 300
  channels: 16
  ffn: 16
  heads: 2
  encoder: {{layers: 1, mixer: dynamic, kernel_size: 3}}
  decoder: {{layers: 1, mixer: dynamic, kernel_size: 3}}
train: {{updates: 10, batch_tokens: 400, warmup: 2, checkpoint_every: 5, precision: float32,
  keep_checkpoints: 1}}
decode: {{beam: 2}}
"""


@pytest.mark.parametrize("name", LINKED)
@pytest.mark.parametrize("state", ["finished", "text only"])
def test_links_in_a_run(trained, tmp_path, name, state):
    """A run that somebody else sent writes and deletes nothing outside of itself."""
    recipe, original = trained
    run, home = tmp_path / "run", tmp_path / "home"
    shutil.copytree(original, run)
    home.mkdir()
    path, outside = run / name, home / "outside"
    if path.exists():
        path.rename(outside)
    else:
        outside.write_text("mine")
    (home / "other").write_text("mine, too")
    if state == "text only" and not name.startswith("checkpoints"):
        shutil.rmtree(run / "checkpoints")
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside)
    before = tree(home)
    recipe = replace(recipe, train=replace(recipe.train, updates=20), profile=True)
    if (run / "recipe.yaml").is_file() and not (run / "recipe.yaml").is_symlink():
        (run / "recipe.yaml").write_text(dump_recipe(recipe))
    refusals = []
    try:
        train(recipe, run)
    except UserError as error:
        refusals.append(str(error))
    cli.main(["evaluate", str(run), "--split", "test"])
    cli.main(["plot", str(run)])
    assert tree(home) == before
    assert all("link" in refusal or "dynconv" in refusal for refusal in refusals), refusals


def test_a_link_that_stays_in_the_run(tmp_path):
    (tmp_path / "run" / "folder").mkdir(parents=True)
    (tmp_path / "run" / "link").symlink_to("folder")
    assert path_inside(tmp_path / "run", "link", "x") == tmp_path / "run" / "link" / "x"
    with pytest.raises(UserError, match="leads out of"):
        path_inside(tmp_path / "run", "link", "..", "..", "x")
    (tmp_path / "shortcut").symlink_to(tmp_path / "run")  # to a run on a larger disk
    assert path_inside(tmp_path / "shortcut", "x")


def test_a_scratch_folder_takes_nothing_of_the_users(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("Dear")
    (tmp_path / "link").symlink_to(tmp_path / "home")
    for name in ("home", "link"):
        with pytest.raises(UserError, match=name), scratch_folder(tmp_path / name):
            pass
    with scratch_folder(tmp_path / "ours") as scratch:
        (scratch / "link").symlink_to(tmp_path / "home")
    assert (tmp_path / "home" / "letter").exists() and not (tmp_path / "ours").exists()


def test_what_is_set_aside_replaces_nothing(tmp_path):
    for content in "abc":
        (tmp_path / "x").write_text(content)
        set_aside(tmp_path / "x")
    assert {name: text.decode() for name, text in tree(tmp_path).items()} == {
        "x.damaged": "a",
        "x.damaged-2": "b",
        "x.damaged-3": "c",
    }


def test_a_full_disk_leaves_the_old_output(trained, corpus, tmp_path, monkeypatch, capsys):
    _, run = trained
    for name in ("out", "out.part", ".out.part"):
        (tmp_path / name).write_text("mine")
    before = tree(tmp_path)

    def fills_up(path, data):
        path.write_bytes(data[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    command = ["translate", run, "--input", corpus / "test.de", "--output", tmp_path / "out"]
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_through", fills_up)
        line = refused(capsys, *command)
    reason = "out: cannot be written (No space left on device)"
    assert line.endswith(f"{reason}; free some space and try again; the old file is untouched\n")
    assert tree(tmp_path) == before
    assert cli.main([str(a) for a in command]) == 0
    assert (tmp_path / "out.part").read_text() == (tmp_path / ".out.part").read_text() == "mine"
    assert len((tmp_path / "out").read_text().splitlines()) == 20


def test_outputs_that_cannot_be_written_are_noticed_before_the_work(tmp_path, recipe_file, capsys):
    missing = tmp_path / "nowhere"
    line = refused(capsys, "translate", tmp_path / "no run", "--output", missing / "out")
    assert f"there is no directory {missing}" in line
    line = refused(capsys, "translate", tmp_path / "no run", "--output", tmp_path)
    assert "is a directory; name a file" in line
    line = refused(capsys, "experiment", "help-de-en-mixers", "--output", tmp_path / "o.png")
    assert "o.png: this is the plot's name; name the file of numbers NAME.json" in line


def test_a_run_where_writing_is_not_allowed(trained, corpus, recipe_file, monkeypatch, capsys):
    _, run = trained
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    line = refused(capsys, "evaluate", run, "--corpus", corpus)
    assert f"no permission to write there; allow it by chmod u+w {run}, or evaluate" in line
    line = refused(capsys, "train", recipe_file, "--run", run)
    assert f"allow it by chmod u+w {run}, or name another run directory" in line


def test_an_experiment_without_a_test_split_is_noticed_before_training(
    corpus, recipe, tmp_path, capsys
):
    text = tmp_path / "text"
    shutil.copytree(corpus, text)
    for side in ("de", "en"):
        (text / f"test.{side}").unlink()
    base, table = tmp_path / "base.yaml", tmp_path / "table.yaml"
    base.write_text(dump_recipe(replace(recipe, data=replace(recipe.data, corpus=str(text)))))
    table.write_text(f"source: '-'\nmetric_in_words: BLEU\nbase: {base}\nrows: [{{name: a}}]\n")
    command = ["experiment", table, "--run", tmp_path / "runs", "--output", tmp_path / "o.json"]
    assert "no test.de" in refused(capsys, *command)
    assert not list(tmp_path.glob("runs/*")) and not (tmp_path / "o.json").exists()


def test_replaced_files_leave_no_others(tmp_path):
    replace_text(tmp_path / "out.json", json.dumps([]))
    replace_text(tmp_path / "out.json", json.dumps([1]))
    assert tree(tmp_path) == {"out.json": b"[1]"}
