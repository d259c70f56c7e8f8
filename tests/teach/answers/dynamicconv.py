"""Right and wrong answers to the exercises on steps, on normalisers and on averages."""

import torch
import torch.nn.functional as F


def window_step(x, state, W, H):
    weight = (x @ W.T).unflatten(2, (H, -1)).softmax(dim=-1)
    window = torch.cat([state, x], dim=1)
    windows = window.unfold(1, weight.shape[-1], 1).unflatten(2, (H, -1))
    y = torch.einsum("bthk,bthrk->bthr", weight, windows).flatten(2)
    return y, window[:, x.shape[1] :]


def projected(a):
    """By sorting: tau is the largest that the taps above it, less tau, sum to 1."""
    high = a.sort(dim=-1, descending=True).values
    count = torch.arange(1, a.shape[-1] + 1)
    taus = (high.cumsum(dim=-1) - 1) / count
    size = (high > taus).sum(dim=-1, keepdim=True)
    return (a - taus.gather(-1, size - 1)).clamp(min=0)


def over_the_last_but_one(a):
    return projected(a.transpose(-1, -2)).transpose(-1, -2) if a.ndim > 1 else projected(a)


def doubling(x, decay):
    out, reach = (1 - decay) * x, 1
    while reach < x.shape[1]:
        out = out + decay**reach * F.pad(out, (0, 0, reach, -reach))
        reach *= 2
    return out


def by_matrix(x, decay):
    at = torch.arange(x.shape[1], dtype=x.dtype)
    age = (at[:, None] - at).clamp(min=0)
    return ((1 - decay) * (decay**age).tril()) @ x


def in_a_loop(x, decay):
    rows, mean = [], 0 * x[:, 0]
    for t in range(x.shape[1]):
        mean = decay * mean + (1 - decay) * x[:, t]
        rows.append(mean)
    return torch.stack(rows, dim=1)


def by_running_sum(x, decay):
    """Right on paper."""
    power = decay ** torch.arange(x.shape[1], dtype=x.dtype)[:, None]
    return (1 - decay) * power * (x / power).cumsum(dim=1)


RIGHT = {
    "dynamic_step": [window_step, lambda *inputs: list(window_step(*inputs))],
    "sparsemax": [projected],
    "exponential_average": [doubling, by_matrix],
}
WRONG = {
    "dynamic_step": [
        (lambda x, state, W, H: window_step(x, state, W, H)[0], r"chunk x\[:, 0:1\]: .*y, state"),
        (lambda x, state, W, H: (x, state), r"y differs, first at \[0, 0, 0\]: mine -?\d"),
        (
            lambda x, state, W, H: (window_step(x, state, W, H)[0], x),
            r"state is a tensor of shape \(2, 1, 6\), not \(2, 4, 6\)",
        ),
        (
            lambda x, state, W, H: (window_step(x, state, W, H)[0], state),
            r"chunk x\[:, 0:1\]: state differs, first at \[0, 3, 0\]: mine 0",
        ),
    ],
    "sparsemax": [
        (lambda a: a.softmax(dim=-1), r"a \(4,\), .* a tap with weight is not its score"),
        (lambda a: a - (a.sum(-1, keepdim=True) - 1) / a.shape[-1], "a weight is negative"),
        (lambda a: a.relu(), "the weights of a kernel do not sum to 1: mine "),
        (lambda a: a / 0 - a / 0, r"a weight is not a number, first at \[0\]: mine nan"),
        (lambda a: a.relu() / a.relu().sum(-1, keepdim=True), "a tap with weight is not its score"),
        (lambda a: (a == a.amax(-1, keepdim=True)) + 0 * a, "a tap without weight .* above tau"),
        (over_the_last_but_one, r"a \(3, 7\), .* do not sum to 1, first at \[0\]"),
        (lambda a: projected(a.detach()), "no gradient flows back"),
        (lambda a: a + (projected(a) - a).detach(), "the gradient is not g less its mean"),
    ],
    "exponential_average": [
        (
            lambda x, decay: by_matrix(torch.eye(x.shape[1]), decay).to(x.dtype) @ x,
            r"T = 1, .*; in float32 they agree",
        ),
        (in_a_loop, "T = 2000: .* a loop over positions"),
        (by_running_sum, r"T = 2000, decay = 0.5: .* mine (-?inf|nan)"),
        (lambda x, decay: doubling(x, decay) / (1 - decay), r"T = 1, .* first at \[0, 0, 0\]"),
        (lambda x, decay: doubling(x, 1 - decay), "T = 1, decay = 0.9: values differ"),
        (lambda x, decay: doubling(x.flip(1), decay).flip(1), r"T = 5, .* first at \[0, 0, 0\]"),
    ],
}
