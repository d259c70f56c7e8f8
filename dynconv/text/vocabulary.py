"""Vocabularies turn text into ids and back, by HF `tokenizers`; they learn from training text only.

There are three kinds. The first ids of each are <pad>, <eos>, which also starts the decoder, and,
except in the kind bytes, <unk>.

bytes  byte-pair encoding of the bytes of any text. Decoding restores the text, except that Unicode
       is composed (NFC), a space at the start is dropped, and a line break becomes a space
bpe    byte-pair encoding of the characters of words between spaces, as in the papers (Sennrich et
       al. 2016), for tokenised text. A character that training text does not contain is <unk>
words  the most frequent words between spaces; any other is <unk>
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from dynconv.errors import UserError
from dynconv.names import VocabularyKind

PAD, EOS, UNK = 0, 1, 2
SPECIALS = ["<pad>", "<eos>"]
BYTES = 256
KINDS = get_args(VocabularyKind)
END = "</w>"
"""suffix of the last piece of a word in the kind bpe"""


class Vocabulary:
    """The vocabulary of one language, or of two together."""

    def __init__(self, tokenizer):
        tokenizer.encode_special_tokens = True  # "<eos>" in a text is text
        self._tokenizer = tokenizer

    @classmethod
    def learn(
        cls, lines: Iterable[str], vocab_size: int, kind: VocabularyKind = "bytes"
    ) -> "Vocabulary":
        """Learn `vocab_size` types, the special ones included, of a kind described above.

        Raises UserError when the size is too small for the kind, or the text yields fewer types.
        """
        from tokenizers import pre_tokenizers, trainers

        tokenizer, specials = empty_tokenizer(kind)
        smallest = len(specials) + (BYTES if kind == "bytes" else 1)
        if vocab_size < smallest:
            what = "256 bytes and specials" if kind == "bytes" else "specials and a word"
            raise UserError(f"vocab_size {vocab_size} is below {smallest}: {what}")
        options = {"vocab_size": vocab_size, "special_tokens": specials, "show_progress": False}
        trainer: trainers.Trainer
        if kind == "words":
            trainer = trainers.WordLevelTrainer(**options)
            # counted as a word, the text's own <unk> would be given a second id
            lines = (" ".join(w for w in line.split(" ") if w != "<unk>") for line in lines)
        elif kind == "bpe":
            lines = list(lines)
            letters = set().union(*lines) - {" "}
            last = {word[-1] + END for line in lines for word in line.split(" ") if word}
            # The trainer would number the last letters in the order of a hash table, another one in
            # each process, and merge equally frequent pairs in the order of these numbers.
            options["special_tokens"] = [*specials, *sorted(letters), *sorted(last)]
            trainer = trainers.BpeTrainer(**options, end_of_word_suffix=END)
        else:
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            trainer = trainers.BpeTrainer(**options, initial_alphabet=alphabet)
        tokenizer.train_from_iterator(lines, trainer)
        size = tokenizer.get_vocab_size()
        if size != vocab_size:
            problem = "the text yields" if size < vocab_size else "the text's characters alone are"
            raise UserError(
                f"{problem} {size} types, not {vocab_size}: give {size} as --vocab-size, or as "
                "model.vocab_size of a recipe"
            )
        if kind == "bpe":
            model = json.loads(tokenizer.to_str())["model"]
            merges = [tuple(pair) for pair in model["merges"]]
            tokenizer, _ = empty_tokenizer("bpe", vocab=model["vocab"], merges=merges)
        return cls(tokenizer)

    def to_json(self, pretty: bool = False) -> str:
        """Return the vocabulary in the JSON of the library tokenizers."""
        return self._tokenizer.to_str(pretty=pretty)

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    @property
    def kind(self) -> VocabularyKind:
        """The kind that its tokenizer shows: "bytes", "bpe" or "words"."""
        if self.unknown is None:
            return "bytes"
        return "bpe" if hasattr(self._tokenizer.model, "end_of_word_suffix") else "words"

    @property
    def unknown(self) -> int | None:
        """The id of <unk>; None for the kind bytes, which can spell everything."""
        return self._tokenizer.token_to_id("<unk>")

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Encode each line to ids, without <eos>; a blank line gives no ids."""
        return [
            e.ids if line.strip() else []
            for line, e in zip(lines, self._tokenizer.encode_batch_fast(lines), strict=True)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids to text; <pad> and <eos> are dropped, a line break becomes a space."""
        kept = [i for i in ids if i >= len(SPECIALS)]
        if self.kind == "bytes":
            return self._tokenizer.decode(kept).removeprefix(" ").replace("\n", " ")
        types = [self._tokenizer.id_to_token(i) for i in kept]
        if self.kind == "words":
            return " ".join(types)
        pieces = (f"{piece.removesuffix(END)} " if ends_word(piece) else piece for piece in types)
        return "".join(pieces).rstrip(" ")

    def words(self, ids: Iterable[int]) -> list[str]:
        """Return the type of each id; in the kind bpe `@@` marks pieces that do not end a word."""
        types = [self._tokenizer.id_to_token(i) for i in ids]
        return [mark_piece(each) for each in types] if self.kind == "bpe" else types


def mark_piece(piece: str) -> str:
    """Return a piece of the kind bpe as it is shown: with `@@` unless it ends a word."""
    return piece.removesuffix(END) if ends_word(piece) else f"{piece}@@"


def ends_word(piece: str) -> bool:
    """Return whether a piece of the kind bpe is the last one of a word, as special types are."""
    return piece.endswith(END) or piece in (*SPECIALS, "<unk>")


class Vocabularies(NamedTuple):
    """The vocabularies of source and target; a joint one is both."""

    source: Vocabulary
    target: Vocabulary

    @property
    def sizes(self) -> int | tuple[int, int]:
        """The value of `model.vocab_size`: one number if joint, else one per side."""
        joint = self.source is self.target
        return len(self.target) if joint else (len(self.source), len(self.target))

    @classmethod
    def load(cls, path: Path) -> "Vocabularies":
        """Load a file that `save` wrote; UserError when it cannot be read."""
        from tokenizers import Tokenizer

        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
            joint = tree.keys() != {"source", "target"}
            trees = [tree] if joint else [tree["source"], tree["target"]]
            for each in trees:
                check_tree(each)
            sides = [Vocabulary(Tokenizer.from_str(json.dumps(tree))) for tree in trees]
        except Exception as error:  # tokenizers raises a bare Exception
            raise UserError(f"{path}: not a readable vocabulary ({error})") from error
        return cls(sides[0], sides[-1])

    def save(self, path: Path) -> None:
        """Write types and merges as JSON in the format of `tokenizers`; by side if not joint."""
        # not by the library's save: a full disk would raise a bare Exception
        if self.source is self.target:
            text = self.target.to_json(pretty=True)
        else:
            sides = self._asdict().items()
            trees = {side: json.loads(each.to_json()) for side, each in sides}
            text = json.dumps(trees, indent=1, ensure_ascii=False)
        path.write_text(text, encoding="utf-8")


def check_tree(tree: dict) -> None:
    """Raise ValueError for types or settings that `save` does not write.

    `tokenizers` accepts many of them, and aborts, hangs or pads when it encodes a line.
    """
    model, types = tree["model"], tree["model"]["vocab"]
    kind: VocabularyKind = "bytes"
    if model.get("unk_token") is not None:
        kind = "bpe" if "merges" in model else "words"
    tokenizer, specials = empty_tokenizer(kind)
    ours = json.loads(tokenizer.to_str())
    for theirs, settings in ((tree, ours), (model, ours["model"])):
        for key in settings.keys() & theirs.keys() - {"added_tokens", "model", "vocab", "merges"}:
            if theirs[key] != settings[key]:
                raise ValueError(f"{key} is {str(theirs[key])[:60]}, not {settings[key]}")
    if sorted(types.values()) != [*range(len(types))]:
        raise ValueError("the ids of its types are not 0, 1, 2 ...")
    for number, name in enumerate(specials):
        if types.get(name) != number:
            raise ValueError(f"{name} has the id {types.get(name)}, not {number}")
    for added in tree.get("added_tokens", ()):
        if types.get(added["content"]) != added["id"]:
            raise ValueError(f"the added token {added['content']} is no type of that id")


def empty_tokenizer(kind: VocabularyKind, **learned):
    """Return a tokenizer of a kind, and its special tokens; untrained unless merges are given."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    if kind not in KINDS:
        raise UserError(f"vocabulary {kind!r} is not known; there are {', '.join(KINDS)}")
    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer, SPECIALS
    tokenizer = Tokenizer(
        models.WordLevel(unk_token="<unk>")
        if kind == "words"
        else models.BPE(unk_token="<unk>", fuse_unk=True, end_of_word_suffix=END, **learned)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    # `< pad >` contains a space, so no word of the text can collide with it. An <unk> in the text,
    # as in WikiText, is meant to be our <unk>.
    specials = ["< pad >", "< eos >"] if kind == "words" else SPECIALS
    return tokenizer, [*specials, "<unk>"]
