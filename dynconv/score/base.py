"""The result of a metric, and the check of its input."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dynconv.errors import UserError
from dynconv.value_checks import check_lines


class Score(NamedTuple):
    """The value of a metric over a corpus, with a signature so that others can repeat it."""

    metric: str
    value: float
    """the score, from 0 to 100"""
    signature: str
    low: float | None = None
    high: float | None = None
    """the 95% interval, if it was computed"""
    detail: str = ""
    """details of BLEU: its n-gram precisions, brevity penalty and lengths"""

    def records(self) -> list[dict[str, Any]]:
        """Return the score as an entry of SPLIT.scores.json."""
        return [self._asdict()]

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.metric} = {self.value:.2f}{interval}  {self.signature}"


def check_pairs(hypotheses: Sequence, references: Sequence) -> None:
    """Raise UserError unless both are lists of lines, equally many and at least one."""
    check_lines(hypotheses)
    check_lines(references)
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: "
            "both need one line for each sentence, in the same order"
        )
    if not hypotheses:
        raise UserError("nothing to score: hypotheses and references have 0 lines")
