"""Exports a trained translator as a JavaScript file, which a page runs without a server.

The file registers one object, `dynconvModels.MIXER`:

    about    where the weights come from: corpus, updates, parameters, BLEU, date
    config   channels, heads, and the width of each layer's kernel (0 for attention)
    tensors  [name, dtype, *shape] of each tensor, in the order of their bytes
    data     those bytes, little-endian, compressed by gzip, as lines of base64

Comments before it contain the recipe. Row r of a matrix W is rounded to int8, to
round(W[r] / scale[r]), where scale[r] = max|W[r]| / 127. The vocabulary is two tensors, the ids of
the 256 bytes and the merges (left, right, result).
"""

import base64
import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dynconv.config import DecodeConfig, dump_recipe
from dynconv.errors import UserError
from dynconv.files import check_output, replace_text
from dynconv.text import Vocabulary
from dynconv.train import TrainedModel

MIXERS = ("dynamic", "attention")
"""the mixers that the page can run"""
REQUIRED = {"norm": "pre", "activation": "relu", "embeddings": "shared"}
"""entries of a model that the page's JavaScript assumes"""
LARGEST = 4_000_000
"""bytes of the weights in base64"""
LINE = 1000
"""characters of base64 per line, so that editors can open the file"""
LEVELS = 127
"""the largest value in int8"""
REGISTER = "(globalThis.dynconvModels ??= {})"
"""the JavaScript object in which models are registered"""


