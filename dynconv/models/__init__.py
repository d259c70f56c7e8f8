"""Models, which `build` makes from a configuration.

Seq2Seq and ConvS2S return logits, as `torch.nn.functional.cross_entropy` takes them; LanguageModel
returns log-probabilities, because an adaptive softmax has no logits. In all three, `hidden_states`
are what `output` receives, and `step` extends a decoded prefix by new tokens.
"""

from dynconv.models.build import build, count_parameters
from dynconv.models.convs2s import ConvS2S
from dynconv.models.language import LanguageModel
from dynconv.models.seq2seq import Seq2Seq

__all__ = ["ConvS2S", "LanguageModel", "Seq2Seq", "build", "count_parameters"]
