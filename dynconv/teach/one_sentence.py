"""Draws how trained mixers read one sentence: `python -m dynconv.teach.one_sentence [RUN ...]`.

It is the figure on the book's first page, book/_static/one-sentence.png. The matrices come from
data/results/one-sentence.json, which the first lesson reads as well; four runs replace them.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from dynconv import ops
from dynconv.files import replace_text
from dynconv.lab import ledger, style
from dynconv.layers import DynamicConv, LightConv, SelfAttention, TaLKConv
from dynconv.layers.attention import project_parts
from dynconv.ops.shapes import split_heads
from dynconv.teach.checkout import require_checkout, run_tool
from dynconv.teach.mixing import draw_mixing
from dynconv.text import EOS
from dynconv.train import load_model

SENTENCE = "Klicken Sie auf das Symbol, um die Tabelle zu löschen."
REPLACE = "Tabelle", "Datei"
"""a word of the sentence, and the one that takes its place in the second sentence of the record"""
TITLES = {
    SelfAttention: ("attention", "Attention:\ncompare with every word"),
    LightConv: ("light", "LightConv:\none kernel for all words"),
    DynamicConv: ("dynamic", "DynamicConv:\neach word predicts its own"),
    TaLKConv: ("talk", "TaLK:\neach word picks a window"),
}
"""colour and title of each mixer"""
SIZE, LABEL = (4.2, 4.9), 8
"""the figure's size in inches and its labels' in points: 357 pixels wide, as on a phone, the labels
of words are 9.4 pixels high"""
DPI = 300
DARKEST = 0.3
"""the weight at which the shade is darkest. The largest recorded weight is 0.57, but next to it the
largest of LightConv and TaLK, 0.21 and 0.14, would hardly be seen"""


def matrices_of_heads(mixer: nn.Module, x: Tensor) -> Tensor:
    """Return the mixing matrices (H, T, T) of a mixer's heads for its input x (1, T, C).

    The kernels are computed from x. Sentence s of a batch of T is 1 at position s, with one channel
    per head, so the outputs of that sentence are column s.
    """
    T = x.shape[1]
    if isinstance(mixer, SelfAttention):
        parts = project_parts(mixer.in_proj, x, 3)
        query, key, _ = (split_heads(part, mixer.heads) for part in parts)
        return (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1)[0]
    x = mixer.in_proj(x)
    if isinstance(mixer, LightConv):
        heads = len(mixer.weight)
        kernel = mixer.kernel(x.dtype)
        mix = partial(ops.light_conv, weight=kernel, pad_left=mixer.pad_left)
    elif isinstance(mixer, DynamicConv):
        kernel = ops.normalize_kernel(mixer.logits(x), mixer.normalize)
        heads, kernel = mixer.heads, kernel.expand(T, -1, -1, -1)
        mix = partial(ops.dynamic_conv, weight=kernel, pad_left=mixer.pad_left)
    else:
        left, right = mixer._offsets(x).expand(T, -1, -1).chunk(2, dim=-1)
        heads, reach = left.shape[-1], (mixer.max_left, mixer.max_right)
        mix = partial(ops.talk_conv, left=left, right=right, max_left=reach[0], max_right=reach[1])
    impulses = torch.eye(T, dtype=x.dtype)[:, :, None].expand(T, T, heads).contiguous()
    return mix(impulses).permute(2, 1, 0)


@torch.no_grad()
def encoder_matrices(run: Path, sentence: str) -> tuple[list[str], list[Tensor], nn.Module]:
    """Return the sentence's tokens, the matrices of each encoder layer, and one of the mixers."""
    trained = load_model(run)
    vocabulary = trained.vocabularies.source
    ids = [*vocabulary.encode([sentence])[0], EOS]
    inputs: list[Tensor] = []
    for block in trained.model.encoder:
        block.mixer.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    trained.model.encode(torch.tensor(ids)[None])
    mixers = [block.mixer for block in trained.model.encoder]
    tokens = [vocabulary.decode([i]) or "<eos>" for i in ids]
    matrices = [matrices_of_heads(mixer, x) for mixer, x in zip(mixers, inputs, strict=True)]
    return tokens, matrices, mixers[0]


def draw(tokens: list[str], matrices: dict[str, Tensor]):
    """Return the figure: a panel for each mixer, with words only at the left and the lower edge."""
    style.use()
    fig, axes = plt.subplots(2, 2, figsize=SIZE, sharex=True, sharey=True)
    for ax, (name, title) in zip(axes.flat, TITLES.values(), strict=True):
        color = style.COLORS[name]
        draw_mixing(ax, matrices[name], color=color, vmax=DARKEST, labels=tokens)
        ax.set_title(title, fontsize=LABEL + 1)
        ax.set(xlabel="", ylabel="")
        ax.tick_params(labelsize=LABEL, length=0)
        ax.label_outer()
    return fig


def record_matrices(runs: list[Path]) -> None:
    """Add to data/results/one-sentence.json the mean of the heads in the first two encoder layers.

    A matrix is a list of rows, each a string of numbers, so a row is a line of the file.
    """
    record = ledger.read("one-sentence")
    record["numbers"]["words"] = {}
    for word in REPLACE:
        sentence = SENTENCE.replace(REPLACE[0], word)
        for run in runs:
            tokens, matrices, mixer = encoder_matrices(run, sentence)
            layers = [
                [" ".join(f"{weight:.4f}" for weight in row) for row in heads.mean(0).tolist()]
                for heads in matrices[:2]
            ]
            record["numbers"][TITLES[type(mixer)][0]].setdefault("matrices", {})[word] = layers
            record["numbers"]["words"][word] = tokens
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    replace_text(ledger.output_path("one-sentence", None), text)


def recorded_matrices(word: str = REPLACE[0]) -> tuple[list[str], dict[str, list[Tensor]]]:
    """Return the recorded sentence's tokens, and by mixer the matrices (T, T) of its two layers."""
    numbers = ledger.read("one-sentence")["numbers"]
    matrices = {}
    for name, _ in TITLES.values():
        layers = numbers[name]["matrices"][word]
        matrices[name] = [
            torch.tensor([[float(weight) for weight in row.split()] for row in rows])
            for rows in layers
        ]
    return numbers["words"][word], matrices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="four translators")
    parser.add_argument("--layer", type=int, choices=(0, 1), default=1, help="of the encoder")
    parser.add_argument("--output", type=Path, help="default: book/_static/one-sentence.png")
    options = parser.parse_args()
    if len(options.runs) not in (0, 4):
        parser.error("name four runs, or none to draw the recorded matrices")
    if options.runs:
        record_matrices(options.runs)
    tokens, layers = recorded_matrices()
    matrices = {name: of_mixer[options.layer] for name, of_mixer in layers.items()}
    output = options.output or require_checkout() / "book/_static/one-sentence.png"
    style.save(draw(tokens, matrices), output, dpi=DPI)


if __name__ == "__main__":
    run_tool(main)
