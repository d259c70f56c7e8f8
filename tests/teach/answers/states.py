"""Right and wrong answers to the exercises on states that carry the past."""

import torch


def by_powers(x, keep, write):
    """The solution."""
    T = x.shape[1]
    powers = keep[:, :, None] ** torch.arange(T - 1, -1, -1)
    return write * torch.einsum("btc,cnt->bcn", x, powers)


def word_by_word(x, keep, write):
    z = torch.zeros(len(x), *keep.shape, dtype=x.dtype)
    for t in range(x.shape[1]):
        z = z * keep + x[:, t, :, None] * write
    return z


def by_factors(Z, q, k, v, keep):
    """The solution."""
    later = torch.ones_like(q @ k.mT).tril(-1) > 0
    D = torch.where(later, keep[:, :, None], 1.0).cumprod(dim=1).tril()
    old = keep.cumprod(dim=1)[..., None]
    y = (q @ k.mT * D) @ v + old * (q @ Z)
    return y, old[:, -1:] * Z + (k * D[:, -1, :, None]).mT @ v


def by_clamped_clock(Z, q, k, v, keep):
    return by_clock(Z, q, k, v, keep.clamp(min=1e-30))


def by_clock(Z, q, k, v, keep):
    """NaN after a factor of 0."""
    clock = keep.log().cumsum(dim=1)
    passed = (clock[:, :, None] - clock[:, None, :]).clamp(max=0)
    y = (q @ k.mT * passed.exp().tril()) @ v + (q * clock.exp()[..., None]) @ Z
    fading = (clock[:, -1:] - clock).exp()[..., None]
    return y, clock[:, -1].exp()[:, None, None] * Z + (k * fading).mT @ v


def chunk_of_words(Z, q, k, v, keep):
    """Word by word; returns a list."""
    rows = []
    for t in range(q.shape[1]):
        Z = keep[:, t, None, None] * Z + k[:, t].unsqueeze(2) @ v[:, t].unsqueeze(1)
        rows.append(torch.einsum("br,brc->bc", q[:, t], Z))
    return [torch.stack(rows, 1), Z]


def first_of(Z, q, k, v, keep):
    y, Z = by_clock(Z, q, k, v, keep)
    return y


def layer_by_layer(stack, t, C):
    """The solution."""
    per_channel = 0
    for mixer, size in stack:
        if mixer == "attention":
            per_channel += 2 * (t if size is None else min(t, size - 1))
        elif mixer == "selective":
            per_channel += size + 3
        else:
            per_channel += size - 1
    return per_channel * C


RIGHT = {
    "state_after": [by_powers, word_by_word],
    "gated_chunk": [by_factors, by_clamped_clock, chunk_of_words],
    "numbers_kept": [layer_by_layer, lambda *stack: torch.tensor(layer_by_layer(*stack))],
}
WRONG = {
    "state_after": [
        (lambda x, keep, write: by_powers(x, keep, write).transpose(1, 2), "of shape"),
        (lambda x, keep, write: by_powers(x, keep, write).detach(), "gradient"),
        (lambda x, keep, write: by_powers(x[:, 1:], keep, write), "values differ"),
    ],
    "gated_chunk": [
        (first_of, "not \\(y, Z\\)"),
        (by_clock, "1, 1, 0, 1.*mine nan.*a factor of 0"),
        (lambda Z, q, k, v, keep: by_clock(Z, q, k, v, keep)[::-1], "y is a tensor of shape"),
        (lambda Z, q, k, v, keep: by_clock(Z.mT, q, k, v, keep), "y differs"),
    ],
    "numbers_kept": [
        (lambda stack, t, C: 2 * len(stack) * t * C, "window of 9 .* mine 480, right 128"),
        (lambda stack, t, C: layer_by_layer(stack[:2], t, C), "a hybrid"),
    ],
}
