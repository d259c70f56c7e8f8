"""Checks the exercises on convolutions over time and on LightConv."""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv import ops
from dynconv.ops.lightconv import kernel_of_channel
from dynconv.teach.judge import Wrong, attempt, judge, label_sizes, labelled, require_type_of

MASK = {"B": 4, "T": 25, "H": 6, "K": 9}
AXES = {"B": "sentences", "T": "positions", "H": "heads", "K": "taps"}


def on_sequences(mine: Callable, right: Callable, *shapes: tuple, **fixed: int) -> None:
    """Compare on a short, a middling and a long sequence of 6 channels, for two paddings.

    shapes  the shapes of the inputs after x (B, T, C), in which "T" stands for its length
    fixed   options after pad_left
    """
    cases = {}
    for T in (1, 5, 12):
        for pad_left in (2, 4):
            seed = torch.Generator().manual_seed(T)
            resolved = [[T if n == "T" else n for n in shape] for shape in ((2, "T", 6), *shapes)]
            inputs = [torch.randn(shape, generator=seed) for shape in resolved]
            label = label_sizes(T=T, pad_left=pad_left, **fixed)
            cases[label] = (*inputs, pad_left, *fixed.values())
    judge(mine, right, cases, gradients=True)
    print(f"right: values and {1 + len(shapes)} gradients agree on {len(cases)} cases")


def depthwise(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left) is a depthwise convolution: x (B, T, C), weight (C, K)."""
    on_sequences(mine, partial(ops.depthwise_conv, impl="loop"), (6, 5))


def light(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left) is LightConv: x (B, T, C), weight (H, K), normalised already."""
    on_sequences(mine, partial(ops.light_conv, impl="loop"), (3, 5))


def dynamic(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left) is DynamicConv: x (B, T, C), weight (B, T, H, K), normalised."""
    on_sequences(mine, partial(ops.dynamic_conv, impl="loop"), (2, "T", 3, 5))


def dilated(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left, dilation) is depthwise with taps `dilation` positions apart."""

    def right(x: Tensor, weight: Tensor, *, pad_left: int, dilation: int) -> Tensor:
        C, K = weight.shape
        after = (K - 1) * dilation - pad_left
        padded = F.pad(x, (0, 0, pad_left, after)).transpose(1, 2)
        return F.conv1d(padded, weight.unsqueeze(1), groups=C, dilation=dilation).transpose(1, 2)

    on_sequences(mine, right, (6, 5), dilation=3)


def light_gradient(mine: Callable[..., Tensor]) -> None:
    """mine(x, g, pad_left, H, K) is the gradient (H, K) of LightConv's weight; x, g (B, T, C)."""

    def right(x: Tensor, g: Tensor, *, pad_left: int, H: int, K: int) -> Tensor:
        weight = x.new_zeros(H, K, requires_grad=True)
        out = ops.light_conv(x, weight, pad_left=pad_left, impl="loop")
        return torch.autograd.grad(out, weight, g, create_graph=True)[0]

    on_sequences(mine, right, (2, "T", 6), H=3, K=5)


def scaled_gradient(mine: Callable[[Tensor, float], Tensor]) -> None:
    """mine(z, share) is z with its gradient times `share`; other uses of z do not change."""

    def use(f: Callable[[Tensor, float], Tensor], z: Tensor, share: float, also_z: bool) -> Tensor:
        out = f(z, share)
        return torch.cat([out, z]) if also_z and isinstance(out, Tensor) else out

    def right(z: Tensor, share: float, also_z: bool) -> Tensor:
        return use(lambda z, share: torch.lerp(z.detach(), z, share), z, share, also_z)

    z = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    cases = {
        f"share = {share}{', and z also used without you' * also_z}": (z, share, also_z)
        for share in (1 / 2, 1 / 5)
        for also_z in (False, True)
    }
    judge(partial(use, mine), right, cases, gradients=True)
    print("right: z stays as it is, its gradient is 1/2 and 1/5")


def softmax_gradient(mine: Callable[..., Tensor]) -> None:
    """mine(x, logits, g, pad_left) is the gradient (H, K) of the logits; x and g (B, T, C)."""

    def right(x: Tensor, logits: Tensor, g: Tensor, *, pad_left: int) -> Tensor:
        out = ops.light_conv(x, ops.normalize_kernel(logits), pad_left=pad_left, impl="loop")
        return torch.autograd.grad(out, logits, g, create_graph=True)[0]

    on_sequences(mine, right, (3, 5), (2, "T", 6))


