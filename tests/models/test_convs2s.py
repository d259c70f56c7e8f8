"""ConvS2S: released outputs, steps, padding, limits, sizes and initialisation."""

import hashlib
import math

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from dynconv.config import ConvS2SConfig, ConvStackConfig, Recipe
from dynconv.decode import beam_search
from dynconv.decode.stepper import IncrementalStepper, RecomputingStepper
from dynconv.errors import UserError
from dynconv.layers.convs2s import (
    GatedConv,
    KeyedMemory,
    MultiStepAttention,
    PositionedEmbedding,
    weight_normed_linear,
)
from dynconv.models import build
from dynconv.tasks import Translation
from dynconv.text import EOS, collate_pairs, pad_sequences
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.update import BatchLoss
from dynconv.train.weights import load_weights, named_weights


def small(**changes):
    """Widths that change, an even kernel, a layer that does not attend."""
    torch.manual_seed(0)
    entries = {
        "vocab_size": (11, 12),
        "embedding": 8,
        "encoder": ConvStackConfig(3, (6, 10, 8), (3, 4, 1)),
        "decoder": ConvStackConfig(3, (6, 10, 10), (3, 4, 1)),
        "attention": (True, False, True),
        "max_positions": 20,
        "dropout": 0.0,
    }
    return build(ConvS2SConfig(**entries | changes)).double().eval()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(2, 11, shape, generator=torch.Generator().manual_seed(0))


# Our names of parameters, and the released code's.
RENAMED = [
    ("source_embedding.tokens", "encoder.embed_tokens"),
    ("target_embedding.tokens", "decoder.embed_tokens"),
    ("source_embedding.positions", "encoder.embed_positions"),
    ("target_embedding.positions", "decoder.embed_positions"),
    ("coder.in_proj", "coder.fc1"),
    ("coder.out_proj", "coder.fc2"),
    ("output.", "decoder.fc3."),
    (".parametrizations.weight.original0", ".weight_g"),
    (".parametrizations.weight.original1", ".weight_v"),
]
PARTS = {
    "conv.conv": "convolutions.{}",
    "shortcut": "projections.{}",
    "attention.query_proj": "attention.{}.in_projection",
    "attention.out_proj": "attention.{}.out_projection",
}


def released(case, name: str, kind: str, like: torch.Tensor) -> torch.Tensor:
    """Our parameter's value (kind "sd") or gradient (kind "grad") in the released model."""
    if ".blocks." in name:
        side, number, rest = name.replace(".blocks", "").split(".", 2)
        part = next(part for part in PARTS if rest.startswith(part))
        name = f"{side}.{PARTS[part].format(number)}{rest.removeprefix(part)}"
    for ours, theirs in RENAMED:
        name = name.replace(ours, theirs)
    tensor = torch.from_numpy(case[f"{kind}.{name}"])
    if "embed_positions" in name:  # there, position 0 has row 2
        tensor = tensor[2 : 2 + len(like)]
    return tap_last(tensor).view_as(like)


def tap_last(weight: torch.Tensor) -> torch.Tensor:
    """The released code's (K, inputs, outputs) as PyTorch's (outputs, inputs, K)."""
    return weight.permute(2, 1, 0) if weight.ndim == 3 else weight


def close(actual, expected, name=""):
    if isinstance(expected, np.ndarray):
        expected = torch.from_numpy(expected)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9, msg=lambda m: f"{name}: {m}")


def stack(layers: list[list[int]]) -> ConvStackConfig:
    rows = [(*layer, 1)[:3] for layer in layers]  # the third entry, the residual, may be missing
    return ConvStackConfig(len(rows), *map(tuple, zip(*rows, strict=True)))


@pytest.mark.parametrize("kind", ["basic", "evenk", "proj", "resid"])
def test_the_released_models(golden, kind):
    """Without padding, with padding on the right and on the left."""
    for name, meta, case in golden.cases(f"fconv_model_{kind}_*", chosen=1, full=3):
        compare_with_released_model(name, meta, case)


