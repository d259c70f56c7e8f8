"""Calls the kernels of a case, or lists what they launch.

The same two functions do both, because the functions of the module `launches` have the operators'
names and arguments: given that module, they launch nothing and return a LaunchPlan.
"""

from collections.abc import Sequence

from dynconv.kernels.cuda import launches
from dynconv.kernels.cuda.plan import SIMULATED_ARCHITECTURE, Launch, contiguous_array
from dynconv.lab.bench.cases import SOFTMAX_CONV, Case


def call_forward(kernels, case: Case, inputs: Sequence, seed=None, dropout: float = 0.0):
    """Call the case's operator and return its output.

    kernels  torch.ops.dynconv, other Kernels, or the module `launches`
    """
    if case.operator == "talk_conv":
        return kernels.talk_conv(*inputs, case.K // 2, case.K // 2)
    if case.operator == SOFTMAX_CONV:
        return kernels.softmax_conv(*inputs, seed, dropout, case.K // 2)
    return kernels.conv(*inputs, case.K // 2)


def call_backward(kernels, case: Case, g, inputs: Sequence, seed=None, dropout: float = 0.0):
    """Call the operator's backward pass and return all inputs' gradients; see `call_forward`."""
    if case.operator == "talk_conv":
        return kernels.talk_conv_backward(g, *inputs, case.K // 2, case.K // 2)
    if case.operator == SOFTMAX_CONV:
        return kernels.softmax_conv_backward(g, *inputs, seed, dropout, case.K // 2)
    return kernels.conv_backward(g, *inputs, case.K // 2)


def list_launches(
    case: Case, architecture: int = SIMULATED_ARCHITECTURE
) -> dict[str, tuple[Launch, ...]]:
    """Return what each direction launches on an architecture, such as 90 for sm_90."""
    inputs = [contiguous_array(*described, architecture) for described in case.inputs()]
    return {
        "forward": call_forward(launches, case, inputs).launches,
        "backward": call_backward(launches, case, inputs[0], inputs).launches,
    }
