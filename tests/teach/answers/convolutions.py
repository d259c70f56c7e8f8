"""Right and wrong answers to the exercises on convolutions over time and on LightConv."""

import torch
import torch.nn.functional as F

from dynconv import ops


def one_late(op):
    return lambda x, weight, pad_left: op(x, weight, pad_left=pad_left - (x.shape[1] > 1))


def dilated(x, weight, pad_left, dilation):
    wide = torch.zeros(weight.shape[0], (weight.shape[1] - 1) * dilation + 1).to(weight)
    wide[:, ::dilation] = weight
    return ops.depthwise_conv(x, wide, pad_left=pad_left)


def dilated_in_loops(x, weight, pad_left, dilation):
    """At T = 1 and dilation 3 the output is zeros that know nothing of the input."""
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        for j in range(weight.shape[1]):
            s = t + j * dilation - pad_left
            if 0 <= s < x.shape[1]:
                out[:, t] = out[:, t] + weight[:, j] * x[:, s]
    return out


def by_channel(x, g, pad_left, K):
    padded = F.pad(x, (0, 0, pad_left, K - 1 - pad_left))
    return torch.einsum("btc,btck->ck", g, padded.unfold(1, K, 1))  # (C, K)


def weight_gradient(x, g, pad_left, H, K):
    return by_channel(x, g, pad_left, K).unflatten(0, (H, -1)).sum(1)


def interleaved_gradient(x, g, pad_left, H, K):
    return by_channel(x, g, pad_left, K).unflatten(0, (-1, H)).sum(0)


def scaled(z, share):
    return z.detach() * (1 - share) + z * share


def hooked(z, share):
    z.register_hook(lambda g: share * g)
    return z


def through_softmax(backward, dim=1):
    """The gradient of the logits by a function of the weights and of their gradient."""

    def answer(x, logits, g, pad_left):
        return backward(logits.softmax(dim), weight_gradient(x, g, pad_left, *logits.shape))

    return answer


def softmax_backward(w, G):
    return w * (G - (w * G).sum(dim=1, keepdim=True))


def conv(x, weight, pad_left):
    return ops.light_conv(x, weight, pad_left=pad_left)


def fair(x, logits, pad_left, normalize=lambda logits: logits.softmax(dim=1)):
    weight = normalize(logits)
    return conv(x, weight, pad_left) / conv(torch.ones_like(x), weight, pad_left)


def plain_at_the_end(x, logits, pad_left):
    begins = torch.arange(x.shape[1])[:, None] < pad_left
    return torch.where(begins, fair(x, logits, pad_left), conv(x, logits.softmax(1), pad_left))


