"""The encoder-decoder: sizes of the papers, steps, padding and released outputs."""

from typing import get_args

import pytest
import torch
from conftest import sized_stack
from helpers.sizes import CNNDM, FULL, IWSLT, WMT, millions

from dynconv.choices import Activation
from dynconv.config import Seq2SeqConfig, StackConfig
from dynconv.models import build
from dynconv.models.blocks import ACTIVATIONS
from dynconv.models.embedding import sinusoids
from dynconv.models.mixers import MIXERS


@pytest.mark.parametrize(
    ("published", "count"),
    [
        # Wu et al. 2019, Table 3 (WMT En-De, 32,768 joint types, without GLU).
        pytest.param(210, lambda: millions("attention", "attention", FULL, **WMT), id="attention"),
        pytest.param(
            208, lambda: millions("dense", "dense", ((3,) * 7, (3,) * 6), **WMT), id="CNN"
        ),
        pytest.param(195, lambda: millions("depthwise", "depthwise", **WMT), id="depthwise"),
        pytest.param(195, lambda: millions("light", "light", **WMT), id="light"),
        pytest.param(200, lambda: millions("dynamic", "dynamic", **WMT), id="dynamic"),
        pytest.param(260, lambda: millions("attention", "average", FULL, **WMT), id="AAN decoder"),
        pytest.param(310, lambda: millions("average", "average", FULL, **WMT), id="AAN both"),
        # Table 1: DynamicConv with GLU.
        pytest.param(213, lambda: millions("dynamic", "dynamic"), id="dynamic GLU"),
        # IWSLT: the sizes hold for a joint dictionary of about 10,152 types, three matrices.
        pytest.param(
            43, lambda: millions("dynamic", "dynamic", vocab_size=10152, **IWSLT), id="IWSLT"
        ),
        # Table 5 (CNN-DailyMail) prints d = 1024; its counts are those of d = 512.
        pytest.param(
            86.5, lambda: millions("light", "light", vocab_size=30000, **CNNDM), id="CNN-DM light"
        ),
        pytest.param(
            87.6, lambda: millions("dynamic", "dynamic", vocab_size=30000, **CNNDM), id="CNN-DM"
        ),
        # Lioutas and Guo 2020: WMT En-De 209M, IWSLT 42M.
        pytest.param(209, lambda: millions("talk", "talk"), id="TaLK GLU"),
    ],
)
def test_parameter_counts_of_the_papers(published, count):
    assert count() == pytest.approx(published, abs=0.95)


def test_table_1_light_conv_is_an_erratum():
    """Wu et al., Table 1, print 202M for LightConv with GLU; with GLU on both sides it is 209M."""
    assert millions("light", "light") == pytest.approx(208.9, abs=0.05)


def small(mixer: str, **changes):
    stack = sized_stack(2, mixer, None if mixer == "attention" else (3, 5))
    torch.manual_seed(0)
    config = Seq2SeqConfig(
        vocab_size=11, channels=12, ffn=16, heads=3, encoder=stack, decoder=stack, **changes
    )
    return build(config).double().eval()


TOKENS = torch.randint(1, 11, (2, 7), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_steps_equal_the_whole_and_padding_does_not_leak(mixer, norm):
    model = small(mixer, norm=norm)
    whole = model(TOKENS, TOKENS)
    padded = torch.nn.functional.pad(TOKENS, (0, 3))
    pad_mask = torch.arange(10).expand(2, 10) >= 7
    memory = model.encode(padded, pad_mask)
    state, parts = model.start(memory), []
    for part in TOKENS.split([1, 2, 4], dim=1):
        logits, state = model.step(part, memory, state)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_the_activations_of_a_recipe_by_hand():
    x = torch.tensor([-2.0, 0.5])
    by_hand = {"relu": x.clamp(min=0), "swish": x / (1 + torch.exp(-x))}
    assert [*get_args(Activation)] == [*ACTIVATIONS] == [*by_hand]
    for name, expected in by_hand.items():
        torch.testing.assert_close(ACTIVATIONS[name](x), expected)


@pytest.mark.parametrize(("embeddings", "matrices"), [("shared", 1), ("tied", 2), ("separate", 3)])
def test_embedding_matrices(embeddings, matrices):
    shapes = [tuple(p.shape) for p in small("light", embeddings=embeddings).parameters()]
    assert shapes.count((11, 12)) == matrices


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Seq2SeqConfig(channels=10, heads=4), "4 heads do not divide 10 channels"),
        (lambda: StackConfig(3, "light", (3, 7)), "kernel_size lists 2 entries for 3 layers"),
        (lambda: StackConfig(3, "light"), "mixer light needs a kernel_size"),
        (lambda: StackConfig(3, "light", 4), "kernel_size 4 of mixer light must be odd"),
        (lambda: StackConfig(3, "attention", window=4), "window 4 of mixer attention must be odd"),
        (
            lambda: StackConfig(3, "attention", 3),
            "kernel_size 3 has no effect: mixer attention takes",
        ),
        (lambda: StackConfig(3, "light", 3, reach=2), "reach 2 has no effect: mixer light takes"),
        (lambda: StackConfig(2, ("talk", "light"), 3), "mixer talk needs a reach"),
        (lambda: StackConfig(2, "lite"), "mixer 'lite' is not known; did you mean light?"),
        (lambda: StackConfig(0), "^layers 0 must be a whole number at least 1 "),
        (lambda: Seq2SeqConfig(head=4), "^unknown key head; did you mean heads?"),
        (
            lambda: StackConfig(2, ("light", "average"), (3, 5)),
            "kernel_size 5 has no effect: mixer average takes no kernel_size",
        ),
    ],
)
def test_bad_configurations_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("config", ["help-de-en-dynamic", {}, None])
def test_a_model_is_built_from_a_configuration(config):
    with pytest.raises(TypeError, match=r"such as load_recipe\(NAME\).model, not"):
        build(config)


