"""Every mixer as a layer: what `check_mixer` checks, kernels, gradients, wrong arguments."""

import re
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.func import functional_call

from dynconv import ops
from dynconv.config import Seq2SeqConfig, StackConfig
from dynconv.errors import UserError
from dynconv.layers import (
    S4D,
    AverageAttention,
    CrossAttention,
    DenseConv,
    DepthwiseConv,
    DynamicConv,
    LightConv,
    Retention,
    SelectiveSSM,
    SelfAttention,
    TaLKConv,
    check_mixer,
)
from dynconv.layers.convolution import repeat_kernel
from dynconv.layers.history import History
from dynconv.layers.padding import mask_padding
from dynconv.layers.state import check_steppable
from dynconv.models import mixers
from dynconv.models.mixers import MIXERS, build_mixer, register_mixer

C, H = 12, 3
CONFIG = Seq2SeqConfig(channels=C, heads=H, ffn=24, state_size=4)
SIZES = {"kernel_size": 5, "reach": 4, "window": None, None: None}
VARIANTS = {
    "window": lambda causal: SelfAttention(C, H, 5, causal=causal),
    "dynamic1": lambda causal: DynamicConv(C, H, 1, causal=causal),
    "light none": lambda causal: LightConv(C, H, 5, causal=causal, normalize="none"),
    "dynamic tanh": lambda causal: DynamicConv(C, H, 5, causal=causal, normalize="tanh"),
    "talk none": lambda causal: TaLKConv(C, H, 4, 0 if causal else 4, divide_by_max_length=False),
}
LAYERS = (*MIXERS, *VARIANTS)
RECURRENT = ("ssm", "retention", "selective")
"""layers whose state reaches back to the first position"""


