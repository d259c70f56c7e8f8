"""Builds models from a configuration.

Seq2Seq and ConvS2S return logits, as `torch.nn.functional.cross_entropy` takes them; LanguageModel
returns log-probabilities, because an adaptive softmax has no logits. In all three, `hidden_states`
are what `output` receives, and `step` extends a decoded prefix by new tokens.
"""

from typing import TYPE_CHECKING

from dynconv import import_lazily

if TYPE_CHECKING:
    from dynconv.models.assemble import ConvS2S, LanguageModel, Seq2Seq, build, count_parameters

__all__ = ["ConvS2S", "LanguageModel", "Seq2Seq", "build", "count_parameters"]
# Reading a recipe takes the names of the mixers from this package, and does not load PyTorch.
__getattr__ = import_lazily(__name__, {"assemble": __all__})
