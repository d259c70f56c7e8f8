"""Fixtures that several tests share."""

import os
import random
from dataclasses import replace
from pathlib import Path

# The models are tiny. PyTorch reads this when it is loaded; commands and notebooks inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Deterministic matrix products on a GPU need this.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest  # noqa: E402
from helpers.forked import start_kernel  # noqa: E402
from jupyter_client.provisioning import local_provisioner  # noqa: E402

from dynconv.config import (  # noqa: E402
    DataConfig,
    DecodeConfig,
    Recipe,
    Seq2SeqConfig,
    StackConfig,
    TrainConfig,
    dump_recipe,
)
from dynconv.models.mixers import require_mixer  # noqa: E402

ROOT = Path(__file__).parents[1]

# The lessons' kernels are forked, too; `pytest lessons/NAME.ipynb` alone starts Python anew.
local_provisioner.launch_kernel = start_kernel
TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
UNITS = "ein zwei drei vier fünf sechs sieben acht neun".split()
TENS_EN = "twenty thirty forty fifty sixty seventy eighty ninety".split()
UNITS_EN = "one two three four five six seven eight nine".split()


SLOWEST = (
    "test_book.py",
    "test_launch.py",
    "test_kills.py",
    "test_distributed.py",
    "test_cli.py",
    "test_jupyter.py",
    "28_wmt.ipynb",
    "test_cuda_kernels.py",
    "test_dry_run.py",
    "test_estimate.py",
    "test_processes.py",
    "16_gradients.ipynb",
    "23_recipe.ipynb",
)


