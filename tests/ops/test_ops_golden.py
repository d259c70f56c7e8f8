"""Agreement with the released implementations.

Their numbers are (time, batch, channel), TaLK's (time, batch * heads, channel of the head).
"""

import pytest
import torch

from dynconv import ops
from dynconv.layers import DynamicConv, LightConv, TaLKConv
from dynconv.layers.state import select_state


def load(golden, pattern: str, chosen: int, full: int) -> list[tuple[str, dict, dict]]:
    """(name, meta, arrays batch first) of each case; arrays of one or two dimensions stay."""
    found = []
    for name, meta, arrays in golden.cases(pattern, chosen, full):
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        first = {k: z.transpose(0, 1) if z.dim() > 2 else z for k, z in tensors.items()}
        found.append((name, meta, first))
    return found


def close(a, b, where: str) -> None:
    # Some of the arrays are stored in float32, with its rounding errors.
    rtol, atol = (1e-9, 1e-11) if b.dtype == torch.float64 else (1e-5, 1e-6)
    torch.testing.assert_close(a, b, rtol=rtol, atol=atol, msg=lambda m: f"{where}: {m}")


@pytest.mark.parametrize("impl", ["auto", *ops.implementations("light_conv")])
def test_light_conv_equals_the_released_code(golden, impl):
    """All paddings, kernels wider than the sentence, softmax or free weights, bias or none."""
    for name, meta, z in [
        *load(golden, "lightconv_T*", chosen=17, full=84),
        *load(golden, "lightconv_asym_*", chosen=6, full=6),
        *load(golden, "lightconv_float32_*", chosen=1, full=1),
    ]:
        x, weight = z["x"].requires_grad_(), z["weight"].requires_grad_()
        kernel = ops.normalize_kernel(weight, "softmax" if meta["softmax"] else "none")
        close(kernel, z["weight_normalized"], name)
        out = ops.light_conv(x, kernel, pad_left=meta["padding_l"], impl=impl)
        close(out + z.get("bias", 0), z["out"], name)
        dx, dweight = torch.autograd.grad(out, (x, weight), z["grad_out"])
        close(dx, z["grad_x"], name)
        close(dweight, z["grad_weight"], name)


@pytest.mark.parametrize("impl", ["auto", *ops.implementations("dynamic_conv")])
def test_dynamic_conv_equals_the_released_code(golden, impl):
    for name, meta, z in load(golden, "dynamicconv_op_*", chosen=5, full=10):
        x, weight = z["x"].requires_grad_(), z["filters"].requires_grad_()
        out = ops.dynamic_conv(x, weight, pad_left=meta["padding_l"], impl=impl)
        close(out, z["out"], name)
        dx, dweight = torch.autograd.grad(out, (x, weight), z["grad_out"])
        close(dx, z["grad_x"], name)
        close(dweight, z["grad_filters"], name)


@pytest.mark.parametrize("impl", ["auto", *ops.implementations("dynamic_conv")])
def test_dynamic_conv_that_predicts_its_kernels(golden, impl):
    """From the convolved input, or from a second sequence of a different width."""
    for name, meta, z in [
        *load(golden, "dynamicconv_T*", chosen=11, full=68),
        *load(golden, "dynamicconv_query_*", chosen=1, full=2),
    ]:
        leaves = {"x": z["x"].requires_grad_(), "wl_weight": z["wl_weight"].requires_grad_()}
        query = leaves["x"]
        if "query" in z:
            query = leaves["query"] = z["query"].requires_grad_()
        logits = predicted_kernel(z | leaves, meta, query)
        kernel = ops.normalize_kernel(logits, "softmax" if meta["softmax"] else "none")
        if "kernels" in z:
            close(kernel, z["kernels"], name)
        out = ops.dynamic_conv(leaves["x"], kernel, pad_left=meta["padding_l"], impl=impl)
        close(out + z.get("conv_bias", 0), z["out"], name)
        grads = torch.autograd.grad(out, list(leaves.values()), z["grad_out"])
        for leaf, grad in zip(leaves, grads, strict=True):
            close(grad, z[f"grad_{leaf}"], f"{name} {leaf}")


