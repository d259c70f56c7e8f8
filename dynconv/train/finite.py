"""Updates whose loss or gradient is not finite: left out, a few times; then the run stops."""

import json
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dynconv.config.files import replace_text
from dynconv.errors import UserError
from dynconv.text import Vocabularies
from dynconv.train.data import Corpus, Work
from dynconv.train.ranks import Ranks

SMALLEST_SCALE = 2.0**-10
"""of the float16 loss; below it an overflow is no matter of scale"""


def overflow(loss: float, scaler: torch.amp.GradScaler) -> bool:
    """Whether it is only float16's: the loss is finite, and a smaller scale is to be tried."""
    return scaler.is_enabled() and math.isfinite(loss) and scaler.get_scale() > SMALLEST_SCALE


def spelt(ids: np.ndarray | tuple[np.ndarray, ...], vocabularies: Vocabularies) -> dict[str, str]:
    """The text of a pair, or of an excerpt."""
    if isinstance(ids, np.ndarray):
        return {"text": vocabularies.target.decode(ids)}
    return {
        side: vocabulary.decode(part)
        for (side, vocabulary), part in zip(vocabularies._asdict().items(), ids, strict=True)
    }


def stop(
    run: Path,
    update: int,
    loss: float,
    norm: float,
    work: Work,
    losses: list[Tensor],
    corpus: Corpus,
    vocabularies: Vocabularies,
    ranks: Ranks,
) -> None:
    """Save this rank's share of the update as text, with each batch's loss; raise UserError."""
    batches = [
        {
            "loss": str(loss.item()),  # JSON has no nan
            "pairs": [{"pair": int(i), **spelt(corpus[i], vocabularies)} for i in chosen],
        }
        for loss, chosen in zip(losses, work.chosen, strict=True)
    ]
    path = run / f"not-finite-{update:06d}-{ranks.rank}.json"
    replace_text(path, json.dumps(batches, indent=1, ensure_ascii=False))
    paths = ranks.every(str(path))  # all are written before anybody leaves
    raise UserError(
        f"{run}: loss {loss / work.tokens:g}, gradient norm {norm:g} at update {update}, after "
        "others that were left out: go on from the last checkpoint with a lower train.lr or more "
        f"train.warmup in {run / 'recipe.yaml'}; the sentences are in {', '.join(paths)}"
    )
