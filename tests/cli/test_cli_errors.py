"""Clumsy uses of the command line: each ends in one line that names what is wrong.

A case is a command, as one would type it in the directory that `workplace` makes, and a word that
the line has. Nothing in that directory changes.
"""

import errno
import gzip
import lzma
import shlex
import shutil
from pathlib import Path

import pytest

from dynconv import cli
from dynconv.cli.parser import refuse_repeated
from dynconv.config import (
    DataConfig,
    LanguageModelConfig,
    Recipe,
    Seq2SeqConfig,
    StackConfig,
    TrainConfig,
    dump_recipe,
)
from dynconv.errors import UserError
from dynconv.text import encode_corpus
from dynconv.train import train


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, corpus):
    """A directory with text, two runs, recipes, and files that are not what they seem."""
    folder = tmp_path_factory.mktemp("workplace")
    shutil.copytree(corpus, folder / "text")
    stack = StackConfig(1, "dynamic", 3)
    size = {"vocab_size": 300, "channels": 16, "ffn": 16, "heads": 2}
    schedule = {"updates": 1, "warmup": 1, "checkpoint_every": 1, "batch_tokens": 400}
    config = TrainConfig(**schedule, precision="float32")
    model = Seq2SeqConfig(**size, encoder=stack, decoder=stack)
    tiny = Recipe(data=DataConfig(corpus=str(folder / "text")), model=model, train=config)
    language = Recipe(
        data=DataConfig(corpus=str(folder / "text"), source=None),
        model=LanguageModelConfig(**size, decoder=stack),
        train=TrainConfig(**schedule, precision="float32", label_smoothing=0.0),
        metric="perplexity",
    )
    for name, recipe in {"tiny": tiny, "language": language}.items():
        (folder / f"{name}.yaml").write_text(dump_recipe(recipe))
        train(recipe, folder / f"{name}-run")
    encode_corpus(str(corpus), "de", "en", 300, folder / "prepared")
    (folder / "directory").mkdir()
    (folder / "mine").mkdir()
    files = {
        "empty": b"",
        "one": b"eins\n",
        "two": b"eins\nzwei\n",
        "latin": "schön\n".encode("latin-1"),
        "line": b"ein wort " * 200_000 + b"\n",
        "word": b"eins\n" + b"x" * 20_000 + b"\n",
        "words": b"wort " * 6_000 + b"\n",
        "bomb.gz": gzip.compress(b"a" * 5_000_000),
        "bomb.xz": lzma.compress(b"a" * 5_000_000),
        "plain.gz": b"eins\n",
        "plain.xz": b"eins\n",
        "cut.gz": gzip.compress(b"eins\n" * 100)[:-9],
        "cut.xz": lzma.compress(b"eins\n" * 100)[:-9],
        "broken.yaml": b"train: [\n",
        "list.yaml": b"- 1\n",
        "latin.yaml": "# schön\n".encode("latin-1"),
        "circle.yaml": b"base: circle.yaml\n",
        "orphan.yaml": b"base: nowhere\n",
        "unknown.yaml": b"trian: {}\n",
        "mine/trials.log": b"my trials\n",
        "rates.yaml": b"settings: {train.lr: [1e-3, 2e-3]}",
        "space.yaml": b"settings: {}",
        "choices.yaml": b"settings: {train.lr: []}",
        "mine.json": b'{"what": "a result of mine"}',
        "photo.png": b"\x89PNG",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    for spoilt in ("empty", "latin", "line", "word", "bomb.gz", "cut.xz"):
        (corpus := folder / "corpora" / spoilt).mkdir(parents=True)
        for file in (folder / "text").iterdir():
            shutil.copyfile(file, corpus / file.name)
        (corpus / "train.de").unlink()
        shutil.copyfile(folder / spoilt, corpus / f"train.de{Path(spoilt).suffix}")
    shutil.copytree(folder / "text", folder / "corpora" / "untested")
    for file in (folder / "corpora" / "untested").glob("test.*"):
        file.unlink()
    (folder / "loop").symlink_to("loop")
    rows = "source: a\nmetric_in_words: b\nbase: {}\nrows:\n- {{name: a}}\n"
    (folder / "table.yaml").write_text(rows.format(folder / "tiny.yaml"))
    return folder


SETTINGS = """
train.updates=0 train.updates=-3 train.updates=many train.updates=1.5 train.updates=true
train.updates=null train.updates=[] train.updates=99999999999999999999999999
train.lr=-1 train.lr=fast train.lr=.nan train.lr=.inf train.lr=true train.lr=[1]
train.warmup=-1 train.warmup=7 train.schedule=linear train.optimizer=sgd
train.betas=[1,2] train.betas=0.9 train.betas=[0.9] train.eps=-1 train.weight_decay=-1
train.label_smoothing=1 train.label_smoothing=-0.5 train.label_smoothing=.nan train.clip_norm=0
train.batch_tokens=0 train.batch_sentences=0 train.accumulate=0 train.checkpoint_every=0
train.patience=0 train.keep_checkpoints=0 train.average_checkpoints=-1
train.average_checkpoints=9 train.precision=int8 train.max_skipped=-1
train.seed=-1 train.seed=99999999999999999999 train.timeout=0
model.vocab_size=0 model.vocab_size=-5 model.vocab_size=[300] model.channels=0
model.channels=-16 model.channels=17 model.ffn=0 model.ffn=big model.heads=0 model.heads=5
model.dropout=1 model.dropout=-0.1 model.architecture=rnn model.norm=batch
model.encoder.layers=0 model.encoder.mixer=lstm model.encoder.kernel_size=0
model.encoder.kernel_size=[3,5]
data.block_size=5 data.vocabulary=letters data.corpus=3
data.max_source_tokens=1 data.max_example_tokens=0
decode.beam=0 decode.lenpen=.nan decode.lenpen=x decode.min_tokens=0 decode.max_tokens=0
decode.no_repeat_ngram_size=-1 decode.context_window=-5 decode.batch_tokens=0 decode.dictionary=one
metric=accuracy profile=maybe profile=1
trian.lr=1 train.lrr=1 train.lr.x=1 lr=1
""".split()

FILES = """
translate nowhere | nowhere
translate one | one
translate directory | directory
translate text | text
translate language-run | language model
translate tiny-run extra | 'extra': write it as key=value
translate tiny-run train.lr=1 | train.lr was fixed when the model was trained: leave it out
translate tiny-run decode=1 | decode was fixed
translate tiny-run decode.min_tokens=-1 | decode.min_tokens -1 must be a whole number
translate tiny-run decode.context_window=5 | decode.context_window 5 has no effect
evaluate tiny-run --beam 3 decode.beam=4 | decode.beam=4 and decode.beam=3 replace the same entry
evaluate tiny-run decode.bean=3 | unknown key decode.bean; did you mean beam?
evaluate language-run decode.min_tokens=3 | beam search is for translators; leave it out
translate tiny-run --checkpoint 7 | 7
translate tiny-run --checkpoint nowhere | nowhere
translate tiny-run --checkpoint ../nowhere | nowhere
translate tiny-run --input nowhere | nowhere: no such file
translate tiny-run --input loop | loop
translate tiny-run --input one --output loop | loop
translate tiny-run --input loop --output out | loop
translate tiny-run --input directory | directory
translate tiny-run --input latin | latin, line 1: not valid UTF-8
translate tiny-run --input line | line, line 1: longer than 1,000,000 bytes
translate tiny-run --input word | word, line 2: a word of more than 10,000 bytes
translate tiny-run --input bomb.gz | bomb.gz, line 1: longer than 1,000,000 bytes
translate tiny-run --input bomb.xz | bomb.xz, line 1: longer than 1,000,000 bytes
translate tiny-run --input plain.gz | plain.gz: truncated or corrupt
translate tiny-run --input plain.xz | plain.xz: truncated or corrupt
translate tiny-run --input cut.gz | cut.gz: truncated or corrupt
translate tiny-run --input cut.xz | cut.xz: truncated or corrupt
translate tiny-run --input one --output directory | directory
translate tiny-run --input one --output nowhere/out | nowhere
translate tiny-run --input one --output one | one: is also the input
translate tiny-run --input one --output directory/../one | one: is also the input
translate tiny-run --input one --output tiny-run/recipe.yaml | recipe.yaml: already exists
translate tiny-run --input one --output tiny-run/checkpoints/000001/meta.json | json: already
generate nowhere | nowhere
generate one | one
generate tiny-run | translation model
generate language-run --checkpoint 7 | 7
generate language-run --temperature -1 | -1
generate language-run --temperature nan | nan
generate language-run --temperature inf | inf
generate language-run --top-p 0 | top-p: 0
generate language-run --top-p 2 | top-p: 2
generate language-run --top-p nan | 'nan' must be
generate language-run --temperature 0 --top-k 5 | top_k 5 has no effect
generate language-run --temperature 0 --top-p 0.9 | top_p 0.9 has no effect
generate language-run --temperature 0 --samples 3 | samples 3 has no effect
evaluate nowhere | nowhere
evaluate tiny-run --corpus '' | the name of the corpus is empty
evaluate directory | directory
evaluate prepared | prepared
evaluate tiny-run --split tset | there are the splits test, valid
evaluate tiny-run --split tset --corpus text | there are the splits test, train, valid
evaluate tiny-run --split ../text/test | '../text/test' is not a split
evaluate tiny-run --split .. | '..' is not a split
evaluate tiny-run --split . | '.' is not a split
evaluate tiny-run --split '' | '' is not a split
evaluate tiny-run --corpus nowhere | nowhere
evaluate tiny-run --corpus one | one
evaluate tiny-run --corpus directory | directory
evaluate tiny-run --corpus corpora/untested | no test.de
evaluate tiny-run --checkpoint 7 | 7
evaluate language-run --split tset | tset
evaluate language-run --corpus nowhere | nowhere
evaluate language-run --corpus directory | directory
score nowhere one | nowhere
score one nowhere | nowhere
score one two | one has 1 lines but two has 2
score two one | two has 2 lines but one has 1
score empty one | empty
score one empty | empty
score latin one | latin
score one latin | latin
score directory one | directory: is a directory; name a file
score line one | line, line 1
score one word | word, line 2
score bomb.gz one | bomb.gz, line 1
score one bomb.xz | bomb.xz, line 1
score cut.gz one | cut.gz
score plain.xz one | plain.xz
score --metric rouge words one | line 1 has 6,000 words
score one words --metric rouge | line 1 has 6,000 words
score two two --metric rouge --metric rouge-75 --lowercase | ROUGE always ignores case
score two two two | bleu reads one file of references, not 2: give only the first
score two two two --metric rouge | rouge reads one file of references, not 2: give only the first
score two two one --metric rouge-75 | two has 2 lines but one has 1
score one one --metric blue | no metric 'blue'; did you mean bleu?
plot nowhere --output out.png | nowhere
plot directory --output out.png | directory
plot one --output out.png | one
plot tiny-run --output out.xyz | out.xyz
plot tiny-run --output out | out
plot tiny-run --output nowhere/out.png | nowhere
plot tiny-run nowhere --output out.png | nowhere
train nowhere --run r | nowhere
train --list nowhere | recipe nowhere has no effect
train tiny.yaml --list | recipe tiny.yaml has no effect
train --list --run r | run r has no effect
train '' --run r | no recipe ''
train tiny.yaml --run r data.corpus= | data.corpus
train directory --run r | directory
train broken.yaml --run r | broken.yaml
train list.yaml --run r | list.yaml
train latin.yaml --run r | latin.yaml
train circle.yaml --run r | circle
train orphan.yaml --run r | nowhere
train unknown.yaml --run r | train
train one --run r | one
train empty --run r data.corpus=nowhere | nowhere
train tiny.yaml --run r =3 | write it as key=value
train tiny.yaml --run r train..lr=1 | 'train..lr=1': write it as key=value
train tiny.yaml --run r .train.lr=1 | '.train.lr=1': write it as key=value
train tiny.yaml --run r train.=1 | 'train.=1': write it as key=value
train tiny.yaml train.lr=1e-3 --run r train.lr=2e-3 | train.lr=1e-3 and train.lr=2e-3
train tiny.yaml --run one | one: is a file, not a directory: name another run directory
train tiny.yaml --run r data.corpus=nowhere | nowhere
train tiny.yaml --run r data.corpus=one | one
train tiny.yaml --run r data.corpus=directory | directory
train tiny.yaml --run one/run | one/run: cannot be written (Not a directory); name another run
train tiny.yaml --run loop | loop
train tiny.yaml --run /proc/run | /proc/run: cannot be written
train tiny.yaml --run r data.source=../de | '../de' is not the suffix
train tiny.yaml --run r data.target='""' | '' is not the suffix
train tiny.yaml --run r data.source=xx | train.xx
train tiny.yaml --run r data.target=xx | train.xx
train tiny.yaml --run r data.corpus=corpora/empty | the file is empty
train tiny.yaml --run r data.corpus=corpora/latin | latin/train.de, line 1: not valid UTF-8
train tiny.yaml --run r data.corpus=corpora/line | line/train.de, line 1: longer
train tiny.yaml --run r data.corpus=corpora/word | word/train.de, line 2: a word
train tiny.yaml --run r data.corpus=corpora/bomb.gz | train.de.gz, line 1: longer
train tiny.yaml --run r data.corpus=corpora/cut.xz | train.de.xz: truncated or corrupt
train tiny.yaml --run r data.corpus=prepared model.vocab_size=299 | 299
train tiny.yaml --run r data.corpus=prepared data.source=fr | fr
train tiny.yaml --run r data.corpus=prepared data.vocabulary=words | words
train tiny.yaml --run r model.vocab_size=100 | 100
train tiny.yaml --run r model.vocab_size=100000 | 100000
train tiny.yaml --run tiny-run train.seed=2 | train.seed 2, not 1
train tiny.yaml --run tiny-run model.ffn=32 | model.ffn 32, not 16
train tiny.yaml --run language-run | another recipe
train tiny.yaml --run r lr | 'lr'
train tiny.yaml --run r train.lr=[ | train.lr=[
train help-de-en-dynamc --run r | did you mean
train wu2019-table6:nothing --run r | nothing
estimate nowhere | nowhere
estimate broken.yaml | broken.yaml
estimate tiny.yaml train.lr=fast | fast
experiment nowhere | nowhere
experiment broken.yaml | broken.yaml
experiment tiny.yaml | tiny.yaml
experiment wu2019-table6 train.seed=3 | train.seed
experiment wu2019-table6 --output nowhere/out.json | nowhere
experiment --list nowhere | name nowhere has no effect
experiment table.yaml --run r --output tiny-run/environment.json | environment.json: already exists
experiment table.yaml --run r --output tiny-run/log.jsonl | log.jsonl: already exists
experiment table.yaml --run r --output tiny-run/checkpoints/000001/state.pt | state.pt: already
experiment table.yaml --run r --output one | one: already exists
experiment table.yaml --run r --output mine.json | mine.json: already exists
experiment table.yaml --run r --output photo.json | photo.png: already exists
tune tiny.yaml --run r --output mine.json | mine.json: already exists
tune tiny.yaml --run mine --space rates.yaml --output out.json | trials.log: no log of trials
tune tiny.yaml --run r --space space.yaml --output out.json | settings is empty
tune tiny.yaml --run r --space choices.yaml --output out.json | settings.train.lr is empty
bench train tiny.yaml --output tiny-run/recipe.yaml | recipe.yaml: already exists
bench ops --output two | two: already exists
experiment table.yaml data.corpus=corpora/untested --run r --output out.json | no test.de
data fetch nothing | nothing
data prepare nothing | nothing
data prepare text | suffixes
data prepare directory --suffixes de en --out out | train.de
data prepare text --suffixes de xx --out out | train.xx
data prepare text --suffixes a b c --out out | a b c
data prepare text --suffixes '' en --out out | '' is not the suffix
data prepare text --suffixes de ../en --out out | '../en' is not the suffix
data prepare loop --suffixes de en --out out | loop
data prepare text --suffixes de en --vocab-size 300 --out loop | loop
data prepare text --suffixes de de --out out | suffixes de de: name two different ones
data prepare text --suffixes de en --vocab-size 1 2 3 --out out | 1 2 3
data prepare text --suffixes de en --vocab-size 5 --out out | 5
data prepare text --suffixes de en --vocab-size 99999 --out out | 99999
data prepare text --suffixes de en --reuse nowhere --out out | nowhere
data prepare text --suffixes de en --reuse one --out out | one: not a readable vocabulary
data prepare text --suffixes de en --reuse empty --out out | empty: not a readable vocabulary
data prepare text --suffixes de en --vocab-size 300 --out one | one
data prepare text --suffixes de en --vocab-size 300 --out one/out | (Not a directory); name another
data prepare text --suffixes de en --vocab-size 300 --out directory/../text | text
data prepare text --suffixes de en --vocab-size 300 --out prepared | prepared
data prepare corpora/word --suffixes de en --vocab-size 300 --out out | line 2: a word
data prepare corpora/latin --suffixes de en --vocab-size 300 --out out | line 1: not valid
score two two --language de | --language de has no effect on bleu
score two two --metric bleu-detokenized --language qq | no language 'qq'; there are
score two two --metric bleu-detokenized --language german | no language 'german'
train tiny.yaml --dry-run --run r | --run r has no effect
bench decode nowhere | nowhere
bench decode language-run | language model
""".strip().splitlines()

PARSED = """
nothing | nothing
trian | did you mean train?
bench op | did you mean ops?
data prepare text --vocabulary byte | did you mean bytes?
train | are required: recipe: dynconv train --help
translate | RUN
translate tiny-run --beam 0 | 0
translate tiny-run --beam -1 | --beam
translate tiny-run --beam x | x
translate tiny-run --beam 1.5 | 1.5
translate tiny-run --lenpen x | x
translate '' | argument RUN: '' is empty
translate tiny-run --input '' | argument --input: '' is empty
translate tiny-run --output '' | argument --output: '' is empty
train tiny.yaml --run '' | argument --run/--run-dir: '' is empty
translate tiny-run --nothing | --nothing
generate language-run --samples 0 | 0
generate language-run --max-tokens x | x
generate language-run --top-k 0 | 0
generate language-run --seed x | x
evaluate tiny-run --beam 0 | 0
score one | REFERENCES
plot | RUN
estimate tiny.yaml --memory -1 | -1
estimate tiny.yaml --memory nan | nan
estimate tiny.yaml --gpus 0 | 0
experiment wu2019-table6 --seeds 0 | 0
data nothing | nothing
data prepare text --vocabulary letters | letters
data prepare text --vocab-size 0 | 0
bench nothing | nothing
train tiny.yaml --nothing | --nothing
""".strip().splitlines()


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file."""
    files = {str(path): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in files.items()}


def fails_in_one_line(command: str, word: str, workplace, monkeypatch, capsys) -> None:
    monkeypatch.chdir(workplace)
    before, folders = snapshot(workplace), sorted(workplace.rglob("*"))
    capsys.readouterr()
    assert cli.main(shlex.split(command)) == 2
    output, error = capsys.readouterr()
    assert error.startswith("dynconv: ") and error.count("\n") == 1, error
    assert word in error and len(error) < 1000, error
    assert output == "" or command.startswith("experiment")
    assert snapshot(workplace) == before and sorted(workplace.rglob("*")) == folders


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_bad_setting_is_one_line(setting, workplace, monkeypatch, capsys):
    command = f"train tiny.yaml --run r '{setting}'"
    section, *keys = setting.partition("=")[0].split(".")
    word = keys[0] if section in ("data", "model", "train", "decode") else section
    fails_in_one_line(command, word, workplace, monkeypatch, capsys)


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_is_one_line(case, workplace, monkeypatch, capsys):
    command, word = case.split(" | ")
    fails_in_one_line(command, word, workplace, monkeypatch, capsys)


@pytest.mark.parametrize("case", PARSED)
def test_a_bad_option_is_one_line(case, workplace, monkeypatch, capsys):
    """A wrong value is refused in one line; what is missing or unknown comes with the usage."""
    command, word = case.split(" | ")
    monkeypatch.chdir(workplace)
    before = snapshot(workplace)
    try:
        code = cli.main(shlex.split(command))
    except SystemExit as exit:
        code = exit.code
    error = capsys.readouterr().err
    assert code == 2 and word in error.splitlines()[-1]
    assert error.startswith("dynconv: argument ") == (error.count("\n") == 1)
    assert error.startswith(("dynconv: argument ", "usage: dynconv"))
    assert snapshot(workplace) == before


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("recipe.yaml: wrong"), 2),
        (OSError(errno.ENOSPC, "No space left on device", "log.jsonl"), 2),
        (ModuleNotFoundError("no cupy", name="cupy"), 2),
        (OSError(errno.ENOSPC, "No space left on device"), 1),  # of stdout
        (MemoryError(), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_the_exit_code_says_whose_mistake_it_is(error, code, monkeypatch, capsys):
    def fails(arguments):
        raise error

    monkeypatch.setattr(cli, "execute", fails)
    monkeypatch.setattr(cli, "discard_stdout", lambda: None)
    assert cli.main([]) == code
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("second", ["train.updates=6", "train={updates: 6}", "train=6"])
def test_an_entry_is_replaced_once(second):
    first = "train={updates: 7}"
    refuse_repeated([first, "train.lr=1", "model={heads: 2}"])
    with pytest.raises(UserError, match="replace the same entry: keep one"):
        refuse_repeated([first, second])
