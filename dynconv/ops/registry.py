"""Lists the operators and the implementations of each."""

from dynconv.ops import (
    average,
    depthwise,
    dynamicconv,
    lightconv,
    retnet,
    selective,
    softmaxconv,
    ssm,
    talk,
)
from dynconv.ops.auto import BACKENDS

OPERATORS = {
    "depthwise_conv": depthwise.IMPLEMENTATIONS,
    "light_conv": lightconv.IMPLEMENTATIONS,
    "dynamic_conv": dynamicconv.IMPLEMENTATIONS,
    "dynamic_conv_softmax": softmaxconv.IMPLEMENTATIONS,
    "talk_conv": talk.IMPLEMENTATIONS,
    "cumulative_mean": average.IMPLEMENTATIONS,
    "diagonal_ssm": ssm.IMPLEMENTATIONS,
    "retention": retnet.IMPLEMENTATIONS,
    "selective_scan": selective.IMPLEMENTATIONS,
}


def implementations(operator: str) -> list[str]:
    """Return the names, besides "auto", that `impl` of an operator accepts on this machine."""
    if operator not in OPERATORS:
        raise ValueError(f"no operator {operator!r}: there are {', '.join(OPERATORS)}")
    return [
        name
        for name in OPERATORS[operator]
        if name not in BACKENDS or not BACKENDS[name].why_unavailable()
    ]
