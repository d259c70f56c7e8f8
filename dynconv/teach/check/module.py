"""The check of the exercise on the LightConv module."""

from collections.abc import Callable

import torch
from torch import Tensor

from dynconv.ops.lightconv import kernel_of_channel
from dynconv.teach.compare import compare


def folded(mine: Callable[..., Tensor]) -> None:
    """mine(W_in, kernel, W_out) is the dense weight (C, C, K) of the module without its gate.

    W_in and W_out are (C, C), kernel is (H, K) and normalised already; there are no biases.
    """

    def theirs(W_in: Tensor, kernel: Tensor, W_out: Tensor) -> Tensor:
        return torch.einsum("oc,cj,ci->oij", W_out, kernel_of_channel(kernel, len(W_in)), W_in)

    cases = ((6, 3, 5), (8, 2, 3), (4, 1, 1), (4, 4, 7))
    for C, H, K in cases:
        seed = torch.Generator().manual_seed(C)
        W_in, W_out = torch.randn(2, C, C, generator=seed)
        kernel = torch.randn(H, K, generator=seed).softmax(dim=1)
        try:
            compare(mine, theirs, W_in, kernel, W_out)
        except AssertionError as error:
            raise AssertionError(f"C = {C}, H = {H}, K = {K}: {error}") from None
    print(f"right: values and 3 gradients agree on {len(cases)} cases")
