"""The figure of the first page: its matrices are those by which the mixers multiply."""

import pytest
import torch

from dynconv.layers import DynamicConv, LightConv, SelfAttention, TaLKConv
from dynconv.teach.one_sentence import matrices_of_heads, recorded_matrices

MIXERS = {
    "attention": lambda: SelfAttention(12, 3),
    "light": lambda: LightConv(12, 3, 5, glu=True),
    "dynamic": lambda: DynamicConv(12, 3, 5, glu=True),
    "talk": lambda: TaLKConv(12, 3, 2, 3),
}


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_multiplies_by_its_matrices(name):
    torch.manual_seed(0)
    mixer = MIXERS[name]().double().eval()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(1, 7, 12, dtype=torch.float64)
    if name == "attention":
        values = mixer.in_proj(x).chunk(3, dim=-1)[2]
    else:
        values = mixer.in_proj(x)
    heads = values[0].unflatten(1, (3, 4)).transpose(0, 1)  # (H, T, R)
    mixed = (matrices_of_heads(mixer, x).double() @ heads).transpose(0, 1).flatten(1)
    torch.testing.assert_close(mixer.out_proj(mixed), mixer(x)[0])


def test_the_recorded_matrices_are_those_of_their_mixers():
    """Attention's and TaLK's weights depend on the words, LightConv's do not."""
    words, before = recorded_matrices()
    others, after = recorded_matrices("Datei")
    T = len(words)
    assert [s for s in range(T) if words[s] != others[s]] == [words.index("Tabelle")]
    for name, layers in before.items():
        for M, changed in zip(layers, after[name], strict=True):
            assert M.shape == changed.shape == (T, T)
            assert torch.equal(M, changed) == (name == "light")
    torch.testing.assert_close(before["attention"][1].sum(1), torch.ones(T), atol=1e-3, rtol=0)
    light = before["light"][1]
    torch.testing.assert_close(light[1:, 1:], light[:-1, :-1], rtol=0, atol=0)
