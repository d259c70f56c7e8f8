"""The weights of a model by name: what is saved, loaded and averaged."""

import torch
from torch import nn

from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.weights import average_weights, load_weights, named_weights


class Buffers(nn.Module):
    """Has a parameter, a buffer under two names, a whole number and a buffer not to be saved."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("scale", torch.randn(3))
        self.register_buffer("again", self.scale)
        self.register_buffer("calls", torch.tensor(2**24 + 1))
        self.register_buffer("cache", torch.randn(3), persistent=False)


def test_a_checkpoint_gives_buffers_back(tmp_path):
    one, other = Buffers(), Buffers()
    other.calls.zero_()
    saved = CheckpointStore(tmp_path).write("000001", named_weights(one), None, {"update": 1})
    assert saved.read_weights().keys() == {"weight", "scale", "calls"}
    load_weights(other, saved.read_weights(), saved.path)
    for name in ("weight", "scale", "again", "calls"):
        assert torch.equal(getattr(other, name), getattr(one, name))
    assert not torch.equal(other.cache, one.cache)


def test_whole_numbers_are_not_averaged():
    several = [named_weights(Buffers()) for _ in range(3)]
    mean = average_weights(several)
    torch.testing.assert_close(mean["scale"], sum(w["scale"] for w in several) / 3)
    assert torch.equal(mean["calls"], several[-1]["calls"])
