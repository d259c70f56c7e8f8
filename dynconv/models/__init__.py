"""Models, which `build` makes from a configuration.

Seq2Seq and ConvS2S return logits, as `torch.nn.functional.cross_entropy` takes them; LanguageModel
returns log-probabilities, because an adaptive softmax has no logits. In all three, `hidden_states`
are what `output` receives, and `step` extends a decoded prefix by new tokens.
"""

from dynconv import export_lazily

EXPORTS = {
    "assemble": ["build", "count_parameters"],
    "convs2s": ["ConvS2S"],
    "language": ["LanguageModel"],
    "seq2seq": ["Seq2Seq"],
}
# so that reading a recipe, which takes the names of the mixers from here, does not load PyTorch
__all__, __getattr__ = export_lazily(__name__, EXPORTS)
