"""The rows as text, 100 columns wide."""

from collections.abc import Sequence
from textwrap import wrap

from dynconv.lab.bench.cuda.plan import size
from dynconv.lab.bench.table import digits
from dynconv.lab.ledger import source


def header(report: dict, copied: float | None) -> str:
    """Where the numbers come from, and what the columns mean."""
    about = (
        "us: medians of graphs played by turns, each after L2 was emptied; GB/s: by the bytes of "
        "the floor; copy: share of the copy's GB/s; floor: times the floor; attn, eager: times "
        "faster than attention, and than the best of PyTorch's eager ways; memory: multiples of x "
        "beyond the inputs, backward with what was saved; error: of the norm, against float64. "
        "launch: a graph of one number. PyTorch's ways with DropConnect draw in the graph: two "
        "kernels more."
    )
    where = f"{source(report)}, load {report['load']['before']}; a copy moves "
    where += f"{digits(copied).strip()} GB/s"
    return "\n".join([*wrap(where, 100), "", *wrap(about, 100)])


def table(rows: Sequence[dict]) -> str:
    """The rows of one operator, and below the lines their notes."""
    first = rows[0]
    title = f"{first['operator']} {first['K']}" if first["K"] else "copy and attention"
    names = "us", "GB/s", "copy", "floor", "attn", "eager", "memory", "error", "rounds"
    widths = 11, 8, 7, 10, 8, 7, 7, 9, 7
    titles = "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    lines, notes = ["", f"{title}, {size(first)}", f"{'':24}" + titles], []
    keys = "gb_per_s", "copy_share", "times_floor", "attention_by_this", "eager_by_this", "peak"
    for row in rows:
        name = row["impl"] or row["operator"]
        error = row["error"]
        cells = [digits(row["ms"] and row["ms"] * 1e3, widths[0])]
        cells += [digits(row[key], width) for key, width in zip(keys, widths[1:], strict=False)]
        cells.append(f"{error:9.1e}" if isinstance(error, float) else f"{error or '-':>9}")
        lines.append(f"{name:15}{row['direction']:9}" + "".join(cells) + f"{row['rounds']:7}")
        if row["note"]:
            notes += wrap(f"- {name} {row['direction']}: {row['note']}", 100)
    return "\n".join(lines + notes)


def layer_table(rows: Sequence[dict]) -> str:
    """One layer: what is no matrix product, and the kernels that take the most time."""
    lines = []
    for row in rows:
        share = "-" if row["other_share"] is None else f"{row['other_share']:.1%}"
        lines += [
            "",
            f"layer DynamicConv {row['K']} in bfloat16, parameters {size(row)}",
            f"{row['direction'].replace('_', ' + ')}: {digits(row['us'])} us in kernels, "
            f"{share} of it outside matrix products",
            *(f"{digits(one['us'], 9)}  {one['kernel'][:88]}" for one in row["most"]),
        ]
    return "\n".join(lines)
