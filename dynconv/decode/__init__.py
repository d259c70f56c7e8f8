"""From a model to translations."""

from dynconv.decode.search import Hypothesis, beam_search, greedy
from dynconv.decode.surprisal import surprisal
from dynconv.decode.translate import translate

__all__ = ["Hypothesis", "beam_search", "greedy", "surprisal", "translate"]