def compare_with_released_model(where: str, meta: dict, case: dict[str, np.ndarray]) -> None:
    """The encoder's output, logits, attention, steps and gradients."""
    attention = meta["attention"]
    config = ConvS2SConfig(
        vocab_size=meta["V"],
        embedding=meta["embed_dim"],
        output=meta["out_embed_dim"],
        encoder=stack(meta["enc"]),
        decoder=stack(meta["dec"]),
        attention=tuple(attention) if isinstance(attention, list) else attention,
        max_positions=18,
        dropout=0.0,
    )
    model = build(config)
    if meta["share_embed"]:  # which the paper does not
        model.output = nn.Linear(meta["out_embed_dim"], meta["V"])
        model.output.weight = model.target_embedding.tokens.weight
    model.double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(released(case, name, "sd", parameter))

    source, target = (torch.from_numpy(case[k]) for k in ("src_tokens", "prev_output_tokens"))
    pad_mask, real = source == 1, target != 1
    model.gradient_share /= 2  # the released code's 2
    memory = model.encode(source, pad_mask)
    close(memory.keys[~pad_mask], case["encoder_x"][~pad_mask.numpy()], where)
    close(memory.values[~pad_mask], case["encoder_y"][~pad_mask.numpy()], where)
    logits = model.output(model.hidden_states(target, memory))
    close(logits[real], case["logits"][real.numpy()], where)
    share = model.attention(target, memory) * sum(config.attends) / config.decoder.layers
    close(share[real], case["avg_attn"][real.numpy()], where)

    state = model.start(memory)
    for t in range(target.shape[1]):
        step, state = model.step(target[:, t : t + 1], memory, state)
        close(step[real[:, t], 0], case["step_logits"][:, t][real[:, t].numpy()], where)

    logits.backward(torch.from_numpy(case["grad_logits"]))
    for name, parameter in model.named_parameters():
        theirs = released(case, name, "grad", parameter)
        if "tokens" in name:  # the released code never learns padding's row
            parameter.grad[1] = theirs[1]
        close(parameter.grad, theirs, f"{where} {name}")


def set_weights(layer: nn.Module, case, prefix: str = "") -> None:
    """Weight-normalised from g and v, or with a length and direction of the whole weight."""
    with torch.no_grad():
        layer.bias.copy_(torch.from_numpy(case[f"{prefix}bias"]))
        if f"{prefix}weight" in case:
            layer.weight = tap_last(torch.from_numpy(case[f"{prefix}weight"]))
            return
        for ours, theirs in (("original0", "weight_g"), ("original1", "weight_v")):
            parameter = getattr(layer.parametrizations.weight, ours)
            weight = torch.from_numpy(case[prefix + theirs])
            parameter.copy_(tap_last(weight).view_as(parameter))


