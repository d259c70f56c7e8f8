"""Builds models from a configuration.

Seq2Seq and ConvS2S return logits for `torch.nn.functional.cross_entropy`. LanguageModel returns
log-probabilities, because an adaptive softmax has no logits. In all three, `output` maps the
`hidden_states` to them, and `step` extends a decoded prefix by new tokens.
"""

from typing import TYPE_CHECKING

from dynconv.lazy import import_lazily

# As in `ops`, no module is named after its function: `build` is in `assemble.py`.
if TYPE_CHECKING:
    from dynconv.models.assemble import build, count_parameters
    from dynconv.models.convs2s import ConvS2S
    from dynconv.models.language import LanguageModel
    from dynconv.models.loss import label_smoothed_loss
    from dynconv.models.seq2seq import Seq2Seq
    from dynconv.models.translator import Translator

# A list, since type checkers read it.
__all__ = [
    "ConvS2S", "LanguageModel", "Seq2Seq", "Translator", "build", "count_parameters",
    "label_smoothed_loss",
]  # fmt: skip
# Reading a recipe needs the names of the mixers, but not PyTorch.
__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "assemble": ["build", "count_parameters"],
        "convs2s": ["ConvS2S"],
        "language": ["LanguageModel"],
        "loss": ["label_smoothed_loss"],
        "seq2seq": ["Seq2Seq"],
        "translator": ["Translator"],
    },
)