def test_heads_of_another_convention_differ(golden):
    """A channel's head is c // R; one of the released classes takes c % H instead."""
    for name, meta, z in load(golden, "lightconv_bct_*", chosen=1, full=2):
        x = z["x"].transpose(0, 1).transpose(1, 2)  # stored as (B, C, T)
        expected = z["out"].transpose(0, 1).transpose(1, 2) - z["bias"]
        kernel = ops.normalize_kernel(z["weight"])
        out = ops.light_conv(x, kernel, pad_left=meta["padding_l"])
        assert not torch.allclose(out, expected)
        R = meta["C"] // meta["H"]
        order = torch.arange(meta["C"]).view(R, meta["H"]).T.flatten()  # of channels, by c % H
        out = ops.light_conv(x[..., order], kernel, pad_left=meta["padding_l"])
        close(out, expected[..., order], name)


def predicted_kernel(z: dict, meta: dict, query: torch.Tensor) -> torch.Tensor:
    """Logits (B, T, H, K) of kernels, from z's linear layer."""
    logits = query @ z["wl_weight"].T + z.get("wl_bias", 0)
    return logits.unflatten(2, (meta["H"], meta["K"]))


def in_range(meta: dict, length: int) -> torch.Tensor:
    """(T, 1, K) bool: whether tap j of position t meets a token."""
    t, j = torch.arange(length)[:, None], torch.arange(meta["K"])
    s = t + j - meta["padding_l"]
    return ((s >= 0) & (s < length))[:, None]


def test_a_kernel_cut_before_its_softmax_differs(golden):
    """One released path first shortens a kernel longer than the sentence, unlike the paper."""
    cases = load(golden, "dynamicconv_T*_sm1_*", chosen=8, full=34)
    cut = [case for case in cases if "out_unfold_buggy" in case[2]]
    assert cut and all(meta["K"] > meta["T"] for _, meta, _ in cut)
    for name, meta, z in cut:
        logits = predicted_kernel(z, meta, z["x"])
        unlike = ops.dynamic_conv(z["x"], logits.softmax(-1), pad_left=meta["padding_l"])
        expected = z["out_unfold_buggy"] - z.get("conv_bias", 0)
        assert not torch.allclose(unlike, expected)
        last = logits[..., -meta["T"] :].softmax(-1)
        close(ops.dynamic_conv(z["x"], last, pad_left=meta["T"] - 1), expected, name)


def test_kernels_renormalised_at_the_border_differ(golden):
    """An option of the released code that we lack: a softmax over the taps that meet a token."""
    for name, meta, z in load(golden, "dynamicconv_renorm_*", chosen=2, full=4):
        logits = predicted_kernel(z, meta, z["x"])
        unlike = ops.dynamic_conv(z["x"], logits.softmax(-1), pad_left=meta["padding_l"])
        assert not torch.allclose(unlike, z["out"])
        logits = logits.masked_fill(~in_range(meta, z["x"].shape[1]), -torch.inf)
        out = ops.dynamic_conv(z["x"], logits.softmax(-1), pad_left=meta["padding_l"])
        close(out, z["out"], name)


def test_one_projection_for_input_and_kernels(golden):
    """Another option: the first C outputs are convolved with kernels from the other outputs."""
    for name, meta, z in load(golden, "dynamicconv_inproj_*", chosen=1, full=2):
        both = z["x"] @ z["wl_weight"].T + z["wl_bias"]
        x, logits = both.split([meta["C"], meta["H"] * meta["K"]], dim=2)
        kernel = logits.unflatten(2, (meta["H"], meta["K"])).softmax(-1)
        close(ops.dynamic_conv(x, kernel, pad_left=meta["padding_l"]), z["out"], name)


def identity(layer, bias: torch.Tensor) -> None:
    """Turn a layer's two projections into the identity, except for the bias of the second."""
    with torch.no_grad():
        for linear in (layer.in_proj.linear, layer.out_proj):
            torch.nn.init.eye_(linear.weight)
            linear.bias.zero_()
        layer.out_proj.bias.copy_(bias)


def compare_steps(name: str, layer, meta: dict, z: dict) -> None:
    """Whole sentences, token by token, and token by token with the batch reordered midway."""
    layer = layer.double().eval()
    with torch.no_grad():
        close(layer(z["x"]), z["full_out"], name)
        for order, expected in [(None, "step_outs"), (z["new_order"], "step_outs_reordered")]:
            state = None
            for t in range(meta["T"]):
                if order is not None and t == meta["reorder_at"]:
                    state = select_state(state, order)
                y, state = layer.step(z["x"][:, t : t + 1], state)
                close(y, z[expected][:, t : t + 1], f"{name} step {t}")