@pytest.mark.parametrize(
    ("pattern", "count", "causal"),
    [
        ("convtbc_*_K1_P0", 1, False),
        ("convtbc_*_K3_P1", 1, False),
        ("convtbc_*_K5_P2", 1, False),
        ("weightnorm_convtbc", 1, False),
        ("linearized_*", 3, True),
    ],
)
def test_known_convolutions(golden, monkeypatch, pattern, count, causal):
    """Before the gate; the others of these files pad as no layer here does."""
    monkeypatch.setattr("torch.nn.functional.glu", lambda x, dim: x)
    for name, _, case in golden.cases(pattern, count, count):
        x = torch.from_numpy(case["x"]).transpose(0, 1).requires_grad_()  # stored as (T, B, C)
        inputs, outputs = x.shape[2], case["out"].shape[2]
        kernel = case["weight_v" if "weight_v" in case else "weight"].shape[0]
        layer = GatedConv(inputs, outputs // 2, kernel, causal=causal, dropout=0.0).double()
        set_weights(layer.conv, case)
        out = layer(x)
        close(out, case["out"].swapaxes(0, 1), name)
        out.backward(torch.from_numpy(case["grad_out"]).transpose(0, 1))
        close(x.grad, case["grad_x"].swapaxes(0, 1), name)
        close(layer.conv.bias.grad, case["grad_bias"], name)
        if "weight_v" in case:
            close(layer.conv.weight, tap_last(torch.from_numpy(case["weight_effective"])))
            g, v = layer.conv.parametrizations.weight.parameters()
            close(g.grad.flatten(), case["grad_weight_g"].flatten())
            close(v.grad, tap_last(torch.from_numpy(case["grad_weight_v"])))
        if "step_outs" in case:
            state, steps = None, []
            for part in x.detach().split(1, dim=1):
                step, state = layer.step(part, state)
                steps.append(step)
            close(torch.cat(steps, dim=1), case["step_outs"].swapaxes(0, 1), name)


def test_only_a_causal_convolution_steps():
    layer = GatedConv(4, 4, 3, causal=False, dropout=0.0)
    with pytest.raises(ValueError, match=r"^GatedConv\.step .* causal=True"):
        layer.step(torch.zeros(1, 1, 4))


def test_known_positions(golden):
    """Padding, on either side, is not counted; the released code begins after padding's id."""
    _, meta, case = golden.case("make_positions")
    tokens, expected = (torch.from_numpy(case[key]) for key in ("tokens", "positions"))
    pad_mask = tokens == meta["padding_idx"]
    embedding = PositionedEmbedding(10, 1, tokens.shape[1], dropout=0.0)
    with torch.no_grad():
        embedding.tokens.weight.zero_()
        embedding.positions.weight.copy_(torch.arange(tokens.shape[1])[:, None])
    found = embedding(tokens, pad_mask=pad_mask).squeeze(2) + meta["padding_idx"] + 1
    assert found[~pad_mask].tolist() == expected[~pad_mask].tolist()


def test_known_weight_norm_of_a_linear_layer(golden):
    case = golden.case("weightnorm_linear").arrays
    layer = weight_normed_linear(5, 7).double()
    set_weights(layer, case)
    close(layer.weight, case["weight_effective"])
    out = layer(torch.from_numpy(case["x"]))
    close(out, case["out"])
    out.backward(torch.from_numpy(case["grad_out"]))
    g, v = layer.parametrizations.weight.parameters()
    close(g.grad, case["grad_weight_g"])
    close(v.grad, case["grad_weight_v"])


def test_known_attention(golden):
    for name, meta, case in golden.cases("fconv_attention_*", chosen=2, full=2):
        layer = MultiStepAttention(meta["C"], meta["E"]).double()
        set_weights(layer.query_proj, case, "sd.in_projection.")
        set_weights(layer.out_proj, case, "sd.out_projection.")
        leaves = {
            leaf: torch.from_numpy(case[leaf]).requires_grad_()
            for leaf in ("x", "target_embedding", "encoder_a", "encoder_b")
        }
        x, g, keys, values = leaves.values()
        pad_mask = torch.from_numpy(case["padding_mask"]) if "padding_mask" in case else None
        h, share = layer(x, g, KeyedMemory(keys, values, pad_mask))
        close(h, case["out"], name)
        close(share, case["attn"], name)
        h.backward(torch.from_numpy(case["grad_out"]))
        for leaf, tensor in leaves.items():
            close(tensor.grad, case[f"grad_{leaf}"], f"{name} {leaf}")


# Decoding and padding.


@pytest.mark.parametrize("positions", ["both", "source", "target", "none"])
def test_steps_equal_the_whole_and_padding_changes_nothing(positions):
    """Chunks of 1, 2 and 4 positions; zeros at either end of the source."""
    model, source, target = small(positions=positions), tokens(2, 7), tokens(2, 7)
    whole = model(source, target)
    for padding in ((0, 3), (3, 0)):
        pad_mask = nn.functional.pad(torch.zeros(2, 7, dtype=torch.bool), padding, value=True)
        memory = model.encode(nn.functional.pad(source, padding), pad_mask)
        close(model.output(model.hidden_states(target, memory)), whole)
        state, parts = model.start(memory), []
        for part in target.split([1, 2, 4], dim=1):
            logits, state = model.step(part, memory, state)
            parts.append(logits)
        close(torch.cat(parts, dim=1), whole)


def test_nothing_looks_ahead():
    model, source, target = small(), tokens(2, 7), tokens(2, 7)
    changed = torch.cat([target[:, :4], 1 + target[:, 4:]], dim=1)
    same = (model(source, target) - model(source, changed)).abs().amax(dim=(0, 2)) == 0
    assert same.tolist() == [True] * 4 + [False] * 3


def test_a_beam_search_with_state_equals_one_without():
    model = small(vocab_size=12)
    source, pad_mask = pad_sequences([[3, 4, 5, 6, EOS], [7, EOS], [8, 9, 10, EOS]])
    with_state, without = (
        beam_search(model, source, pad_mask, beam=3, make_stepper=stepper)
        for stepper in (IncrementalStepper, RecomputingStepper)
    )
    for a, b in zip(with_state, without, strict=True):
        assert [h.tokens for h in a] == [h.tokens for h in b]
        assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-9)


