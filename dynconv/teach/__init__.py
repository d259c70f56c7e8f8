"""What lessons call, and the tools that make the lessons, the book and README's figures."""

from dynconv.lab import style
from dynconv.teach import check
from dynconv.teach.judge import same
from dynconv.teach.mixing import draw_mixing, mixing_matrix
from dynconv.teach.processes import Processes
from dynconv.teach.show import show

__all__ = ["Processes", "check", "draw_mixing", "mixing_matrix", "same", "show", "style"]
