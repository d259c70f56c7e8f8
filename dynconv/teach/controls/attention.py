"""The control of lesson 03: attention heads that fill gaps, with other seeds."""

from typing import Any

import torch

from dynconv.teach.controls.control import Control, run_definitions


def attention() -> dict[str, Any]:
    """Return the gaps that lesson 03's models fill, and how much their heads look back."""
    texts = ("german", "german_test", "often", "pieces", "ids", "x", "goal", "x_test", "goal_test")
    names = run_definitions("03_attention", "ARTICLES", *texts)
    sentence, t = (names["goal_test"] >= 0).nonzero(as_tuple=True)
    before = torch.arange(20) < t[:, None]  # (gaps, T)
    numbers: dict[str, Any] = {}
    for heads, tables in ((2, 0), (1, 1), (2, 1), (2, 2), (4, 4)):
        scores, shares = [], []
        for seed in range(4):
            model, score = names["trained"](heads, tables, seed)
            scores.append(round(score, 3))
            with torch.no_grad():
                p, _ = model.weights(names["x_test"])  # (N, H, T, T)
            share = (p[sentence, :, t] * before[:, None]).sum(dim=2).mean(dim=0)  # (H,)
            shares.append([round(each, 2) for each in share.tolist()])
        numbers[f"{heads} heads, {tables} tables"] = {"filled": scores, "looks back": shares}
    return numbers


CONTROLS = {
    "controls-attention": Control(
        "Share of gaps filled by lesson 03's models, and of the weights before the gap per head",
        [0, 1, 2, 3],
        attention,
    ),
}