def test_light_conv_step_by_step(golden, monkeypatch):
    for name, meta, z in load(golden, "lightconv_incremental_*", chosen=3, full=8):
        layer = LightConv(meta["C"], meta["H"], meta["K"], causal=True).double()
        identity(layer, z["bias"])
        layer.weight.data = z["weight"]
        if not meta["softmax"]:
            monkeypatch.setattr(layer, "kernel", layer.weight.to)
        compare_steps(name, layer, meta, z)


def test_dynamic_conv_step_by_step(golden):
    """The released code can also renormalise kernels at a sentence's start; ours never does."""
    for name, meta, z in load(golden, "dynamicconv_incremental_*renorm0", chosen=2, full=3):
        layer = DynamicConv(meta["C"], meta["H"], meta["K"], causal=True).double()
        identity(layer, z["conv_bias"])
        layer.kernel_proj = torch.nn.Linear(meta["C"], meta["H"] * meta["K"])
        layer.kernel_proj.weight.data = z["wl_weight"]
        layer.kernel_proj.bias.data = z["wl_bias"]
        compare_steps(name, layer, meta, z)


def talk_layout(z: torch.Tensor, meta: dict) -> torch.Tensor:
    """(B * H, T, ...) as loaded to (B, T, H, ...)."""
    return z.unflatten(0, (meta["B"], meta["H"])).transpose(1, 2)


@pytest.mark.parametrize("impl", ["auto", *ops.implementations("talk_conv")])
@pytest.mark.parametrize("side", ["enc", "dec"])
def test_talk_equals_the_released_code(golden, side, impl):
    """Random offsets, all 0, all 1, whole distances, and above 1."""
    for name, meta, z in load(golden, f"talk_{side}_op_*", chosen=10, full=45):
        x, g, expected, grad_x = (
            talk_layout(z[k], meta).flatten(2) for k in ("x", "grad_out", "out", "grad_x")
        )  # (B, T, C)
        sides = [k for k in ("offset_left", "offset_right") if k in z]
        offsets = [talk_layout(z[k].T, meta).requires_grad_() for k in sides]  # (B, T, H)
        x.requires_grad_()
        left, right = offsets[0], offsets[1] if len(offsets) > 1 else None
        reach = {"max_left": meta["l_max"], "max_right": meta["r_max"]}
        out = ops.talk_conv(x, left, right, **reach, impl=impl)
        close(out, expected, name)
        dx, *grads = torch.autograd.grad(out, [x, *offsets], g)
        close(dx, grad_x, name)
        # At a whole or clamped distance, the loop's gradient is that of one side, or a mean.
        if meta["kind"] == "random" or impl in ("cpu", "blocked"):
            for key, grad in zip(sides, grads, strict=True):
                close(grad, talk_layout(z[f"grad_{key}"].T, meta), f"{name} {key}")


@pytest.mark.parametrize("side", ["enc", "dec"])
def test_the_talk_layer_equals_the_released_code(golden, side):
    for name, meta, z in load(golden, f"talk_module_{side}_*", chosen=2, full=4):
        layer = TaLKConv(meta["C"], meta["H"], meta["l_max"], meta["r_max"]).double()
        identity(layer, torch.zeros(meta["C"], dtype=torch.float64))
        layer.offset_proj.weight.data = z["offsets_weight"]
        layer.offset_proj.bias.data = z["offsets_bias"]
        x = z["x"].requires_grad_()
        out = layer(x)
        close(out, z["out"], name)
        parameters = [x, layer.offset_proj.weight, layer.offset_proj.bias]
        grads = torch.autograd.grad(out, parameters, z["grad_out"])
        for grad, key in zip(grads, ("x", "offsets_weight", "offsets_bias"), strict=True):
            close(grad, z[f"grad_{key}"], f"{name} {key}")
        if side == "dec":
            parts, state = [], None
            for token in x.detach().split(1, dim=1):
                y, state = layer.step(token, state)
                parts.append(y)
            close(torch.cat(parts, 1), z["out"], name)