def test_what_decoding_keeps_does_not_grow():
    model = small()
    memory = model.encode(tokens(2, 7))
    state = model.start(memory)
    for part in tokens(2, 20).split(1, dim=1):
        _, state = model.step(part, memory, state)
        kernels = [kernel for _, kernel, _ in model.config.decoder.each_layer()]
        for history, kernel in zip(state.mixer_states, kernels, strict=True):
            assert len(history.slots.data) <= 2 * kernel - 1


def test_attention_is_the_mean_of_the_attending_layers():
    model, source, target = small(), tokens(2, 7), tokens(2, 5)
    pad_mask = torch.arange(7).expand(2, 7) >= torch.tensor([[7], [4]])
    memory = model.encode(source, pad_mask)
    shares = []
    for block in model.decoder.blocks:
        if block.attention is not None:
            block.attention.register_forward_hook(lambda *call: shares.append(call[2][1]))
    share = model.attention(target, memory)
    assert share.shape == (2, 5, 7) and len(shares) == 2
    close(share, (shares[0] + shares[1]) / 2)
    close(share.sum(2), torch.ones(2, 5, dtype=torch.float64))
    assert (share[1, :, 4:] == 0).all()


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_sentence_beyond_the_positions_is_named(side):
    model = small(max_positions=5)
    assert model.max_positions == 5
    model(tokens(1, 5), tokens(1, 5))
    words = "6 tokens, <eos> included, is longer than max_positions 5"
    with pytest.raises(UserError, match=words):
        model(tokens(1, 6 if side == "source" else 5), tokens(1, 6 if side == "target" else 5))
    with pytest.raises(UserError, match=words):
        memory = model.encode(tokens(1, 5))
        _, state = model.step(tokens(1, 4), memory, model.start(memory))
        model.step(tokens(1, 2), memory, state)
    other = small(max_positions=5, positions="target" if side == "source" else "source")
    other(tokens(1, 9 if side == "source" else 5), tokens(1, 9 if side == "target" else 5))
    assert small(positions="none").max_positions is None


# Initialisation.


def test_each_parameter_learns_and_padding_changes_no_loss():
    model = small(vocab_size=12)
    torch.manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    pairs = [([3, 4, 5, 6], [5, 6]), ([7], [8, 9, 10, 4]), ([8, 3], [6])]
    loss_module = BatchLoss(model, Translation(Recipe()))
    together = loss_module(collate_pairs(pairs))
    close(together, sum(loss_module(collate_pairs([pair])) for pair in pairs))
    together.backward()
    assert all(p.grad.abs().max() > 0 for p in model.parameters())


def test_the_encoder_learns_from_each_attending_layer_its_share():
    """And the embeddings among the values learn from all of them (section 3.4)."""

    def gradients(share: float):
        model = small()
        assert model.gradient_share == 1 / 2
        model.gradient_share = share
        memory = model.encode(tokens(2, 7))
        loss = (memory.keys + memory.values).pow(2).sum()
        e = model.source_embedding.tokens.weight
        return torch.autograd.grad(loss, (e, *model.encoder.parameters()))

    none, half, whole = (gradients(share) for share in (0.0, 0.5, 1.0))
    for i, (a, b, c) in enumerate(zip(none, half, whole, strict=True)):
        close(b, (a + c) / 2)
        assert bool(a.any()) == (i == 0)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_variance_at_the_start_stays_through_20_layers(dropout):
    """Sections 3.4 and 3.5, that of the embeddings being small; in training mode."""
    torch.manual_seed(0)
    layers = ConvStackConfig(20, 256, 3)
    config = ConvS2SConfig(
        vocab_size=500, embedding=256, encoder=layers, decoder=layers, dropout=dropout
    )
    model = build(config).train()
    variances = {"encoder": [], "decoder": []}
    for side, found in variances.items():
        for block in getattr(model, side).blocks:  # a block's shortcut sees what it is given
            block.shortcut.register_forward_hook(lambda *call, f=found: f.append(call[2].var()))
    source, target = torch.randint(500, (2, 4, 40))
    with torch.no_grad():
        hidden = model.hidden_states(target, model.encode(source))
    start = 2 * 0.1**2  # of w + p
    for found in variances.values():
        assert len(found) == 20
        assert all(0.9 < v / start < 1.7 for v in found)
    assert 0.9 < (1 - dropout) * hidden.var() / start < 1.8  # its last dropout undone


