"""Rewrites pages of the book as plain Markdown, because JupyterLab's preview knows no roles."""

import ast
import re
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "book/_build/lab/pages"
"""Where the pages are written, below the folder that has book/."""
TO_BOOK, TO_ROOT = "../../..", "../../../.."
HEAD = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
LABEL = re.compile(r"^\([\w-]+\)=\n", re.MULTILINE)
ROLE = re.compile(r"\{(?P<role>[\w:]+)\}`(?P<text>[^`]+)`")
FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,})\{(?P<name>[\w-]+)\} ?(?P<argument>.*)$")
OPTION = re.compile(r"^:(?P<key>[\w-]+): ?(?P<value>.*)$")


def write_pages(root: Path, references: Mapping, papers: Mapping) -> None:
    """Write the pages in book/ of `root`.

    `references` and `papers` are what `lab.locate_notebooks` and `lab.find_papers` return.
    """
    (root / FOLDER).mkdir(parents=True, exist_ok=True)

    def link(match: re.Match) -> str:
        return replace_role(match["role"], match["text"], references, papers)

    for page in sorted((root / "book").glob("*.md")):
        text = rewrite(page.read_text(encoding="utf-8"), link, papers)
        (root / FOLDER / page.name).write_text(text, encoding="utf-8")


def rewrite(text: str, link: Callable[[re.Match], str], papers: Mapping) -> str:
    """Return a page without its head, labels and directives; `link` replaces its roles."""
    plain = "\n".join(replace_directives(LABEL.sub("", HEAD.sub("", text)).split("\n"), papers))
    parts = re.split(r"(^```\w*\n.*?^```$)", plain, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [ROLE.sub(link, part) for part in parts[::2]]  # what is between is code
    return "".join(parts)


def replace_directives(lines: list[str], papers: Mapping) -> list[str]:
    """Return the lines with each directive replaced: a figure by an image, its text as it is.

    A card of a grid becomes its title, which leads to the lesson, and the bibliography a list.
    """
    result = []
    while lines:
        line, *lines = lines
        start = FENCE.match(line)
        if start is None:
            if re.match(r"^```\w*$", line):  # code
                end = lines.index("```") + 1
                line, lines = "\n".join([line, *lines[:end]]), lines[end:]
            if not re.match(r"^:{3,}$", line):
                result.append(line)
            continue
        if start["fence"].startswith(":"):  # a card of a grid; its end is dropped above
            options, lines = take_options(lines)
            title = start["argument"]
            if "link" in options:
                title = f"{{ref}}`{title} <{options['link']}>`"
            result += [f"**{title}**", ""] if "card" in start["name"] else []
            continue
        end = lines.index(start["fence"]) if start["fence"] in lines else len(lines)
        body, lines = lines[:end], lines[end + 1 :]
        options, body = take_options(body)
        if start["name"] in ("figure", "image"):
            image = f"![{options.get('alt', '')}]({TO_BOOK}/{start['argument']})"
            result += [image, "", *body]
        elif start["name"] == "math":
            result += ["$$", *body, "$$"]
        elif start["name"] == "bibliography":
            keys = sorted(papers, key=lambda key: (papers[key]["authors"], papers[key]["year"]))
            result += [f"- {{cite:t}}`{key}`: {papers[key]['title']}" for key in keys]
        elif start["name"] == "eval-rst":
            result += list_exports(re.findall(r"automodule:: (\S+)", "\n".join(body)))
        elif start["name"] in ("raw", "lesson-map"):
            result += ["*(This part is in the rendered book: `make serve`.)*"]
        else:
            result += body
    return result


def list_exports(packages: list[str]) -> list[str]:
    """Return lines with all that the packages export, and the first line of each docstring."""
    result = []
    for package in packages:
        init = ROOT / package.replace(".", "/") / "__init__.py"
        names = [
            alias.name
            for node in ast.walk(ast.parse(init.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and node.module.startswith("dynconv.")
            for alias in node.names
        ]
        result += [
            f"Arguments, shapes and errors are in the rendered book (`make serve`), or in a cell: "
            f"`from {package} import {names[0]}`, then `help({names[0]})`.",
            "",
        ]
        for name in sorted(names, key=str.lower):
            first, *_ = find_docstring(package, name).split("\n")
            result.append(f"- `{name}`: " + first.replace("<", "\\<"))
        result.append("")
    return result


def find_docstring(module: str, name: str) -> str:
    """Return the docstring of `name`, which `module` defines or imports, without importing it."""
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            return find_docstring(node.module, name)
        if getattr(node, "name", None) == name:
            return ast.get_docstring(node) or ""
    return ""


def take_options(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options of a directive at the beginning of the lines, and the other lines."""
    options = {}
    while lines and (option := OPTION.match(lines[0])):
        options[option["key"]] = option["value"]
        lines = lines[1:]
    return options, lines


def replace_role(role: str, text: str, references: Mapping, papers: Mapping) -> str:
    """Return Markdown for a role: a link to a paper, a lesson or a page, or else its text."""
    if role.startswith("cite"):
        cited = [cite(papers[key.strip()], role) for key in text.split(",")]
        return ", ".join(cited) if role == "cite:t" else f"\\[{'; '.join(cited)}\\]"
    shown = re.fullmatch(r"(?P<shown>.*?)\s*<(?P<target>[^<>]+)>", text, re.DOTALL)
    target = " ".join((shown["target"] if shown else text).split())
    if role == "doc":
        return f"[{shown['shown'] if shown else target}]({target.removesuffix('.md')}.md)"
    if role in ("ref", "numref", "eq") and target in references:
        place = references[target]
        words = shown["shown"] if shown else place["text"]
        if notebook := place.get("notebook"):
            return f"[{words}]({TO_ROOT}/{notebook})"
        return f"[{words}]({Path(place['page']).name})" if "page" in place else words
    return "`" + (shown["shown"] if shown else re.sub(r"^~.*\.", "", text)) + "`"


def cite(paper: Mapping[str, str], role: str) -> str:
    """Return authors and year of a paper, with a link where it has an address."""
    year = f" \\[{paper['year']}\\]" if role == "cite:t" else f", {paper['year']}"
    words = paper["authors"] + year
    return f"[{words}]({paper['address']})" if paper["address"] else words