def layer_of(name: str, causal: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    if name in VARIANTS:
        layer = VARIANTS[name](causal).double().eval()
    else:
        layer = (
            build_mixer(CONFIG, name, SIZES[MIXERS[name].size_key], causal=causal).double().eval()
        )
    for p in layer.parameters():  # biases too: a leaking bias must show
        torch.nn.init.normal_(p, std=0.5)
    return layer


def tokens(T: int) -> torch.Tensor:
    return torch.randn(2, T, C, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_does_what_a_mixer_promises(name):
    check_mixer(lambda causal: layer_of(name, causal), C)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_under_autocast_every_layer_stays_in_half_precision(name, causal):
    """A float32 parameter that is not cast would turn all that follows it into float32."""
    layer, x, dtypes = layer_of(name, causal).float(), tokens(9).bfloat16(), []
    for module in layer.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: dtypes.append(inputs[0].dtype))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        dtypes.append(layer(x).dtype)
        if causal:
            _, state = layer.step(x[:, :4])
            dtypes.append(layer.step(x[:, 4:], state)[0].dtype)
    assert {*dtypes} == {torch.bfloat16}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_steps_equal_forward_in_every_precision(name, dtype):
    layer, x, state, parts = layer_of(name, True).to(dtype), tokens(9).to(dtype), None, []
    for part in x.split([1, 1, 4, 1, 2], dim=1):
        y, state = layer.step(part, state)
        parts.append(y)
    expected = layer(x).float()
    error = (torch.cat(parts, 1).float() - expected).abs().max() / expected.abs().max()
    assert error < {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5}[dtype]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_mask_without_padding_changes_nothing_in_half_precision(name, dtype, causal):
    """Nor do counts and sums overflow or lose digits in a long sentence."""
    layer, x = layer_of(name, causal).to(dtype), (torch.rand(1, 3001, C) + 1).to(dtype)
    with torch.no_grad():
        y, masked = layer(x), layer(x, torch.zeros(1, 3001, dtype=torch.bool))
    limit = torch.finfo(dtype).eps * (1 if name in ("attention", "window") else 0)
    torch.testing.assert_close(y, masked, rtol=limit, atol=limit * y.abs().max().item())


def test_the_average_of_a_long_sentence_fits_into_half_precision():
    layer, mean = AverageAttention(4, 8), []
    layer.ffn.register_forward_pre_hook(lambda _, inputs: mean.append(inputs[0]))
    layer.half()(torch.full((1, 2000, 4), 40.0).half())
    assert torch.equal(mean[0], torch.full((1, 2000, 4), 40.0).half())


@pytest.mark.parametrize("channels", [C, 16 * H])
@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_may_be_empty(name, channels, monkeypatch):
    """Heads of fewer than 8 channels take another way through `step`."""
    monkeypatch.setitem(globals(), "C", channels)
    monkeypatch.setitem(globals(), "CONFIG", replace(CONFIG, channels=channels))
    layer, x = layer_of(name, True), torch.zeros(0, 4, channels, dtype=torch.float64)
    assert layer(x).shape == x.shape
    y, state = layer.step(x[:, :1])
    assert y.shape == x[:, :1].shape
    assert layer.step(x[:, 1:], state)[0].shape == x[:, 1:].shape


@pytest.mark.parametrize("name", LAYERS)
def test_only_histories_stop_gradients(name):
    layer, x = layer_of(name, True), tokens(1).requires_grad_()
    _, state = layer.step(x)
    y, _ = layer.step(tokens(1), state)
    reaches = y.requires_grad and torch.autograd.grad(y.sum(), x, allow_unused=True)[0] is not None
    assert reaches == (not isinstance(state, History))


@pytest.mark.parametrize("name", LAYERS)
def test_a_step_needs_a_new_position(name):
    layer = layer_of(name, True)
    with pytest.raises(ValueError, match=r"\.step needs at least one new position"):
        layer.step(tokens(0))


@pytest.mark.parametrize("T", [5, 50, 300])
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_runs_on_a_device_without_autocast(name, T):
    """The meta device is one; each T takes another way through the operators."""
    layer = layer_of(name, False).to("meta")
    assert layer(tokens(T).to("meta")).shape == (2, T, C)


@pytest.mark.parametrize("size", [0, 2, -3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (lambda size, causal: SelfAttention(C, H, size, causal=causal), "window"),
        (lambda size, causal: DynamicConv(C, H, size, causal=causal), "kernel size"),
        (lambda size, causal: LightConv(C, H, size, causal=causal), "kernel size"),
        (lambda size, causal: DepthwiseConv(C, size, causal=causal), "kernel size"),
        (lambda size, causal: DenseConv(C, size, causal=causal), "kernel size"),
    ],
)
def test_windows_and_kernels_are_odd(layer, words, size, causal):
    with pytest.raises(ValueError, match=f"^{words} {size} must be odd and positive"):
        layer(size, causal)


@pytest.mark.parametrize("layer", [LightConv, DynamicConv])
def test_an_unknown_normalisation_is_refused_when_the_layer_is_built(layer):
    with pytest.raises(ValueError, match="^no normalisation 'softmux': did you mean softmax[?]"):
        layer(C, H, 3, normalize="softmux")


class Last(NamedTuple):
    token: torch.Tensor


class FirstRow(Last):
    def select(self, rows):
        return Last(self.token[:1].expand(len(rows), 1, C))


class Conv(torch.nn.Module):
    """A convolution with three taps, whose `step` may have one fault."""

    def __init__(self, causal, fault):
        super().__init__()
        self.causal, self.pad_left, self.fault = causal, 2 if causal else 1, fault
        self.weight = torch.nn.Parameter(torch.randn(1, 3))
        self.linear = torch.nn.Linear(C, C)

    def forward(self, x, pad_mask=None):
        x = mask_padding(self.linear(x), pad_mask)
        return ops.light_conv(x, self.weight.to(x.dtype), pad_left=self.pad_left)

    def step(self, x, state=None):
        if self.fault != "bidirectional":
            check_steppable(self, self.causal, x)
        x = self.linear(x)
        state = History.extended(state, x, 1 if self.fault == "history" else 2)
        weight = self.weight if self.fault == "dtype" else self.weight.to(x.dtype)
        return state.convolve(repeat_kernel(x, weight)), state


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("bidirectional", r"step cannot look ahead as forward does: begin it with check_steppable"),
        ("history", r"ValueError: 3 taps need 2 earlier positions: History\.extended"),
        ("dtype", "under autocast: TypeError: past is torch.bfloat16, weight torch.float32"),
    ],
)
def test_a_broken_step_of_a_convolution_is_caught(fault, words):
    check_mixer(lambda causal: Conv(causal, "none"), C)
    with pytest.raises(AssertionError, match=f"^Conv with causal=(True|False): {words}"):
        check_mixer(lambda causal: Conv(causal, fault), C)


