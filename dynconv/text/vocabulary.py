"""Vocabularies turn text into ids and back, by HF `tokenizers`; they learn from training text only.

`dynconv.text.tokenizer_kinds` describes the kinds.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dynconv.choices import VocabularyKind
from dynconv.errors import UserError, shorten
from dynconv.text.tokenizer_kinds import SPECIALS, TokenizerKind, recognize_kind, require_kind
from dynconv.value_checks import check_lines, is_unicode

PAD, EOS, UNK = 0, 1, 2
DEFAULT_KIND: VocabularyKind = "bytes"
DEFAULT_SIZE = 32768
"""kind and size of a vocabulary for which a recipe or a command names no others"""


class Vocabulary:
    """The vocabulary of one language, or of two together."""

    def __init__(self, tokenizer: Any, kind: TokenizerKind):
        tokenizer.encode_special_tokens = True  # "<eos>" in a text is text
        self._tokenizer = tokenizer
        self._kind = kind

    @classmethod
    def learn(
        cls, lines: Iterable[str], vocab_size: int, kind: VocabularyKind = DEFAULT_KIND
    ) -> "Vocabulary":
        """Learn `vocab_size` types, the special ones included, of a kind.

        Raises UserError when the size is too small for the kind, or the text yields fewer types.
        """
        chosen = require_kind(kind)
        smallest = len(chosen.specials) + chosen.min_other_types
        if vocab_size < smallest:
            raise UserError(
                f"vocab_size {vocab_size} is below {smallest}, "
                f"the minimum for {chosen.smallest_in_words}: raise it"
            )
        vocabulary = cls(chosen.learn(lines, vocab_size), chosen)
        if (size := len(vocabulary)) != vocab_size:
            problem = "the text yields" if size < vocab_size else "the text's characters alone are"
            raise UserError(f"{problem} {size} types, not {vocab_size}: give {size} as vocab_size")
        return vocabulary

    def to_json(self, pretty: bool = False) -> str:
        """Return the vocabulary in the JSON of the library tokenizers."""
        return self._tokenizer.to_str(pretty=pretty)

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    @property
    def kind(self) -> VocabularyKind:
        """The name of its kind."""
        return self._kind.name

    @property
    def unknown_id(self) -> int | None:
        """The id of <unk>; None for the kind bytes, which can spell everything."""
        return self._tokenizer.token_to_id("<unk>")

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Encode each line to ids, without <eos>; a blank line gives no ids.

        Raises UserError for a string in place of a list of lines, and for a line that is not
        valid Unicode.
        """
        check_lines(lines)
        lines = list(lines)
        try:
            encodings = self._tokenizer.encode_batch_fast(lines)
        except TypeError:
            bad = next(line for line in lines if not is_unicode(line))
            raise UserError(
                f"{shorten(ascii(bad))} is not valid Unicode: remove the lone surrogates"
            ) from None
        return [e.ids if line.strip() else [] for line, e in zip(lines, encodings, strict=True)]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids to text; <pad> and <eos> are dropped, a line break becomes a space."""
        return self._kind.decode(self._tokenizer, [i for i in ids if i >= len(SPECIALS)])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the type of each id; in the kind bpe `@@` marks pieces that do not end a word."""
        return [self._kind.show(self._tokenizer.id_to_token(i)) for i in ids]


class Vocabularies(NamedTuple):
    """The vocabularies of source and target; a joint one is both."""

    source: Vocabulary
    target: Vocabulary

    @property
    def vocab_size(self) -> int | tuple[int, int]:
        """The value of `model.vocab_size`: one number if joint, else one per side."""
        joint = self.source is self.target
        return len(self.target) if joint else (len(self.source), len(self.target))

    @classmethod
    def load(cls, path: Path) -> "Vocabularies":
        """Load a file that `save` wrote. Raises UserError when it cannot be read."""
        from tokenizers import Tokenizer

        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
            joint = tree.keys() != {"source", "target"}
            trees = [tree] if joint else [tree["source"], tree["target"]]
            kinds = [recognize_kind(each) for each in trees]
            for each, kind in zip(trees, kinds, strict=True):
                check_tree(each, kind)
            tokenizers = [Tokenizer.from_str(json.dumps(each)) for each in trees]
            sides = [*map(Vocabulary, tokenizers, kinds)]
        except Exception as error:  # tokenizers raises a bare Exception
            raise UserError(f"{path}: not a readable vocabulary ({error})") from error
        return cls(sides[0], sides[-1])

    def save(self, path: Path) -> None:
        """Write types and merges as JSON in the format of `tokenizers`; by side if not joint."""
        # Not by the library's save: a full disk would raise a bare Exception.
        if self.source is self.target:
            text = self.target.to_json(pretty=True)
        else:
            sides = self._asdict().items()
            trees = {side: json.loads(each.to_json()) for side, each in sides}
            text = json.dumps(trees, indent=1, ensure_ascii=False)
        path.write_text(text, encoding="utf-8")


def per_side(vocab_size: int | tuple[int, int]) -> tuple[int, int]:
    """Return the numbers of types of source and target; one number stands for both.

    `Vocabularies.vocab_size` does the reverse.
    """
    return vocab_size if isinstance(vocab_size, tuple) else (vocab_size, vocab_size)


def check_tree(tree: dict, kind: TokenizerKind) -> None:
    """Raise ValueError for types or settings that `save` does not write for this kind.

    `tokenizers` accepts many of them, and aborts, hangs or pads when it encodes a line.
    """
    model, types = tree["model"], tree["model"]["vocab"]
    ours = json.loads(kind.empty().to_str())
    for theirs, settings in ((tree, ours), (model, ours["model"])):
        for key in settings.keys() & theirs.keys() - {"added_tokens", "model", "vocab", "merges"}:
            if theirs[key] != settings[key]:
                raise ValueError(f"{key} is {str(theirs[key])[:60]}, not {settings[key]}")
    if sorted(types.values()) != [*range(len(types))]:
        raise ValueError("the ids of its types are not 0, 1, 2 ...")
    for number, name in enumerate(kind.specials):
        if types.get(name) != number:
            raise ValueError(f"{name} has the id {types.get(name)}, not {number}")
    for added in tree.get("added_tokens", ()):
        if types.get(added["content"]) != added["id"]:
            raise ValueError(f"the added token {added['content']} has another id in the vocabulary")