def export_web(trained: TrainedModel, output: Path) -> str:
    """Write a translator as a JavaScript file, and return a line that says what was written.

    output  a file, or a directory, in which the file is `translator-MIXER.js`

    Scores the test split by greedy search, before and after the weights are rounded to int8. Raises
    UserError for a model that the page cannot run or that is too large.
    """
    run = trained.checkpoint.run
    mixer, config = page_config(trained, run)
    path = output / f"translator-{mixer}.js" if output.is_dir() else output
    check_output(path)
    if path.suffix != ".js":
        raise UserError(f"{path}: is no directory: make it first, or name a file that ends in .js")
    if path.is_file() and REGISTER not in path.read_text(encoding="utf-8", errors="replace"):
        raise UserError(f"{path}: already exists and is not an exported model: name a new file")
    tensors = quantize(trained.model) | pack_vocabulary(trained.vocabularies.target)
    raw = b"".join(little_endian(values).tobytes() for values in tensors.values())
    data = base64.b64encode(gzip.compress(raw, mtime=0))
    if len(data) > LARGEST:
        raise UserError(
            f"{run}: {len(data):,} bytes are more than a page's maximum of {LARGEST:,}: train "
            "with fewer model.channels, layers or model.vocab_size"
        )
    about = {
        "corpus": Path(trained.recipe.data.corpus).name,
        "mixer": mixer,
        "updates": trained.checkpoint.meta["update"],
        "parameters": sum(weight.numel() for weight in trained.model.parameters()),
        "bleu": greedy_bleu(trained),
    }
    # Not strict, because the tensors name only one of three tables that share their weights.
    trained.model.load_state_dict(dequantize(tensors), strict=False)
    about |= {"bleu_int8": greedy_bleu(trained), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    listed = [[name, str(x.dtype), *x.shape] for name, x in tensors.items()]
    lines = [data[i : i + LINE].decode() for i in range(0, len(data), LINE)]
    model = {"about": about, "config": config, "tensors": listed, "data": lines}
    registered = f"{REGISTER}.{mixer} = {json.dumps(model, indent=0)};\n"
    header = f"{format_origin(about)}; recipe:\n{dump_recipe(trained.recipe)}".splitlines()
    replace_text(path, "".join(f"// {line}\n" for line in header) + registered)
    return f"{path}: {path.stat().st_size:,} bytes; {format_origin(about)}"


def format_origin(about: dict[str, Any]) -> str:
    """Return the provenance of an exported model in one line."""
    return (
        f"{about['corpus']}, {about['mixer']}, {about['parameters']:,} parameters, "
        f"{about['updates']:,} updates, exported {about['date']}; test BLEU by greedy search "
        f"{about['bleu']:.1f}, in int8 {about['bleu_int8']:.1f}"
    )


def page_config(trained: TrainedModel, run: Path) -> tuple[str, dict[str, Any]]:
    """Return the mixer of a model, and what the page must know about its layers.

    Raises UserError, which names the entry, for a model that the page cannot run.
    """
    model = trained.recipe.model
    if model.architecture != "encoder-decoder":
        raise UserError(f"{run}: architecture {model.architecture}; the page runs encoder-decoder")
    required = dict(REQUIRED)
    layers = [*model.encoder.each_layer(), *model.decoder.each_layer()]
    mixers = sorted({mixer for mixer, _ in layers})
    if len(mixers) > 1 or mixers[0] not in MIXERS:
        raise UserError(
            f"{run}: mixer {', '.join(mixers)}; the page runs one of {' and '.join(MIXERS)}"
        )
    if mixers == ["dynamic"]:
        required |= {"glu": True, "normalize": "softmax"}
    elif any(window for _, window in layers):
        raise UserError(f"{run}: the page runs attention without a window")
    for name, value in required.items():
        if getattr(model, name) != value:
            raise UserError(
                f"{run}: model.{name} is {getattr(model, name)}; the page runs {value} only"
            )
    if trained.vocabularies.target.kind != "bytes" or len(trained.vocabularies.target) > 2**16:
        raise UserError(f"{run}: the page reads vocabularies of kind bytes, of up to 65,536 types")
    widths = [size or 0 for _, size in layers]
    count = model.encoder.layers
    return mixers[0], {
        "channels": model.channels,
        "heads": model.heads,
        "encoder": widths[:count],
        "decoder": widths[count:],
        "source": trained.recipe.data.source,
        "target": trained.recipe.data.target,
    }


def quantize(model: nn.Module) -> dict[str, np.ndarray]:
    """Quantize the matrices of a model to int8, with one scale per row; copy its vectors."""
    tensors = {}
    for name, weight in model.named_parameters():
        values = weight.detach().cpu().float().numpy()
        if values.ndim == 2:
            scale = np.maximum(np.abs(values).max(axis=1), np.finfo(np.float32).tiny) / LEVELS
            tensors[f"{name}.scale"] = scale
            values = np.round(values / scale[:, None]).astype(np.int8)
        tensors[name] = values
    return tensors


def dequantize(tensors: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """Return the parameters in float32, as the page computes with them."""
    weights = {}
    for name, values in tensors.items():
        if values.dtype == np.int8:
            values = values.astype(np.float32) * tensors[f"{name}.scale"][:, None]
        if values.dtype == np.float32 and not name.endswith(".scale"):
            weights[name] = torch.from_numpy(values.copy())
    return weights


def pack_vocabulary(vocabulary: Vocabulary) -> dict[str, np.ndarray]:
    """Return the ids of the 256 bytes and, as triples of ids, the merges of a byte vocabulary."""
    from tokenizers.pre_tokenizers import ByteLevel

    model = json.loads(vocabulary.to_json())["model"]
    ids = model["vocab"]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    merges = [(ids[left], ids[right], ids[left + right]) for left, right in pairs]
    # ByteLevel writes printable bytes as themselves, and the n-th of the others as U+0100 + n.
    letters = sorted(ByteLevel.alphabet())
    printable = {ord(letter) for letter in letters if ord(letter) < 256}
    others = iter(letter for letter in letters if ord(letter) >= 256)
    names = [chr(byte) if byte in printable else next(others) for byte in range(256)]
    return {
        "bytes": np.array([ids[name] for name in names], np.uint16),
        "merges": np.array(merges, np.uint16).reshape(-1, 3),
    }


def little_endian(values: np.ndarray) -> np.ndarray:
    """Return an array with its bytes in little-endian order."""
    return values.astype(values.dtype.newbyteorder("<"))


def greedy_bleu(trained: TrainedModel) -> float:
    """Return the test split's BLEU by greedy search, as the page decodes."""
    recipe = trained.recipe
    data = replace(recipe.data, corpus=str(trained.text_directory()))
    greedy = replace(recipe, data=data, decode=DecodeConfig(beam=1), metric="bleu")
    task = trained._replace(recipe=greedy).task
    evaluation = task.evaluate(trained.model, trained.vocabularies, "test")
    return round(evaluation.scores[0].value, 2)