class PreviousToken(torch.nn.Module):
    """Returns the token before each position, with one fault."""

    def __init__(self, causal, fault):
        super().__init__()
        self.causal, self.fault = causal, fault
        if fault == "no step":
            self.step = None
        if fault in ("autocast", "unused"):
            self.weight = torch.nn.Parameter(torch.ones(C, 1))
            self.linear = torch.nn.Linear(C, C)

    def forward(self, x, pad_mask=None):
        clear = mask_padding(x, pad_mask)
        before = x if self.fault == "left" else clear
        if self.fault == "detached":
            before = before.detach()
        y = torch.cat([torch.zeros_like(x[:, :1]), before[:, :-1]], dim=1)
        if self.fault == "right" and not self.causal:
            y = y + x.sum(dim=1, keepdim=True)
        if self.fault == "later" and self.causal:
            y = y + clear.sum(dim=1, keepdim=True)
        if self.fault == "autocast":  # the result of the linear layer is in bfloat16
            y = y + 0 * ops.depthwise_conv(self.linear(y), self.weight, pad_left=0)
        if self.fault == "infinite":  # the derivative of sqrt at 0
            y = y + 0 * (x - x).sqrt()
        return y[..., 1:] if self.fault == "shape" else y

    def step(self, x, state=None):
        if self.fault != "nothing":
            check_steppable(self, True, x)
        if state is None or self.fault == "step":
            state = Last(torch.zeros_like(x[:, :1]))
        y = torch.cat([state.token, x[:, :-1]], dim=1)
        last = x[:, -1:].clone()
        if self.fault == "in place":
            state.token.copy_(last)
        if self.fault in ("tensor", "list"):
            return y, last if self.fault == "tensor" else [last]
        return y, (FirstRow if self.fault == "select" else Last)(last)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("shape", r"causal=False: x \(2, 9, 12\) becomes \(2, 9, 11\)"),
        ("left", "causal=False: real positions see padding on the left"),
        ("right", "causal=False: real positions see padding on the right"),
        ("later", "causal=True: positions see later ones"),
        ("step", r"causal=True: steps of \[1, 1, 1.* differ from forward"),
        ("nothing", "causal=True: step accepts no position: begin it with check_steppable"),
        ("select", r"causal=True: a step from selected rows of the state"),
        ("in place", "causal=True: a step changes the state that it is given"),
        ("detached", "causal=False: x gets no gradient$"),
        ("unused", "causal=False: weight gets no gradient$"),
        ("infinite", "causal=False: the gradient of x is not finite$"),
        ("no step", "causal=True: TypeError: 'NoneType' object is not callable$"),
        ("tensor", r"causal=True: the state, a Tensor, has no select\(rows\): return a NamedTuple"),
        ("list", r"causal=True: the state, a list, has no select\(rows\): return a NamedTuple"),
        (
            "autocast",
            "causal=False: under autocast: TypeError: x is torch.bfloat16, weight to",
        ),
    ],
)
def test_a_broken_mixer_is_caught(fault, words):
    check_mixer(lambda causal: PreviousToken(causal, "none"), C)
    with pytest.raises(AssertionError, match=f"^PreviousToken with {words}"):
        check_mixer(lambda causal: PreviousToken(causal, fault), C)


@pytest.mark.parametrize("name", LAYERS)
def test_only_causal_layers_step(name):
    layer = layer_of(name, False)
    with pytest.raises(ValueError, match=rf"^{type(layer).__name__}\.step .* causal=True"):
        layer.step(tokens(1))


@pytest.mark.parametrize("name", sorted({*LAYERS} - {"attention"}))
def test_state_does_not_grow(name):
    layer, state, sizes = layer_of(name, True), None, set()
    for t in range(9):
        _, state = layer.step(tokens(9)[:, t : t + 1], state)
        parts = state if isinstance(state, tuple) else (state.slots.data,)
        sizes.add(sum(part.numel() for part in parts))
    assert max(sizes) <= (2 * 4 + 1) * 2 * C  # room for two windows of K - 1 = 4


