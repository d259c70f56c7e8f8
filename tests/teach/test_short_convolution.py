"""Selective layers without their short convolution, for lesson 34."""

import torch

from dynconv.layers.selective import SelectiveScan
from dynconv.teach.controls.short_convolution import read_one_word


def test_the_control_reads_one_word_where_the_layer_reads_four():
    torch.manual_seed(0)
    scan, x = SelectiveScan(8, 4), torch.randn(2, 6, 8)
    with torch.no_grad():
        usual = scan.convolve(x)
        assert torch.equal(read_one_word(scan, x)[:, 3], read_one_word(scan, x[:, 3:4])[:, 0])
        assert not torch.allclose(usual, read_one_word(scan, x))
        scan.kernel[:, :-1] = 0  # all but the current word
        torch.testing.assert_close(scan.convolve(x), read_one_word(scan, x))
