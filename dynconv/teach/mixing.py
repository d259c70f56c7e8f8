"""Mixing matrices: a mixer as the T x T matrix by which it multiplies a sequence."""

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dynconv.lab.style import COLORS


@torch.no_grad()
def mixing_matrix(
    mix: Callable[[Tensor], Tensor], T: int, *, channels: int = 1, channel: int = 0
) -> Tensor:
    """Return the matrix (T, T) of one channel: entry [t, s] is the weight of x[s] in out[t].

    `mix` must be linear and map (1, T, channels) to the same shape. Column s is its response to a
    sequence that is 1 at position s of that channel and 0 elsewhere. A mixer that computes its
    kernels from x is not linear, so pass a function that uses the kernels of a fixed x.
    """
    columns = []
    for s in range(T):
        impulse = torch.zeros(1, T, channels)
        impulse[0, s, channel] = 1
        columns.append(mix(impulse)[0, :, channel])
    return torch.stack(columns, dim=1)


def draw_mixing(
    ax,
    M: Tensor,
    *,
    title: str = "",
    color: str = COLORS["attention"],
    vmax: float = 1.0,
    labels: Sequence[str] | None = None,
) -> None:
    """Draw a mixing matrix (T, T): rows are output positions, top to bottom, columns inputs.

    The shade shows |M|, from white at 0 to `color` at `vmax`, so give all panels of a figure the
    same `vmax`. Up to T = 8, entries that are not 0 are printed. `labels` name the positions.
    """
    from matplotlib.colors import LinearSegmentedColormap

    T = len(M)
    shades = LinearSegmentedColormap.from_list("role", ["white", color])
    ax.imshow(M.detach().abs().numpy(), cmap=shades, vmin=0, vmax=vmax)
    if T <= 8:
        for t, s in M.nonzero().tolist():
            red, green, blue, _ = shades(abs(M[t, s].item()) / vmax)
            dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
            number = re.sub(r"^(-?)0\.", r"\1.", f"{M[t, s]:.2f}")  # .25 fits where 0.25 does not
            ink = "white" if dark else "black"
            ax.text(s, t, number, ha="center", va="center", size=7, color=ink)
    if labels is not None:
        ax.set_xticks(range(T), labels, rotation=90)
        ax.set_yticks(range(T), labels)
    elif T <= 8:
        ax.set_xticks(range(T))
        ax.set_yticks(range(T))
    ax.spines[:].set_visible(True)
    ax.set(title=title, xlabel="input position s", ylabel="output position t")
