"""Aligns the columns of printed tables."""

from collections.abc import Collection, Iterable, Sequence


def align(rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return one line per row, with columns of equal width, two spaces apart.

    right  the numbers of the columns to align to the right; the last column is not padded
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines = []
    for *cells, last in rows:
        padded = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        lines.append("  ".join([*padded, last]))
    return lines
