"""Lists the operators, and the implementations of each that can run on this machine."""

from dynconv.errors import name_hint
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
from dynconv.ops.operator import BACKENDS

MODULES = (
    depthwise, lightconv, dynamicconv, softmaxconv, talk, average, ssm, retnet, selective,
)  # fmt: skip
OPERATORS = {module.OPERATOR.name: module.OPERATOR for module in MODULES}
"""operators, keyed by the names of their functions in `dynconv.ops`; `conv_step` is not one
of them, because it is a decoding step of others and is not differentiable"""


def implementations(operator: str) -> list[str]:
    """Return the names, besides "auto", that `impl` of an operator accepts on this machine."""
    if operator not in OPERATORS:
        hint = name_hint(str(operator), OPERATORS, "there are")
        raise ValueError(f"no operator {operator!r}: {hint}")
    return [
        name
        for name in OPERATORS[operator].implementations
        if name not in BACKENDS or not BACKENDS[name].why_unavailable()
    ]
