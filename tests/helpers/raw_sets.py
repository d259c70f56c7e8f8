"""Tiny raw trees in the layout of the real archives."""

from pathlib import Path


def put(raw: Path, name: str, *lines: str) -> Path:
    """Write lines to raw/NAME, a line break after each."""
    path = raw / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def sgm(raw: Path, name: str, *sentences: str) -> Path:
    """An evaluation set: one <seg> a line, indented as WMT's or not."""
    segments = (f'<seg id="{n}"> {text} </seg>' for n, text in enumerate(sentences, 1))
    return put(
        raw, name, '<srcset setid="x">', '<doc docid="1">', "<p>", *segments, "</p>", "</doc>"
    )


def lines(out: Path, name: str) -> list[str]:
    """The lines of out/NAME; a line ends at a line feed alone."""
    return (out / name).read_bytes().decode().removesuffix("\n").split("\n")