def test_average_counts_beyond_256_in_bfloat16():
    layer, state = layer_of("average", True).bfloat16(), None
    x, parts = tokens(600).bfloat16(), []
    for part in x.split(1, dim=1):
        y, state = layer.step(part, state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), layer(x), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_reach_every_position(name):
    """The last output depends on the first input, and in both directions also the reverse."""
    ends = torch.tensor([0, -1])
    for causal in (False, True):
        layer, x = layer_of(name, causal), tokens(9)
        for changed, seen in (ends, ends.flip(0)):
            other = x.clone()
            other[:, changed] += 1
            differs = (layer(other) - layer(x))[:, seen].abs().max() > 1e-6
            assert differs == (changed == 0 or not causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("channels", [0, -2])
@pytest.mark.parametrize("name", MIXERS)
def test_every_layer_refuses_to_have_no_channels(name, channels, causal):
    """The schema of recipes allows none; this is for a layer that is built by hand."""
    mixer = MIXERS[name]
    options = {option: getattr(CONFIG, option) for option in mixer.options}
    with pytest.raises(ValueError, match=rf"channels {channels} must|divide {channels} channels"):
        mixer.build(channels, SIZES[mixer.size_key], causal, **options)


@pytest.mark.parametrize("heads", [0, 3])
def test_retention_refuses_heads_that_do_not_divide(heads):
    with pytest.raises(ValueError, match=f"{heads} heads do not divide 4 channels"):
        Retention(4, heads)


def test_talk_refuses_windows_of_negative_reach():
    with pytest.raises(ValueError, match="max_left 3 and max_right -1 must not be negative"):
        TaLKConv(4, 2, 3, -1)


@pytest.mark.parametrize("name", RECURRENT)
def test_one_head_or_channel_cannot_see_both_ways(name):
    config = Seq2SeqConfig(channels=1, heads=1, ffn=1, state_size=1)
    build_mixer(config, name, None, causal=True)
    words = f"mixer {name}: (heads|channels) 1 can see only one direction: give at least 2$"
    with pytest.raises(UserError, match=words):
        build_mixer(config, name, None, causal=False)


def test_a_mixer_of_unknown_size_is_refused():
    words = "mixer new: size_key 'kernel' is not known; did you mean kernel_size"
    with pytest.raises(ValueError, match=words):
        register_mixer("new", size_key="kernel")
    assert "new" not in MIXERS


def test_options_of_a_mixer_are_not_one_string():
    with pytest.raises(TypeError, match="mixer new: options 'heads' must be a list of names"):
        register_mixer("new", options="heads")
    assert "new" not in MIXERS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"options": ["speed"]}, "mixer new: option 'speed' is not known; there are ffn, heads, "),
        ({"options": ["haeds"]}, "did you mean heads?"),
        ({"options": ["normalise"]}, "did you mean normalize?"),
    ],
)
def test_a_mixer_with_unknown_options_is_refused(arguments, words, monkeypatch):
    monkeypatch.setattr(mixers, "MIXERS", {**MIXERS})
    register_mixer("new", **arguments)(nn.Identity)
    with pytest.raises(ValueError, match=re.escape(words)):
        Seq2SeqConfig(encoder=StackConfig(1, "new"))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", RECURRENT)
def test_gradients_of_recurrent_layers(name, causal):
    layer, x = layer_of(name, causal), tokens(5).requires_grad_()
    names, values = zip(*layer.named_parameters(), strict=True)
    pad_mask = torch.arange(5).expand(2, 5) >= 4

    def call(x, *values):
        return functional_call(layer, dict(zip(names, values, strict=True)), (x, pad_mask))

    assert torch.autograd.gradcheck(call, (x, *values), fast_mode=True)


@pytest.mark.parametrize("kind", ["softmax", "none", "sigmoid", "l2"])
def test_kernels_are_normalised_as_asked(kind):
    """A DynamicConv that predicts the same kernel everywhere is the LightConv of that kernel."""
    light, dynamic = (L(C, H, 3, normalize=kind).double() for L in (LightConv, DynamicConv))
    with torch.no_grad():
        for layer in (light, dynamic):
            torch.nn.init.eye_(layer.in_proj.linear.weight)
            torch.nn.init.eye_(layer.out_proj.weight)
        dynamic.kernel_proj.weight.zero_()
        dynamic.kernel_proj.weight[:, 0] = light.weight.flatten()
    x = tokens(9)
    x[..., 0] = 1.0  # what the kernel is predicted from
    torch.testing.assert_close(dynamic(x), light(x))
    y = ops.light_conv(x, ops.normalize_kernel(light.weight, kind), pad_left=1)
    torch.testing.assert_close(light(x), y)