def test_initial_weights_have_the_papers_deviations():
    """N(0, sqrt(4 p / n)) before a GLU, N(0, sqrt(p / n)) after dropout, N(0, 0.1), 0."""
    torch.manual_seed(0)
    stack = ConvStackConfig(2, (300, 200), 3)
    config = ConvS2SConfig(
        vocab_size=1000, embedding=200, encoder=stack, decoder=stack, dropout=0.2
    )
    model = build(config)
    top = model.decoder.blocks[1]
    for layer, deviation in [
        (top.conv.conv, math.sqrt(4 * 0.8 / 900)),
        (top.shortcut, math.sqrt(1 / 300)),
        (top.attention.query_proj, math.sqrt(1 / 200)),
        (top.attention.out_proj, math.sqrt(1 / 200)),
        (model.encoder.in_proj, math.sqrt(0.8 / 200)),
        (model.encoder.out_proj, math.sqrt(1 / 200)),
        (model.output, math.sqrt(0.8 / 200)),
        (model.source_embedding.tokens, 0.1),
        (model.target_embedding.positions, 0.1),
    ]:
        assert layer.weight.std().item() == pytest.approx(deviation, rel=0.02)
        assert getattr(layer, "bias", None) is None or not layer.bias.any()


def test_a_seed_gives_the_same_model_and_a_checkpoint_gives_it_back(tmp_path):
    one, other = small(), small()
    logits = one(tokens(2, 7), tokens(2, 5))
    assert torch.equal(logits, other(tokens(2, 7), tokens(2, 5)))
    saved = CheckpointStore(tmp_path).write("000001", named_weights(one), None, {"update": 1})
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    load_weights(other, saved.read_weights(), saved.path)
    assert torch.equal(logits, other(tokens(2, 7), tokens(2, 5)))


def test_the_weights_of_an_older_checkpoint_are_found(tmp_path):
    model = small()
    saved = CheckpointStore(tmp_path).write("000001", named_weights(model), None, {"update": 1})
    ours = saved.read_weights()
    renamed = [("coder.in_proj.", "coder.enter."), ("coder.out_proj.", "coder.leave.")]
    old = {}
    for name, weight in ours.items():
        for new, older in renamed:
            name = name.replace(new, older)
        old[name] = weight
    assert len(old.keys() - ours.keys()) == 12  # bias, length and direction of four projections
    data = safetensors.torch.save(old)
    (saved.path / "model.safetensors").write_bytes(data)
    saved.meta["sha256"]["model.safetensors"] = hashlib.sha256(data).hexdigest()
    read = saved.read_weights()
    assert read.keys() == ours.keys()
    assert all(torch.equal(read[name], ours[name]) for name in ours)


# Sizes.

PAPER = [(512, 3)] * 10 + [(768, 3)] * 3 + [(2048, 1)] * 2
RELEASED = [(512, 3)] * 9 + [(1024, 3)] * 4 + [(2048, 1)] * 2


@pytest.mark.parametrize(
    ("layers", "widths", "vocab_size", "count"),
    [
        (PAPER, {}, 40000, 154.46),
        (PAPER, {}, 42000, 157.54),
        (RELEASED, {"embedding": 768, "output": 512}, 40000, 209.57),
        (RELEASED, {"embedding": 768, "output": 512}, 42000, 213.67),
    ],
)
def test_parameters_of_the_english_german_model(layers, widths, vocab_size, count):
    """Lioutas and Guo 2020, Table 2, print 216M: the released code's list, not section 5.1's.

    That list reaches it with 43,140 types on either side; the paper's is far from it.
    """
    stack = ConvStackConfig(len(layers), *map(tuple, zip(*layers, strict=True)))
    with torch.device("meta"):
        model = build(ConvS2SConfig(vocab_size=vocab_size, encoder=stack, decoder=stack, **widths))
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    assert millions == pytest.approx(count, abs=0.005)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ConvStackConfig(3, (8, 8)), "channels lists 2 entries for 3 layers"),
        (
            lambda: ConvStackConfig(2, kernel_size=0),
            "^kernel_size 0 must be a whole number at least 1 ",
        ),
        (lambda: ConvStackConfig(2, residual=(1, 3)), "residual 3 of layer 2 must be 0 to 2"),
        (lambda: ConvS2SConfig(attention=(True,)), "attention lists 1 entries for 20 layers"),
        (lambda: ConvS2SConfig(attention=False), "attention is false everywhere"),
        (lambda: ConvS2SConfig(output=0), "^output 0 must be a whole number at least 1 "),
    ],
)
def test_bad_configurations_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
