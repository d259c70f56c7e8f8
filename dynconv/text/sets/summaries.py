"""The summarisation corpora: an article a line, and its summary on the same line."""

from collections.abc import Iterator
from functools import partial
from hashlib import sha1
from itertools import chain
from pathlib import Path

from dynconv.text.corpus import stream_lines, stream_parallel
from dynconv.text.sets.moses import tokenize
from dynconv.text.sets.parallel import parallel
from dynconv.text.sets.raw import Missing, find
from dynconv.text.sets.splits import Pair, write

SIDES = ("article", "summary")
LISTS = {"train": "all_train.txt", "valid": "all_val.txt", "test": "all_test.txt"}
ARTICLE = 400
"""words of an article that are kept"""
ENDS = (".", "!", "?", "...", "'", "`", '"', "’", "”", ")")


def cnn_dailymail(raw: Path, out: Path) -> dict[str, int]:
    """The stories and splits of See et al. 2017, lower-cased, articles of at most 400 words.

    Wu et al. 2019 trained on the version whose names are replaced by @entity1 and so on (footnote
    8). Its summaries have no public archive, only questions made from them with a gap in each;
    so this is the text itself, and its ROUGE is not theirs. Ours, too: Moses's words instead of
    Stanford's. The 114 stories without text are left out.
    """
    lists = {split: find(raw, name) for split, name in LISTS.items()}
    folders = sorted(path for path in raw.rglob("stories") if path.is_dir())
    if len(folders) != 2:
        raise Missing(f"{raw}: {len(folders)} folders named stories, not CNN's and Daily Mail's")
    read = partial(_story, folders=folders)
    pairs = ((s, p) for s in lists for p in parallel(read, stream_lines(lists[s]), f"{s} stories"))
    return write(out, SIDES, ((split, pair) for split, pair in pairs if all(pair)))


def gigaword(raw: Path, out: Path) -> dict[str, int]:
    """First sentences and headlines as Rush et al. 2015 tokenised them, unchanged: lower case, #
    for a digit, rare words <unk> in training and UNK in the test."""
    names = {
        "train": ("train.article.txt", "train.title.txt"),
        "valid": ("valid.article.filter.txt", "valid.title.filter.txt"),
        "test": ("[Gg]iga/input.txt", "[Gg]iga/task1_ref0.txt"),
    }
    files = {split: [find(raw, name) for name in pair] for split, pair in names.items()}
    pairs = chain.from_iterable(_pairs(split, *paths) for split, paths in files.items())
    return write(out, SIDES, pairs)


def duc_2004(raw: Path, out: Path) -> dict[str, int]:
    """The first sentences of task 1 and four headlines of each, in the files of Rush et al. 2015.

    Only a test: test.article and test.summary; the other three headlines are test.summary1 to 3.
    """
    article = find(raw, "input.txt")
    headlines = [find(raw, f"task1_ref{number}.txt") for number in range(4)]
    sides = [[headline for _, headline in stream_parallel(article, file)] for file in headlines]
    lines = zip(stream_lines(article), *sides, strict=True)
    suffixes = (*SIDES, *(f"summary{number}" for number in range(1, 4)))
    return write(out, suffixes, (("test", line) for line in lines))


def _pairs(split: str, article: Path, summary: Path) -> Iterator[tuple[str, Pair]]:
    return ((split, pair) for pair in stream_parallel(article, summary))


def _story(url: str, folders: list[Path]) -> Pair:
    """Article and highlights of a .story, whose name is the hash of its address."""
    name = sha1(url.strip().encode()).hexdigest() + ".story"
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        raise Missing(f"{folders[0]} and {folders[1]}: no {name} there, the story of {url.strip()}")
    article, *highlights = "\n".join(map(str.strip, stream_lines(path))).split("@highlight")
    return " ".join(_sentences(article).split()[:ARTICLE]), _sentences("".join(highlights))


def _sentences(text: str) -> str:
    lines = (line if line.endswith(ENDS) else line + " ." for line in text.split("\n") if line)
    return " ".join(tokenize(line, "en", escape=False) for line in lines).lower()
