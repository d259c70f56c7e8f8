"""From a model to text: search for translations, samples of a language model, surprisal."""

from dynconv.decode.sample import sample
from dynconv.decode.search import Hypothesis, beam_search, greedy
from dynconv.decode.surprisal import surprisal
from dynconv.decode.translate import translate

__all__ = ["Hypothesis", "beam_search", "greedy", "sample", "surprisal", "translate"]
