"""The summarisation corpora: one article per line, and its summary on the same line."""

from functools import partial
from hashlib import sha1
from pathlib import Path

from dynconv.text.builders.moses import tokenize
from dynconv.text.builders.steps import MissingRawFileError, parallel_map, require_raw, write_splits
from dynconv.text.lines import Row, stream_lines, stream_parallel

SIDES = ("article", "summary")
LISTS = {"train": "all_train.txt", "valid": "all_val.txt", "test": "all_test.txt"}
"""the files with the addresses of each split's stories"""
ARTICLE_WORDS = 400
"""words that are kept of an article"""
ENDS = (".", "!", "?", "...", "'", "`", '"', "’", "”", ")")
"""characters that may end a line; after any other, See et al. add a full stop"""


def cnn_dailymail(raw: Path, out: Path) -> dict[str, int]:
    """Build the stories and splits of See et al. 2017, lower-cased, articles cut to 400 words.

    Wu et al. 2019 trained on the version in which @entity1 and so on stand for names (footnote 8).
    Its summaries are in no public archive, only questions made from them, each with a gap. This is
    the original text, so its ROUGE cannot be compared with theirs; and Moses separates the words,
    not Stanford's tokenizer. The 114 stories without text are left out.
    """
    lists = {split: require_raw(raw, name) for split, name in LISTS.items()}
    folders = sorted(path for path in raw.rglob("stories") if path.is_dir())
    if len(folders) != 2:
        raise MissingRawFileError(
            f"{raw}: {len(folders)} folders named stories, not CNN's and Daily Mail's"
        )
    read = partial(read_story, folders=folders)
    pairs = (
        (s, p) for s in lists for p in parallel_map(read, stream_lines(lists[s]), f"{s} stories")
    )
    return write_splits(out, SIDES, ((split, pair) for split, pair in pairs if all(pair)))


def gigaword(raw: Path, out: Path) -> dict[str, int]:
    """Copy the first sentences and headlines that Rush et al. 2015 tokenised.

    They are in lower case, with # for a digit; rare words are <unk> in training, UNK in the test.
    """
    names = {
        "train": ("train.article.txt", "train.title.txt"),
        "valid": ("valid.article.filter.txt", "valid.title.filter.txt"),
        "test": ("[Gg]iga/input.txt", "[Gg]iga/task1_ref0.txt"),
    }
    files = {split: [require_raw(raw, name) for name in pair] for split, pair in names.items()}
    pairs = ((split, pair) for split in files for pair in stream_parallel(*files[split]))
    return write_splits(out, SIDES, pairs)


def duc_2004(raw: Path, out: Path) -> dict[str, int]:
    """Copy the first sentences of task 1 and four headlines of each from Rush et al. 2015's files.

    There is only a test: test.article and test.summary, and test.summary1 to 3 for the other three
    headlines.
    """
    article = require_raw(raw, "input.txt")
    headlines = [require_raw(raw, f"task1_ref{number}.txt") for number in range(4)]
    suffixes = (*SIDES, *(f"summary{number}" for number in range(1, 4)))
    rows = stream_parallel(article, *headlines)
    return write_splits(out, suffixes, (("test", row) for row in rows))


def read_story(url: str, folders: list[Path]) -> Row:
    """Read article and highlights of a .story file, whose name is the hash of its address."""
    name = sha1(url.strip().encode()).hexdigest() + ".story"
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        raise MissingRawFileError(
            f"{folders[0]} and {folders[1]}: no {name} there, the story of {url.strip()}"
        )
    article, *highlights = "\n".join(map(str.strip, stream_lines(path))).split("@highlight")
    words = join_sentences(article).split()[:ARTICLE_WORDS]
    return " ".join(words), join_sentences("".join(highlights))


def join_sentences(text: str) -> str:
    """Return the tokenised lines of a text in one line, each with a full stop at its end."""
    lines = (line if line.endswith(ENDS) else line + " ." for line in text.split("\n") if line)
    return " ".join(tokenize(line, "en", escape=False) for line in lines).lower()
