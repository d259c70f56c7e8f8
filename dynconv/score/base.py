"""What every metric shares: the result, and the check on the two lists of lines."""

from collections.abc import Sequence
from typing import NamedTuple

from dynconv.errors import UserError


class Score(NamedTuple):
    """One metric over a whole corpus; `low` and `high` bound the 95% interval when asked for."""

    metric: str
    value: float
    """0 to 100"""
    signature: str
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.metric} = {self.value:.2f}{interval}  {self.signature}"


def check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise `UserError` unless there is one reference for each hypothesis, and at least one."""
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: "
            "both need one line for each sentence, in the same order"
        )
    if not hypotheses:
        raise UserError("nothing to score: hypotheses and references have 0 lines")