def pytest_collection_modifyitems(items):
    """Start the slowest files first, so that no process of `-n` is left alone with one at the end.

    This includes files with few tests, which pytest-xdist would start last.
    """
    rank = {name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


def pytest_terminal_summary(terminalreporter):
    """Tests that need a GPU and have none must not be skipped silently."""
    skipped = terminalreporter.stats.get("skipped", [])
    # A module that skips as a whole has no keywords.
    missed = [report for report in skipped if "gpu" in getattr(report, "keywords", ())]
    if missed:
        reason = missed[0].longrepr[2].removeprefix("Skipped: ")
        terminalreporter.write_line(f"{len(missed)} GPU TESTS NOT RUN: {reason}", red=True)
    if path := gpu_record(terminalreporter.config, terminalreporter.stats):
        terminalreporter.write_line(f'impl="auto" takes the CUDA kernels on this GPU: {path}')


def gpu_record(config, stats: dict[str, list]) -> Path | None:
    """Record that all of `pytest -m gpu` has passed here; return the file.

    Nothing is recorded, and None returned, when a test failed or was skipped, or when only some of
    the tests were asked for.
    """
    option = config.option
    some = option.keyword or option.deselect or option.file_or_dir or getattr(option, "lf", False)
    if option.markexpr != "gpu" or some or hasattr(config, "workerinput"):
        return None
    passed = stats.get("passed", [])
    skipped = [z for z in stats.get("skipped", []) if "gpu" in getattr(z, "keywords", ())]
    if not passed or skipped or stats.get("failed") or stats.get("error"):
        return None
    import torch

    from dynconv.kernels.cuda.build import architecture_name, cupy, sources_hash
    from dynconv.lab import ledger

    name = architecture_name(torch.cuda.current_device())
    record = ledger.new_record(
        f"the tests of the CUDA kernels passed on a GPU of architecture {name}",
        "pytest -m gpu",
        {"architecture": name, "sources": sources_hash(), "passed": len(passed)},
        versions={"cuda": torch.version.cuda, "cupy": cupy().__version__},
    )
    path = ledger.output_path(f"gpu-tests-{name}", None)
    ledger.write(path, record)
    return path


@pytest.fixture(autouse=True)
def seed():
    """A test draws the same numbers every time, whichever tests ran before it."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(scope="module")
def poisoned_memory():
    """torch.empty and similar functions return NaN."""
    import torch

    assert torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["chosen", "full"])
def golden(request):
    """Numbers of the released code: first those of the repository, then all, where they are."""
    from helpers.golden_cases import CHOSEN, FULL, Golden

    folder = {"chosen": CHOSEN, "full": FULL}[request.param]
    if not folder.is_dir():
        pytest.skip("the full set of released code's numbers is not present")
    return Golden(folder)


@pytest.fixture(scope="module")
def browser():
    """A Chromium; the test is skipped where there is none."""
    from helpers.browser import chromium

    with chromium() as found:
        yield found


def numbers(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences of one to four numbers: "drei und zwanzig" is "twenty three"."""
    draw = random.Random(seed)
    pairs = []
    for _ in range(count):
        chosen = [(draw.randrange(8), draw.randrange(9)) for _ in range(draw.randint(1, 4))]
        german = ", ".join(f"{UNITS[u]} und {TENS[t]}" for t, u in chosen)
        english = ", ".join(f"{TENS_EN[t]} {UNITS_EN[u]}" for t, u in chosen)
        pairs.append((german, english))
    return pairs


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """A user's own parallel text: number words, in two plain files a split."""
    folder = tmp_path_factory.mktemp("corpus")
    for seed, (split, count) in enumerate({"train": 400, "valid": 20, "test": 20}.items()):
        for side, suffix in enumerate(("de", "en")):
            lines = [pair[side] + "\n" for pair in numbers(count, seed)]
            (folder / f"{split}.{suffix}").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def recipe(corpus) -> Recipe:
    """A recipe that trains in seconds."""
    return Recipe(
        data=DataConfig(corpus=str(corpus)),
        model=Seq2SeqConfig(
            vocab_size=300,
            channels=32,
            ffn=32,
            heads=2,
            encoder=StackConfig(1, "dynamic", 3),
            decoder=StackConfig(1, "dynamic", 3),
            norm="pre",
        ),
        train=TrainConfig(
            updates=10, batch_tokens=400, warmup=2, checkpoint_every=5, precision="float32"
        ),
        decode=DecodeConfig(beam=2),
    )


def sized_stack(layers: int, mixer: str, size=None) -> StackConfig:
    """A stack of one mixer, whose kernel_size, reach or window is `size`, if it takes any."""
    kind = require_mixer(mixer).size_key
    return StackConfig(layers, mixer, **({kind: size} if kind else {}))


def write_recipe(recipe: Recipe, folder: Path) -> Path:
    """Write a recipe to a file in a folder."""
    path = folder / "tiny.yaml"
    path.write_text(dump_recipe(recipe), encoding="utf-8")
    return path


@pytest.fixture
def recipe_file(recipe, tmp_path) -> Path:
    """That recipe in a file."""
    return write_recipe(recipe, tmp_path)


@pytest.fixture
def started_runs(monkeypatch) -> list[str]:
    """The runs that training has been called for, in order."""
    from dynconv.lab import many_runs
    from dynconv.train import train

    calls = []

    def counting(recipe, directory, watch, **more):
        calls.append(directory.name)
        return train(recipe, directory, watch, **more)

    monkeypatch.setattr(many_runs, "train", counting)
    return calls


@pytest.fixture(scope="session")
def prepared(corpus, tmp_path_factory):
    """The same text, prepared for training."""
    from dynconv.text import encode_corpus

    return encode_corpus(str(corpus), "de", "en", 300, tmp_path_factory.mktemp("text") / "prepared")


@pytest.fixture
def prepared_recipe(recipe, prepared) -> Recipe:
    """The small recipe, on text that is prepared already."""
    return replace(recipe, data=replace(recipe.data, corpus=str(prepared.directory)))


@pytest.fixture
def prepared_recipe_file(prepared_recipe, tmp_path) -> Path:
    """That recipe in a file."""
    return write_recipe(prepared_recipe, tmp_path)


@pytest.fixture(scope="session")
def pairs(prepared):
    """Its pairs, as training reads them."""
    from dynconv.text import Pairs

    return Pairs.from_corpus(prepared)


@pytest.fixture
def manifest(tmp_path, monkeypatch):
    """A function that writes a manifest with one corpus, small, and returns where its files go."""
    import yaml

    from dynconv.text import manifest

    monkeypatch.setattr(manifest, "data_dir", lambda: tmp_path)
    monkeypatch.setattr(manifest, "raw_dir", lambda: tmp_path / "raw")

    def write(*files, note="") -> Path:
        corpus = {"name": "small", "languages": ["de"], "files": list(files)}
        corpus |= {"kind": "-", "description": "-", "note": note, "build": "-"}
        corpus |= {"licence": "for reading", "citation": "Reader 1999"}
        (tmp_path / "manifest.yaml").write_text(yaml.safe_dump({"corpora": [corpus]}))
        return tmp_path / "raw" / "small"

    return write