def test_talk_divides_its_sums_by_their_reach():
    layers = [
        TaLKConv(C, H, 4, 4, divide_by_max_length=divide).double() for divide in (True, False)
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    means, sums = (layer(tokens(9)) for layer in layers)
    torch.testing.assert_close(means * 9, sums)  # out_proj's bias is 0 at first


def test_dropconnect_shares_its_mask_where_the_kernel_is_shared():
    """LightConv draws one (H, K) mask for the batch, DynamicConv one for each position."""
    ones = torch.ones(2, 40, C)
    light, dynamic = (
        LightConv(C, H, 5, weight_dropout=0.5),
        DynamicConv(C, H, 5, weight_dropout=0.5),
    )
    assert len(light(ones)[0, 4:-4].detach().unique(dim=0)) == 1
    assert len(dynamic(ones)[0, 4:-4].detach().unique(dim=0)) > 10
    light.eval()
    assert torch.equal(light(ones), light(ones))


def test_cross_attention_shares_memory_among_beams():
    torch.manual_seed(0)
    layer = CrossAttention(C, H).double()
    memory, x = tokens(7), torch.randn(6, 1, C, dtype=torch.float64)  # 2 sentences, 3 beams
    pad_mask = torch.arange(7).expand(2, 7) >= 5
    beams = layer(x, layer.project(memory), pad_mask)
    memory, pad_mask = memory.repeat_interleave(3, 0), pad_mask.repeat_interleave(3, 0)
    torch.testing.assert_close(beams, layer(x, layer.project(memory), pad_mask))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: DynamicConv(C, 5, 3), "5 heads do not divide 12"),
        (
            lambda: DynamicConv(C, H, 3, weight_dropout=1.5),
            r"weight_dropout 1.5 lies outside \[0, 1",
        ),
        (lambda: DynamicConv(C, H, 3, input_dropout=1.5), r"input_dropout 1.5 lies outside"),
        (lambda: LightConv(C, H, 3, input_dropout=1.0), r"input_dropout 1.0 lies outside"),
        (lambda: DenseConv(0, 3), "channels 0 must be at least 1"),
        (lambda: AverageAttention(0, 4), "channels 0 must be at least 1"),
        (lambda: LightConv(C, H, 4), "kernel size 4 must be odd"),
        (lambda: LightConv(C, 0, 3), "0 heads do not divide 12"),
        (lambda: DynamicConv(0, H, 3), "heads do not divide 0 channels"),
        (lambda: LightConv(C, H, 3, weight_dropout=-0.1), r"weight_dropout -0.1 lies outside"),
        (lambda: DepthwiseConv(C, 2), "kernel size 2 must be odd"),
        (lambda: DepthwiseConv(C, 3, weight_dropout=1), r"weight_dropout 1 lies outside"),
        (lambda: DenseConv(C, 0), "kernel size 0 must be odd"),
        (lambda: SelfAttention(C, H, 4), "window 4 must be odd"),
        (lambda: SelfAttention(C, 7), "7 heads"),
        (lambda: SelfAttention(C, H, dropout=-0.5), r"^dropout -0.5 lies outside"),
        (lambda: CrossAttention(C, H, dropout=1.5), r"^dropout 1.5 lies outside"),
        (lambda: TaLKConv(C, H, -1, 0), "max_left -1 and max_right 0 must not be negative"),
        (lambda: TaLKConv(C, H, 3, 3, weight_dropout=2), r"weight_dropout 2 lies outside"),
        (lambda: TaLKConv(C, 7, 3, 3), "7 heads"),
        (lambda: Retention(C, 7), "7 heads"),
        (lambda: S4D(C, 0), "state_size 0 must be at least 1"),
        (lambda: SelectiveSSM(C, -1), "state_size -1 must be at least 1"),
        (lambda: AverageAttention(C, 0), "ffn 0 must be at least 1"),
    ],
)
def test_bad_sizes_are_named(build, words):
    with pytest.raises(ValueError, match=words):
        build()


NONSENSE = {
    "heads": 0,
    "ffn": 0,
    "state_size": -1,
    "normalize": "softmux",
    "attention_dropout": 1.0,
    "weight_dropout": -0.1,
    "input_dropout": 1.5,
}
"""values that no layer can run with, keyed by option"""


@pytest.mark.parametrize("name", MIXERS)
def test_every_mixer_refuses_nonsense_when_it_is_built(name):
    build, size_key, options = MIXERS[name]
    chosen = {option: getattr(CONFIG, option) for option in options}
    build(C, SIZES[size_key], True, **chosen)
    for option, value in NONSENSE.items():
        if option in options:
            with pytest.raises(ValueError, match=str(value)):
                build(C, SIZES[size_key], True, **chosen | {option: value})
    if size_key:
        with pytest.raises(ValueError, match="-1"):
            build(C, -1, True, **chosen)


def test_weights_of_the_paper():
    """Wu et al. 2019, section 3: 7,340,032 weights dense, 7,168 depthwise, 112 shared by heads."""
    assert DenseConv(1024, 7).conv.weight.numel() == 7_340_032
    assert DepthwiseConv(1024, 7).weight.numel() == 7_168
    assert LightConv(1024, 16, 7).weight.numel() == 112
