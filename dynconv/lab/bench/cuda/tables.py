"""Turns the rows of `dynconv bench kernels` into text, at most 100 columns wide."""

from collections.abc import Sequence
from operator import itemgetter
from textwrap import wrap

from dynconv.lab.bench.cuda.plan import size
from dynconv.lab.bench.table import Column, digits, table
from dynconv.lab.ledger import source


def header(report: dict, copied: float | None) -> str:
    """Return where the numbers come from, and what the columns mean."""
    about = (
        "us: medians of graphs played by turns, each after L2 was emptied; GB/s: by the bytes of "
        "the floor; copy: share of the copy's GB/s; floor: times the floor; attn, eager: times "
        "faster than attention, and than the best of PyTorch's eager ways; memory: multiples of x "
        "beyond the inputs, backward with what was saved; error: of the norm, against float64. "
        "launch: a graph of one number. PyTorch's ways with DropConnect draw in the graph: two "
        "kernels more."
    )
    where = f"{source(report)}, load {report['load']['before']}; a copy moves "
    where += f"{digits(copied)} GB/s"
    return "\n".join([*wrap(where, 100), "", *wrap(about, 100)])


def operator_table(rows: Sequence[dict]) -> str:
    """Return the rows of one operator as a table, with their notes below."""
    first = rows[0]
    title = f"{first['operator']} {first['K']}" if first["K"] else "copy and attention"

    def error(row: dict) -> str | None:
        value = row["error"]
        return f"{value:.1e}" if isinstance(value, float) else value

    columns = [
        Column("us", 11, lambda row: row["ms"] and row["ms"] * 1e3),
        Column("GB/s", 8, itemgetter("gb_per_s")),
        Column("copy", 7, itemgetter("copy_share")),
        Column("floor", 10, itemgetter("times_floor")),
        Column("attn", 8, itemgetter("attention_by_this")),
        Column("eager", 7, itemgetter("eager_by_this")),
        Column("memory", 7, itemgetter("peak")),
        Column("error", 9, error),
        Column("rounds", 7, itemgetter("rounds")),
    ]
    return table(
        f"{title}, {size(first)}",
        lambda row: f"{row['impl'] or row['operator']:15}{row['direction']}",
        24,
        columns,
        rows,
    )


def layer_table(rows: Sequence[dict]) -> str:
    """Return the share of a layer outside matrix products, and its slowest kernels."""
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