def test_known_sinusoids_of_any_width(golden):
    """The released table has a row of zeros for padding, and for odd C a last column of zeros."""
    for name, meta, case in golden.cases("sinusoidal_*", chosen=2, full=3):
        table = torch.from_numpy(case["table"])
        mine = sinusoids(torch.arange(len(table)), meta["dim"])
        mine[meta["padding_idx"]] = 0
        torch.testing.assert_close(
            mine, table, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_known_sinusoids(golden):
    case = golden.case("lightconv_model_lightweight_glu1_prenorm0_nopad").arrays
    table = torch.from_numpy(case["positions_table"])
    # Row 2 holds position 0 there: rows begin at the padding id + 1.
    mine = sinusoids(torch.arange(2, 20), 8)
    torch.testing.assert_close(mine, table[2:].float(), rtol=1e-5, atol=1e-6)


# Our names of parameters, and the released code's, layer by layer.
RENAMED = [
    ("around_mixer.norm", {"encoder": "layer_norm1", "decoder": "conv_layer_norm"}),
    ("around_cross.norm", {"decoder": "encoder_attn_layer_norm"}),
    ("around_ffn.norm", {"encoder": "layer_norm2", "decoder": "final_layer_norm"}),
    ("mixer.in_proj.linear", "linear1"),
    ("mixer.kernel_proj", "conv.weight_linear"),
    ("mixer.weight", "conv.weight"),
    ("mixer.out_proj", "linear2"),
    ("cross.query_proj", "encoder_attn.q_proj"),
    ("cross.out_proj", "encoder_attn.out_proj"),
    ("ffn.linear1", "fc1"),
    ("ffn.linear2", "fc2"),
]


def released(case, name: str, kind: str) -> torch.Tensor:
    """Our parameter's weights (kind "sd") or gradient ("grad") in the released model."""
    side = name.split(".")[0].split("_")[0]
    if "embedding" in name:
        side = {"source": "encoder", "target": "decoder"}[side]
        return torch.from_numpy(case[f"{kind}.{side}.embed_tokens.weight"])
    if "_norm." in name and "layers" not in name and name.count(".") == 1:
        return torch.from_numpy(case[f"{kind}.{side}.layer_norm.{name.split('.')[1]}"])
    name = name.replace(side, f"{side}.layers", 1)
    if "cross.memory_proj" in name:
        parts = [name.replace("cross.memory_proj", f"encoder_attn.{p}_proj") for p in "kv"]
        return torch.cat([torch.from_numpy(case[f"{kind}.{part}"]) for part in parts])
    for ours, theirs in RENAMED:
        if ours in name:
            theirs = theirs if isinstance(theirs, str) else theirs[side]
            name = name.replace(ours, theirs)
            break
    return torch.from_numpy(case[f"{kind}.{name}"])


@pytest.mark.parametrize("mixer", ["lightweight", "dynamic"])
def test_the_released_models_logits_and_gradients(golden, monkeypatch, mixer):
    """With GLU and without, pre-norm and post-norm, without padding and with it on the right."""
    # Those with padding on the left have other positions.
    for where, meta, case in golden.cases(f"lightconv_model_{mixer}_*_[nr]*pad", chosen=1, full=8):
        compare_with_released_model(where, meta, case, monkeypatch)


def compare_with_released_model(where: str, meta: dict, case: dict, monkeypatch) -> None:
    """Logits, and the gradient of every parameter."""
    mixer = meta["conv_type"]
    stack = sized_stack(2, "light" if mixer == "lightweight" else mixer, (3, 7))
    config = Seq2SeqConfig(
        vocab_size=13,
        channels=8,
        ffn=12,
        heads=2,
        encoder=stack,
        decoder=stack,
        glu=bool(meta["glu"]),
        norm="pre" if meta["prenorm"] else "post",
        embeddings="tied",
        dropout=0.0,
    )
    model = build(config).double()
    # There, position 0 has row 2 of the table; the table itself is compared below.
    monkeypatch.setattr(
        "dynconv.models.embedding.sinusoids",
        lambda positions, _: torch.from_numpy(case["positions_table"])[positions + 2],
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(released(case, name, "sd").view_as(parameter))
    source, target = (torch.from_numpy(case[k]) for k in ("src_tokens", "prev_output_tokens"))
    logits = model(source, target, source == 1)
    real = target != 1
    expected = torch.from_numpy(case["logits"])[real]
    torch.testing.assert_close(logits[real], expected, msg=lambda m: f"{where}: {m}")
    logits.backward(torch.from_numpy(case["grad_logits"]))
    for name, parameter in model.named_parameters():
        theirs = released(case, name, "grad").view_as(parameter)
        if "embedding" in name:  # the released code never learns padding's row
            parameter.grad[1] = theirs[1]
        name = f"{where} {name}"
        torch.testing.assert_close(parameter.grad, theirs, msg=lambda m, n=name: f"{n}: {m}")