def renormalised(mine: Callable[..., Tensor]) -> None:
    """mine(x, logits, pad_left) is LightConv with a softmax over taps inside the sentence."""

    def right(x: Tensor, logits: Tensor, *, pad_left: int) -> Tensor:
        (T, C), (H, K) = x.shape[1:], logits.shape
        taps = torch.arange(T) - torch.arange(T)[:, None] + pad_left  # (T, T), of row t and s
        outside = (taps < 0) | (taps >= K)
        scores = logits[:, taps.clamp(0, K - 1)].masked_fill(outside, float("-inf"))  # (H, T, T)
        heads = x.unflatten(2, (H, C // H))  # (B, T, H, R)
        return torch.einsum("hts,bshr->bthr", scores.softmax(dim=2), heads).flatten(2)

    on_sequences(mine, right, (3, 5))


def folded(mine: Callable[..., Tensor]) -> None:
    """mine(W_in, kernel, W_out) is the dense weight (C, C, K) of the module without its gate.

    W_in and W_out are (C, C), kernel is (H, K) and already normalised. There are no biases.
    """

    def right(W_in: Tensor, kernel: Tensor, W_out: Tensor) -> Tensor:
        return torch.einsum("oc,cj,ci->oij", W_out, kernel_of_channel(kernel, len(W_in)), W_in)

    cases = {}
    for C, H, K in ((6, 3, 5), (8, 2, 3), (4, 1, 1), (4, 4, 7)):
        seed = torch.Generator().manual_seed(C)
        W_in, W_out = torch.randn(2, C, C, generator=seed)
        kernel = torch.randn(H, K, generator=seed).softmax(dim=1)
        cases[label_sizes(C=C, H=H, K=K)] = W_in, kernel, W_out
    judge(mine, right, cases, gradients=True)
    print(f"right: values and 3 gradients agree on {len(cases)} cases")


def dropconnect_mask(mine: Callable[..., Tensor]) -> None:
    """mine(own, p, B, T, H, K) is a mask (B, T, H, K): 0 with probability p, else 1 / (1 - p).

    `own` lists the axes, letters of "BTHK", along which entries are drawn independently. Entries
    that differ only in other axes share a draw.
    """
    laws = ["".join(c) for n in range(5) for c in combinations(MASK, n)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for own in laws:
            for p in (0.0, 0.2):
                with labelled(f"own = {own!r}, p = {p}"):
                    masks = [attempt(partial(mine, own, p, **MASK)) for _ in range(2)]
                    check_mask(*masks, own, p)
    print(f"right: {len(laws)} laws, with p = 0 and p = 0.2")


def check_mask(mask: Tensor, again: Tensor, own: str, p: float) -> None:
    """Raise `Wrong` unless the values, the sharing and the fraction of zeros are as required."""
    require_type_of(mask, torch.empty(*MASK.values()), any_float=True)
    check_factors(mask, p)
    n = prod(MASK[letter] for letter in own)
    draws = mask
    for axis, letter in enumerate(MASK):
        first = draws.narrow(axis, 0, 1)
        shared = torch.equal(draws, first.expand_as(draws))
        if letter not in own and not shared:
            raise Wrong(f"{AXES[letter]} should share their draws, and do not")
        if letter in own and p and shared and n > 50:  # a few draws may agree by chance
            raise Wrong(f"{AXES[letter]} share their draws, and should not")
        draws = draws if letter in own else first
    check_share(draws == 0, p, "dropped are")
    if p and n > 50 and torch.equal(mask, again):
        raise Wrong("the second call drops the same entries as the first")


def check_factors(factors: Tensor, p: float) -> None:
    """Raise `Wrong` unless each factor of a DropConnect mask is 0 or 1 / (1 - p)."""
    kept = 1 / (1 - p)
    strange = (factors != 0) & ~((factors - kept).abs() < 1e-6 * kept)  # NaN is strange too
    if strange.any():
        at = strange.nonzero()[0].tolist()
        value = factors[tuple(at)]
        raise Wrong(f"factor {at} is {value:.4g}, and should be 0 or {kept:.4g}")


def check_share(marked: Tensor, expected: float, what: str) -> None:
    """Raise `Wrong` if the fraction differs from the expected one by over 5 standard deviations."""
    share, sigma = marked.double().mean(), (expected * (1 - expected) / marked.numel()) ** 0.5
    if abs(share - expected) > 5 * sigma:
        raise Wrong(f"{what} {share:.1%} of {marked.numel():,} draws, not {expected:.1%}")
