"""The numbers of `bench ops` as text, 100 columns wide."""

from dynconv.lab.bench.measure import SLOW
from dynconv.lab.ledger import source

NAME, MS, RATIO, MEMORY, ROUNDS = 29, 9, 7, 6, 7  # widths of columns
TIMES = MS + 2 * RATIO


def header(report: dict, rounds: int) -> str:
    """Where and how the numbers came about, and what the columns mean."""
    numbers = report["numbers"]
    K, threads = numbers["kernel_size"], numbers["threads"]
    return "\n".join(
        [
            source(report),
            f"{threads} thread{'s' if threads > 1 else ''}, load {report['load']['before']}",
            f"{numbers['dtype']}, K = {K} centred on each position, attention without a mask",
            f"ms: medians of {rounds} rounds by turns, of 1 for a call of more than {SLOW:g} s",
            "x copy, faster: medians over common rounds of time / copy's, of attention's / time;",
            "        with fewer than 3 common rounds, of the medians",
            "memory: multiples of x beyond the inputs; PyTorch's peak forward and with backward,",
            "        and what is saved between the two",
        ]
    )


def block(shape: dict) -> str:
    """One shape: a line for each case, and a note for each one left out."""
    B, T, C, H = (f"{shape[size]:,}" for size in "BTCH")
    titles = f"{'ms':>{MS}}{'x copy':>{RATIO}}{'faster':>{RATIO}}"
    memory = "".join(f"{title:>{MEMORY}}" for title in ("fwd", "both", "saved"))
    lines = [
        "",
        f"B = {B}, T = {T}, C = {C}, H = {H}; x has {digits(shape['x_bytes'] / 1e6).strip()} MB",
        f"{'':{NAME}}{'forward':>{TIMES}}{'forward + backward':>{TIMES}}{'memory':>{3 * MEMORY}}",
        f"{'':{NAME}}{titles}{titles}{memory}{'rounds':>{ROUNDS}}",
    ]
    notes = []
    for row in shape["results"]:
        name = f"{row['operator']} {row['impl'] or ''}"
        parts = row.get("forward", {}), row.get("forward_backward", {})
        rounds = "/".join(str(part["rounds"]) for part in parts if part)
        lines.append(
            f"{name:{NAME}}"
            + "".join(
                digits(part.get("ms"), MS)
                + digits(part.get("times_copy"), RATIO)
                + digits(part.get("attention_by_this"), RATIO)
                for part in parts
            )
            + "".join(digits(part.get("peak"), MEMORY) for part in parts)
            + digits(parts[1].get("saved"), MEMORY)
            + f"{rounds or '-':>{ROUNDS}}"
        )
        if "left_out" in row:
            notes.append(f"- {name}: {row['left_out']}")
    return "\n".join(lines + notes)


def digits(number: float | None, width: int = 0) -> str:
    """Three digits or all before the point; a dash for None."""
    if number is None:
        return f"{'-':>{width}}"
    places = 3 if 0 < number < 0.1 else 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:>{width},.{places}f}"
