"""Per-token negative log-likelihood of a text, from which perplexity is computed."""

import numpy as np
import torch
from torch import Tensor

from dynconv.errors import UserError
from dynconv.models import LanguageModel
from dynconv.text import EOS, batch_by_length, pad_sequences


@torch.inference_mode()
def token_nll(
    model: LanguageModel,
    tokens: np.ndarray | Tensor,
    *,
    block: int | None = None,
    context: int = 0,
    batch_tokens: int = 4096,
) -> np.ndarray:
    """Return -log p (N,) of each token of a text, in nats, given those before it in its window.

    tokens        (N,) ids: line, <eos>, line, <eos> ... The first token is predicted from <eos>
    block         tokens per window; None: each line with its <eos> is a window
    context       maximum tokens before a window that are read but not scored, in addition to the
                  one from which its first token is predicted
    batch_tokens  maximum positions per batch, padding included; a longer window forms a batch

    Leaves the model in eval mode. Raises UserError if block, context or batch_tokens is invalid.
    """
    if context < 0 or batch_tokens < 1 or block is not None and block < 1:
        raise UserError(
            f"block {block} and batch_tokens {batch_tokens} must be at least 1, "
            f"and context {context} at least 0"
        )
    stream = np.append(EOS, np.asarray(tokens))
    N = len(stream) - 1  # token i, stream[i + 1], is predicted from stream[: i + 1]
    cuts = np.flatnonzero(stream == EOS) if block is None else np.arange(0, N, block)
    bounds = np.union1d(cuts, N)
    start, end = bounds[:-1], bounds[1:]
    first = np.maximum(start - context, 0)  # first position that each window reads
    lengths = np.stack([end - first] * 2, axis=1)
    nll = np.empty(N)
    device = next(model.parameters()).device
    model.eval()
    for windows in batch_by_length(lengths, max(batch_tokens, int(lengths.max(initial=0)))):
        ids, pad_mask = pad_sequences([stream[first[i] : end[i] + 1] for i in windows])
        unscored = torch.from_numpy((start - first)[windows])
        scored = ~pad_mask[:, 1:] & (torch.arange(ids.shape[1] - 1) >= unscored[:, None])
        hidden = model.hidden_states(ids[:, :-1].to(device))[scored.to(device)]
        where = np.concatenate([np.arange(start[i], end[i]) for i in windows])
        nll[where] = model.nll(hidden, ids[:, 1:][scored].to(device)).double().cpu().numpy()
    return nll
