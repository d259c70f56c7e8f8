"""Files of a run that are well-formed, but not what dynconv wrote: one line, and no nonsense."""

import hashlib
import json
import math
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save

from dynconv import cli
from dynconv.config import DataConfig, Recipe, Seq2SeqConfig, StackConfig, TrainConfig, dump_recipe
from dynconv.lab.experiment.run import Run
from dynconv.schema_errors import field_types
from dynconv.text import encode_corpus, open_prepared
from dynconv.train import loop, train
from dynconv.train.checkpoint import CheckpointMeta

WAYS = {
    "null": None,
    "text": "x",
    "negative": -1,
    "huge": 10**30,
    "NaN": math.nan,
    "list": [],
    "true": True,
}
"""what stands in place of a field"""
ANY = {"NaN", "negative", "huge"}
"""numbers that a diverged model may have"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory, corpus):
    """A run of two updates, and its recipe with four."""
    folder = tmp_path_factory.mktemp("trained")
    stack = StackConfig(1, "dynamic", 3)
    size = {"vocab_size": 300, "channels": 16, "ffn": 16, "heads": 2}
    schedule = {"updates": 2, "warmup": 1, "checkpoint_every": 1, "batch_tokens": 400}
    recipe = Recipe(
        data=DataConfig(corpus=str(corpus)),
        model=Seq2SeqConfig(**size, encoder=stack, decoder=stack),
        train=TrainConfig(**schedule, precision="float32"),
    )
    train(recipe, folder / "run")
    text = dump_recipe(recipe).replace("updates: 2", "updates: 3")
    (folder / "longer.yaml").write_text(text)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained / "run", tmp_path / "run")


def longer(trained, run):
    """Let the run go on to a third update; the arguments of the command that does."""
    recipe = (trained / "longer.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe)
    (run.parent / "longer.yaml").write_text(recipe)
    return ["train", str(run.parent / "longer.yaml"), "--run", str(run)]


def told(capsys, arguments) -> str:
    """The one line of a command that must fail."""
    capsys.readouterr()
    assert cli.main([str(a) for a in arguments]) == 2
    lines = [x for x in capsys.readouterr().err.splitlines() if not x.startswith("update ")]
    assert len(lines) == 1 and lines[0].startswith("dynconv: "), lines
    return lines[0]


def damage(path, field: str, way: str) -> None:
    tree = json.loads(path.read_text())
    last = tree[-1] if isinstance(tree, list) else tree
    if way == "missing":
        del last[field]
    else:
        last[field] = WAYS[way]
    path.write_text(json.dumps(tree))


ACCEPTED_META = {
    "loss": ANY,
    "score": ANY,
    "metric": {"missing", "text"},
    "history": {"missing", "list"},
    "device": {"text"},
    "text": {"text"},  # which only training compares
    "update": set(),
}


@pytest.mark.parametrize("way", ["missing", *WAYS])
@pytest.mark.parametrize("field", field_types(CheckpointMeta))
def test_a_damaged_field_of_meta_json(run, field, way, tmp_path, capsys):
    name = "000002"
    path = run / "checkpoints" / name / "meta.json"
    damage(path, field, way)
    (tmp_path / "in.de").touch()
    command = ["translate", run, "--checkpoint", name, "--input", tmp_path / "in.de"]
    if way in ACCEPTED_META.get(field, ()):
        assert cli.main([str(a) for a in command]) == 0
        return
    line = told(capsys, command)
    assert str(path.parent) in line
    if (field, way) not in {("vocabulary", "text")}:  # text that is of another vocabulary
        assert field in line


@pytest.mark.parametrize("way", ["missing", *WAYS])
@pytest.mark.parametrize("field", ["position", "batches", "history", "text", "update"])
def test_training_goes_back_beyond_a_damaged_meta_json(trained, run, field, way, capsys):
    path = run / "checkpoints" / "000002" / "meta.json"
    damage(path, field, way)
    arguments = longer(trained, run)
    if (field, way) == ("text", "text"):
        assert "not the text with which" in told(capsys, arguments)
    else:
        assert cli.main(arguments) == 0
        went_back = "going back to the checkpoint before it" in capsys.readouterr().err
        assert went_back == (way not in ACCEPTED_META.get(field, ()))


@pytest.mark.parametrize("text", ["[]", "7", '"x"', "null", "[" * 100_000, "{", "\xff", ""])
def test_a_meta_json_of_another_kind(run, text, capsys):
    path = run / "checkpoints" / "000002" / "meta.json"
    path.write_bytes(text.encode("latin-1"))
    assert str(path) in told(capsys, ["evaluate", run, "--checkpoint", "000002"])


def replace_file(run, name: str, data: bytes) -> None:
    """Replace a file of the newest checkpoint, with its checksum."""
    folder = run / "checkpoints" / "000002"
    (folder / name).write_bytes(data)
    meta = json.loads((folder / "meta.json").read_text())
    meta["sha256"][name] = hashlib.sha256(data).hexdigest()
    (folder / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize("kind", ["pickle", "empty", "header", "integer", "half", "shape", "less"])
def test_weights_of_another_kind(run, kind, capsys):
    weights = load_file(run / "checkpoints/000002/model.safetensors")
    name = next(iter(weights))
    data = {
        "pickle": lambda: pickle.dumps(weights[name].tolist()),
        "empty": lambda: b"",
        "header": lambda: (2**60).to_bytes(8, "little"),
        "integer": lambda: save({k: v.long() for k, v in weights.items()}),
        "half": lambda: save({k: v.half() for k, v in weights.items()}),
        "shape": lambda: save(weights | {name: weights[name][:1].clone()}),
        "less": lambda: save({k: v for k, v in weights.items() if k != name}),
    }[kind]()
    replace_file(run, "model.safetensors", data)
    line = told(capsys, ["translate", run, "--checkpoint", "000002"])
    assert "checkpoints/000002" in line


def change(state: dict, kind: str) -> object:
    moments = state["optimizer"]["state"]
    if kind == "list":
        return [state]
    if kind == "empty":
        return {}
    if kind == "no state":
        del state["optimizer"]["state"]
    if kind == "none of it":
        moments.clear()
    if kind == "shape":
        moments[0]["exp_avg"] = moments[0]["exp_avg"][:1].clone()
    if kind == "integers":
        moments[0]["exp_avg"] = moments[0]["exp_avg"].long()
    if kind == "numbers":
        moments[0]["exp_avg"] = 1.0
    if kind == "another optimizer":
        state["optimizer"]["state"] = {0: {"momentum_buffer": moments[0]["exp_avg"]}}
    if kind == "another model":
        moments[1000] = moments[0]
    if kind == "scaler":
        state["scaler"] = {"scale": 2.0}
    return state


STATES = ["list", "empty", "no state", "none of it", "shape", "integers", "numbers"]
STATES += ["another optimizer", "another model", "scaler"]


@pytest.mark.parametrize("kind", STATES)
def test_a_state_of_another_kind(trained, run, kind, tmp_path, capsys):
    path = run / "checkpoints/000002/state.pt"
    torch.save(change(torch.load(path), kind), tmp_path / "state.pt")
    replace_file(run, "state.pt", (tmp_path / "state.pt").read_bytes())
    shutil.rmtree(run / "checkpoints/000001")
    arguments = longer(trained, run)
    capsys.readouterr()
    assert cli.main(arguments) == 2
    lines = [x for x in capsys.readouterr().err.splitlines() if not x.startswith("update ")]
    assert str(path) in lines[0] and all(line.startswith("dynconv: ") for line in lines)


@pytest.mark.parametrize("way", ["missing", *WAYS])
@pytest.mark.parametrize(
    "field",
    ["format", "corpus", "source", "target", "lines", "source_tokens", "target_tokens"]
    + ["vocab_size", "kind", "dtype", "files"],
)
def test_a_damaged_field_of_prepared_json(trained, run, field, way, tmp_path, capsys):
    path = run / "data" / "prepared.json"
    damage(path, field, way)
    shutil.rmtree(run / "checkpoints")
    (run / "recipe.yaml").unlink()
    corpus = shutil.move(run / "data", tmp_path / "text")
    arguments = ["train", trained / "longer.yaml", f"data.corpus={corpus}"]
    arguments += ["train.updates=1", "--run", tmp_path / "new"]
    if (field, way) == ("corpus", "text"):
        assert cli.main([str(a) for a in arguments]) == 0
    else:
        assert str(corpus) in told(capsys, arguments)


@pytest.mark.parametrize("what", ["source_tokens", "lines", "dtype", "bytes", "name"])
def test_counts_that_were_edited(run, what):
    path = run / "data" / "prepared.json"
    tree = json.loads(path.read_text())
    if what == "dtype":
        tree["dtype"] = "uint32"
    elif what == "bytes":
        tree["files"]["train.bounds"]["bytes"] = "many"
    elif what == "name":
        del tree["files"]["train.tokens"]
    else:
        tree[what] -= 1
    path.write_text(json.dumps(tree))
    with pytest.raises(ValueError, match=r"prepared\.json: .*: prepare it again"):
        open_prepared(path.parent, verify=False)


@pytest.mark.parametrize("what", ["token", "bound"])
def test_numbers_that_were_edited_with_their_checksum(run, what):
    folder = run / "data"
    tree = json.loads((folder / "prepared.json").read_text())
    name, number = (
        ("train.tokens", b"\xff\xff") if what == "token" else ("train.bounds", b"\xff" * 8)
    )
    data = bytearray((folder / name).read_bytes())
    data[16 : 16 + len(number)] = number
    (folder / name).write_bytes(data)
    tree["files"][name]["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / "prepared.json").write_text(json.dumps(tree))
    words = "id 65535, beyond vocab_size 300" if what == "token" else "not increasing offsets"
    with pytest.raises(ValueError, match=f"{name}: .*{words}.*prepare it again"):
        open_prepared(folder, verify=True)


@pytest.mark.parametrize("way", ["missing", "null", "text", "negative", "huge", "list"])
@pytest.mark.parametrize("field", ["event", "update", "loss"])
def test_a_damaged_line_of_the_log(run, field, way, tmp_path, capsys):
    path = run / "log.jsonl"
    event = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps(event) + "\n")
    damage(path, field, way)
    path.write_text(path.read_text() + "\n")
    command = ["plot", run, "--output", tmp_path / "out.png"]
    legal = {("event", "text"), ("loss", "missing"), ("loss", "negative"), ("loss", "huge")}
    if (field, way) in legal:
        assert cli.main([str(a) for a in command]) == 0
    else:
        line = told(capsys, command)
        assert f"{path}, line 1: {field}" in line and "training does not need it" in line


@pytest.mark.parametrize("content", ["7", '"x"', "[7]", '[{"threads": -1}]', "{}", "{"])
def test_a_damaged_environment_json(trained, run, content, capsys):
    (run / "environment.json").write_text(content)
    line = told(capsys, longer(trained, run))
    assert f"{run / 'environment.json'}: " in line and "remove it" in line


@pytest.mark.parametrize(
    "content",
    ["7", "[]", "{", '{"score": "x"}', '{"score": null}', '{"starts": [-1]}', '{"metrics": 1}'],
)
def test_damaged_results_of_an_experiment(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=r"results\.json: .*: remove it, and the row is scored"):
        assert Run("row", 1, None, tmp_path).results


def spoil(tree: dict, what: str) -> None:
    model, types = tree["model"], tree["model"]["vocab"]
    if what == "gap":
        types[next(reversed(types))] = 10**6
    elif what == "specials":
        types["<pad>"], types["<eos>"] = 1, 0
    elif what == "stride":  # the tokenizer's code would abort when it encodes
        tree["truncation"] = {"direction": "Right", "max_length": 1, "stride": 5}
        tree["truncation"]["strategy"] = "LongestFirst"
    elif what == "prefix":  # it would abort when it loads
        model["continuing_subword_prefix"] = "éééééééé"
    elif what == "merges":
        model["merges"] = [["x"]]
    else:
        tree[what] = []


SPOILT = ["gap", "specials", "stride", "prefix", "merges", "model", "pre_tokenizer", "decoder"]


@pytest.mark.parametrize("what", SPOILT)
def test_a_vocabulary_that_dynconv_does_not_write(run, corpus, what, tmp_path, capsys):
    path = run / "vocabulary.json"
    tree = json.loads(path.read_text())
    spoil(tree, what)
    path.write_text(json.dumps(tree))
    arguments = ["data", "prepare", corpus, "--suffixes", "de", "en", "--reuse", path]
    line = told(capsys, [*arguments, "--out", tmp_path / "out"])
    assert f"{path}: not a readable vocabulary" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["own", "prepared"])
def test_a_relative_corpus_that_means_another_text_elsewhere(
    trained, corpus, kind, tmp_path, monkeypatch, capsys
):
    """A run has its own copy of the text; of a prepared corpus the checksum is compared."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    recipe = str(trained / "longer.yaml")
    for folder in (here, there):
        shutil.copytree(corpus, folder / "text")
    for side in ("de", "en"):
        path = there / "text" / f"train.{side}"
        path.write_text("eins\n" * 100 + path.read_text())
        (there / "text" / f"test.{side}").write_text("eins\n" * 7)
    arguments = ["data.corpus=text"]
    if kind == "prepared":
        for folder in (here, there):
            encode_corpus(str(folder / "text"), "de", "en", 300, folder / "prepared")
        arguments = ["data.corpus=prepared"]
    monkeypatch.chdir(here)
    assert cli.main(["train", recipe, *arguments, "train.updates=1", "--run", "run"]) == 0
    assert cli.main(["evaluate", "run", "--beam", "1"]) == 0
    monkeypatch.chdir(there)
    if kind == "own":
        assert cli.main(["evaluate", str(here / "run"), "--beam", "1"]) == 0
        scores = json.loads((here / "run" / "test.scores.json").read_text())
        assert (scores["corpus"], scores["sentences"]) == ("text", 20)
    else:
        line = told(capsys, ["evaluate", here / "run"])
        assert (
            f"{there / 'prepared'}: not the text with which" in line and "name the corpus" in line
        )


@pytest.mark.parametrize("update", [1, 2])
def test_a_run_directory_that_is_removed_while_training_runs(
    trained, update, tmp_path, monkeypatch, capsys
):
    run, calls, original = tmp_path / "run", [], loop.make_update

    def remove(*arguments):
        calls.append(1)
        if len(calls) == update:
            shutil.rmtree(run)
        return original(*arguments)

    monkeypatch.setattr(loop, "make_update", remove)
    assert f"{run}: deleted or moved while training" in told(
        capsys, ["train", trained / "longer.yaml", "train.checkpoint_every=2", "--run", run]
    )
    assert not run.exists()