def folded(W_in, kernel, W_out):
    spread = kernel.repeat_interleave(len(W_in) // len(kernel), dim=0)
    return torch.einsum("oc,cj,ci->oij", W_out, spread, W_in)


def interleaved_fold(W_in, kernel, W_out):
    spread = kernel.repeat(len(W_in) // len(kernel), 1)
    return torch.einsum("oc,cj,ci->oij", W_out, spread, W_in)


def drawn(own, p, B, T, H, K):
    sizes = {"B": B, "T": T, "H": H, "K": K}
    shape = [size if letter in own else 1 for letter, size in sizes.items()]
    return ((torch.rand(shape) >= p) / (1 - p)).expand(B, T, H, K)


def after(draws):
    """A right answer may call the generator in other ways, and then draws other masks."""

    def answer(*args, **sizes):
        torch.rand(draws)
        return drawn(*args, **sizes)

    return answer


def swapped(own, p, **sizes):
    """Own draws where they should be shared, and shared where they should be own."""
    return drawn([letter for letter in "BTHK" if letter not in own], p, **sizes)


def seeded(own, p, **sizes):
    torch.manual_seed(0)
    return drawn(own, p, **sizes)


RIGHT = {
    "depthwise": [ops.depthwise_conv],
    "light": [ops.light_conv],
    "dynamic": [ops.dynamic_conv],
    "dilated": [dilated, dilated_in_loops],
    "light_gradient": [weight_gradient],
    "scaled_gradient": [scaled],
    "softmax_gradient": [through_softmax(softmax_backward)],
    "renormalised": [fair],
    "folded": [folded],
    "dropconnect_mask": [drawn, *map(after, range(20))],
}
FIRST = r"T = 1, pad_left = 2.*: values differ first at"
FOLD = "C = 6, H = 3, K = 5: values differ first"
WRONG = {
    "depthwise": [(one_late(ops.depthwise_conv), "^T = 5, pad_left = 2: values differ first at")],
    "light": [(one_late(ops.light_conv), "^T = 5, pad_left = 2: values differ first at")],
    "dynamic": [(one_late(ops.dynamic_conv), "^T = 5, pad_left = 2: values differ first at")],
    "dilated": [
        (lambda x, w, pad_left, dilation: dilated(x, w, pad_left, 1), "dilation = 3: values")
    ],
    "light_gradient": [
        (lambda *z, **n: weight_gradient(*z, **n) / 2, rf"{FIRST} \[0, 2\]"),
        (interleaved_gradient, rf"{FIRST} \[0, 2\]"),
    ],
    "scaled_gradient": [
        (lambda z, share: z, r"share = 0.5: gradients of z .* first at \[0, 0, 0\]"),
        (lambda z, share: z.detach(), "share = 0.5: gradients"),
        (lambda z, share: share * z, "share = 0.5: values differ"),
        (lambda z, share: scaled(z, 0.5), "share = 0.2: gradients"),
        (lambda z, share: scaled(z, 1 - share), "share = 0.2: gradients"),
        (hooked, "share = 0.5, and z also used without you: gradients"),
    ],
    "softmax_gradient": [
        (through_softmax(lambda w, G: G), FIRST),
        (through_softmax(lambda w, G: w * (1 - w) * G), FIRST),
        (through_softmax(lambda w, G: w * (G - G.mean(dim=1, keepdim=True))), FIRST),
        (through_softmax(lambda w, G: w * (G - (w * G).sum(dim=0))), FIRST),
        (through_softmax(lambda w, G: G - (w * G).sum(dim=1, keepdim=True)), FIRST),
        (through_softmax(softmax_backward, dim=0), FIRST),
    ],
    "renormalised": [
        (lambda x, logits, pad_left: conv(x, logits.softmax(1), pad_left), FIRST),
        (lambda *z, pad_left: fair(*z, pad_left, lambda logits: logits), "T = 5, pad_left = 2"),
        (plain_at_the_end, "T = 5, pad_left = 2: values differ first at"),
    ],
    "folded": [
        (lambda *z: folded(*z).transpose(0, 1), rf"{FOLD} at \[0, 1, 0\]"),
        (interleaved_fold, FOLD),
        (lambda W_in, kernel, W_out: folded(W_in, kernel.softmax(1), W_out), FOLD),
        (lambda W_in, kernel, W_out: folded(W_in, kernel.flip(1), W_out), FOLD),
        (
            lambda W_in, kernel, W_out: folded(W_in, kernel.detach(), W_out),
            "C = 6, H = 3, K = 5: gradients of kernel differ first",
        ),
    ],
    "dropconnect_mask": [
        (lambda own, p, **n: drawn(own, p, **n) * (1 - p), "is 1, and should be 0 or 1.25"),
        (
            lambda own, p, **n: (drawn(own, p, **n) == 0) / (1 - p),
            "dropped are 100.0% of 1 draws, not 0.0%",
        ),
        (lambda own, p, **n: drawn(own, 4 * p, **n) * (1 - 4 * p) / (1 - p), "not 20.0%"),
        (lambda own, p, **n: (mask := drawn(own, p, **n)) / (mask != 0), "is nan, and"),
        (lambda own, p, **n: drawn("BTHK", p, **n), "sentences should share their draws"),
        (lambda own, p, **n: drawn("HK", p, **n), "heads should share their draws"),
        (lambda own, p, **n: drawn(set(own) - {"B"}, p, **n), "sentences share their draws"),
        (lambda own, p, **n: drawn(set(own) - {"T"}, p, **n), "positions share their draws"),
        (swapped, "own = '', p = 0.2: sentences should share"),
        (seeded, "the second call drops the same"),
    ],
}
