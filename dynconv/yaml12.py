"""Reads and writes YAML 1.2: mappings, lists and scalars. Ambiguous text is refused."""

import math
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from dynconv.errors import UserError, quoted, shorten
from dynconv.files import unreadable_error
from dynconv.value_checks import is_unicode

# Constants and numbers as in the core schema of YAML 1.2, section 10.3.2, but without its octal and
# hexadecimal integers: 0o17 and 0x1F are text. In YAML 1.1, which PyYAML reads, `no` is false, 010
# is eight, 1:30 is ninety and 5e-4 is text.
CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
INTEGER = re.compile(r"[-+]?[0-9]+")
FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
MAX_DIGITS = 400
"""digits of the longest number; int() refuses some thousands"""
MAX_DEPTH = 20
"""maximum number of mappings and lists inside each other"""
MAX_NODES = 10_000
"""maximum number of values in a text with aliases, each counted with all that it stands for"""


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file; callers must not change it. UserError if it is unreadable.

    Mappings are dicts whose keys are text.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not readable YAML: {error}") from None
    except OSError as error:
        raise unreadable_error(path, error) from None


def parse_yaml(text: str, where: str) -> Any:
    """Return the content of YAML text; `where` begins the UserError for text that is not YAML."""
    import yaml

    try:
        return parse_once(text)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).replace(' in "<unicode string>"', "").split())
        raise UserError(f"{where}: not readable YAML: {reason}") from None


def parse_value(text: str, where: str) -> Any:
    """Return the value in key=value.

    A list, a mapping or quoted text is YAML. Any other value is one scalar, which is taken
    literally if it is neither a number nor a constant: `a: b #c` is the name of a directory.
    """
    if not is_unicode(text):
        raise UserError(f"{where}: not valid UTF-8: rename the file or directory")
    return parse_yaml(text, where) if text.startswith(("[", "{", "'", '"')) else parse_scalar(text)


def parse_scalar(text: str) -> Any:
    """Return the constant or the number that unquoted text stands for, or else the text."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if INTEGER.fullmatch(text):
        return int(text) if len(text) < MAX_DIGITS else text
    if FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def as_override(value: Any) -> str:
    """Return a value as an override KEY=VALUE spells it: null, true, [300,400]."""
    if isinstance(value, list | tuple):
        return f"[{','.join(as_override(each) for each in value)}]"
    # Dumped within a list, where more text needs quotes; only double quotes hide a line break.
    style = '"' if isinstance(value, str) and "\n" in value else None
    line = dump_yaml([value], default_flow_style=True, default_style=style, width=math.inf)
    return line.strip()[1:-1]


def as_shown(value: Any, depth: int = 0) -> str:
    """Return a value, truncated if it is long, as an error shows it: in YAML, with text quoted."""
    if isinstance(value, list | tuple) and depth < MAX_DEPTH:
        return shorten(f"[{', '.join(as_shown(item, depth + 1) for item in value)}]")
    if isinstance(value, dict) and depth < MAX_DEPTH:
        items = (f"{key}: {as_shown(item, depth + 1)}" for key, item in value.items())
        return shorten(f"{{{', '.join(items)}}}")
    return as_override(value) if value is None or isinstance(value, bool) else quoted(value)


def dump_yaml(tree: Any, **layout: Any) -> str:
    """Return the YAML text of mappings, lists and scalars, which `parse_yaml` reads as the same.

    `layout` are options of `yaml.dump`.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        ignore_aliases = staticmethod(lambda data: True)

    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))  # quotes
    return yaml.dump(tree, Dumper=Dumper, sort_keys=False, **layout)


@lru_cache(maxsize=256)
def parse_once(text: str) -> Any:
    """Parse YAML, each text once: recipes share bases, and the rows of a table share its file."""
    import yaml

    events = yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    next(events)  # the stream begins
    if isinstance(next(events), yaml.StreamEndEvent):
        return None
    tree = TreeBuilder(events).build(next(events), 0)
    next(events)  # the document ends
    if not isinstance(event := next(events), yaml.StreamEndEvent):
        raise refusal(event, "a second document begins")
    return tree


class TreeBuilder:
    """Builds a tree from the events of a parser."""

    def __init__(self, events: Iterator[Any]) -> None:
        self.events = events
        self.nodes = 0
        self.anchors: dict[str, tuple[Any, int]] = {}
        """values that aliases stand for, and the number of nodes in each"""

    def build(self, event: Any, depth: int) -> Any:
        """Return the value that begins with an event."""
        import yaml

        self.nodes += 1
        if isinstance(event, yaml.AliasEvent):
            value, nodes = self.anchors.get(event.anchor, (None, MAX_NODES))
            self.nodes += nodes
            if self.nodes > MAX_NODES:
                what = f"the alias *{shorten(event.anchor)} is not known or stands for too much"
                raise refusal(event, f"{what}: write out its value")
            return deepcopy(value)
        if event.tag is not None:
            raise refusal(event, f"the tag {quoted(event.tag)}: leave it out")
        if depth > MAX_DEPTH:
            raise refusal(event, f"more than {MAX_DEPTH} mappings and lists inside each other")
        before = self.nodes
        if isinstance(event, yaml.ScalarEvent):
            value = parse_scalar(event.value) if event.implicit[0] else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := next(self.events), yaml.SequenceEndEvent):
                value.append(self.build(item, depth + 1))
        else:
            value = self.build_mapping(depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, self.nodes - before + 1
        return value

    def build_mapping(self, depth: int) -> dict[str, Any]:
        """Return the mapping whose first key comes next."""
        import yaml

        tree = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.build(event, depth + 1)
            if not isinstance(key, str):
                raise refusal(event, f"the key {quoted(key)} is not text: quote it")
            if key in tree:
                raise refusal(event, f"{quoted(key)} occurs twice: keep one of them")
            tree[key] = self.build(next(self.events), depth + 1)
        return tree


def refusal(event: Any, message: str) -> ValueError:
    return ValueError(f"line {event.start_mark.line + 1}: {message}")
