"""Prints the floors of a kernel's versions: the minimum time that each limit imposes."""

from collections.abc import Mapping

EIGHTHS = ["", *"▏▎▍▌▋▊▉"]
"""characters that end a bar, by the eighths of a block"""


def print_floors(
    found: Mapping[str, Mapping[str, float]], copy: float, worst: str | None = None
) -> None:
    """Print a row of floors per version; `*` marks the highest, and a bar shows it in copies.

    found  microseconds, by version and limit
    copy   microseconds of one copy
    worst  the limit that is the worst case and no floor: in brackets, and never marked
    """
    first = "µs at least"
    width = max(len(version) for version in [*found, first])
    limits = dict.fromkeys(limit for floors in found.values() for limit in floors)
    columns = {limit: max(6, len(limit) + 2) for limit in limits}
    names = "".join(f"{limit:>{room}} " for limit, room in columns.items())
    print(f"{first:{width}}{names}  copies")
    for version, floors in found.items():
        highest = max(us for limit, us in floors.items() if limit != worst)
        cells = ""
        for limit, room in columns.items():
            number = f"{floors[limit]:.0f}" if limit in floors else ""
            if number and limit == worst:
                cells += f"{f'({number})':>{room + 1}}"
            else:
                mark = "*" if floors.get(limit) == highest else " "
                cells += f"{number:>{room}}{mark}"
        print(f"{version:{width}}{cells}{highest / copy:8.1f} {draw_bar(highest / copy)}")


def draw_bar(length: float) -> str:
    """Return a bar of `length` blocks, rounded to an eighth of a block."""
    whole, eighths = divmod(round(8 * length), 8)
    return "█" * whole + EIGHTHS[eighths]
