"""Retention that fades faster, for lesson 34."""

import torch

from dynconv.layers import Retention
from dynconv.teach.controls.fast_fading import faster_fading


def test_faster_fading_changes_the_factors_and_restores_them():
    torch.manual_seed(0)
    layer, x = Retention(8, 4, causal=True), torch.randn(1, 6, 8)
    usual = layer(x)
    with faster_fading():
        torch.testing.assert_close(layer._gamma(x), torch.tensor([1 / 2, 3 / 4, 7 / 8, 15 / 16]))
        assert not torch.allclose(layer(x), usual)
    torch.testing.assert_close(layer(x), usual, rtol=0, atol=0)
