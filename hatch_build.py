"""Hatch's hook for the package index's copy of the README, whose relative links need an address."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]+\)\n+(\*[^*]+\*\n+)?", re.MULTILINE)
"""A picture in a paragraph of its own, and the paragraph in italics that describes it."""
ANCHOR = re.compile(r"\[([^\]]*)\]\(#([^)]+)\)")
LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)]+)\)")


class Readme(MetadataHookInterface):
    """Fills in the README, with its relative links made absolute."""

    def update(self, metadata: dict) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Repository")
        shown = absolute(installed(text), address)
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}


def installed(text: str) -> str:
    """Return the README without the sections, from the lessons on, that need a clone."""
    kept = text.partition("\n## Lessons\n")[0]
    headings = re.findall(r"^#+ (.+)$", kept, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def keep(link: re.Match) -> str:
        return link[0] if link[2] in anchors else link[1]

    return ANCHOR.sub(keep, kept) + "\n"


def absolute(text: str, address: str | None) -> str:
    """Return Markdown with links into the repository at `address`.

    Without an address, it has neither links nor pictures.
    """
    if address is None:
        text = PICTURE.sub("", text)

    def replace(link: re.Match) -> str:
        picture, label, target = link.groups()
        if address is None:
            return label[1:-1]
        kind = "raw" if picture else "blob"
        return f"{picture}{label}({address}/{kind}/main/{target})"

    return LINK.sub(replace, text)
