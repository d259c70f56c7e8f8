"""The kinds of vocabularies: how each is built, learned and decoded.

The first ids of each are <pad>, <eos>, which also starts the decoder, and, except in the kind
bytes, <unk>.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from dynconv.choices import VocabularyKind
from dynconv.errors import UserError, name_hint, quoted

SPECIALS = ["<pad>", "<eos>"]
END = "</w>"
"""suffix of the last piece of a word in the kind bpe"""


class TokenizerKind(ABC):
    """The interface of a kind. A tokenizer is a `tokenizers.Tokenizer`."""

    name: ClassVar[VocabularyKind]
    specials: ClassVar[list[str]]
    """the names of its first types"""
    min_other_types: ClassVar[int] = 1
    """the minimum number of other types"""
    smallest_in_words: ClassVar[str] = "the special types and one word"
    """the smallest vocabulary, in words"""

    @abstractmethod
    def empty(self) -> Any:
        """Return an untrained tokenizer."""

    @abstractmethod
    def trainer(self, **options: Any) -> Any:
        """Return the trainer of such a tokenizer, with the options that all trainers take."""

    @abstractmethod
    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        """Return the text of ids that contain neither <pad> nor <eos>."""

    def show(self, name: str) -> str:
        """Return the name of a type as it is shown to people."""
        return name

    def learn(self, lines: Iterable[str], vocab_size: int, required: Sequence[str] = ()) -> Any:
        """Return a tokenizer with the types of a text, at most `vocab_size` if there are more.

        required  types to number after the special ones, whether or not they are frequent
        """
        types = [*self.specials, *required]
        trainer = self.trainer(vocab_size=vocab_size, special_tokens=types, show_progress=False)
        tokenizer = self.empty()
        tokenizer.train_from_iterator(lines, trainer)
        return tokenizer


class ByteLevelBPE(TokenizerKind):
    """Byte-pair encoding of the bytes of any text.

    Decoding restores the text, except that Unicode is composed (NFC), a space at the start is
    dropped, and a line break becomes a space.
    """

    name = "bytes"
    specials = SPECIALS
    min_other_types = 256
    smallest_in_words = "the special types and 256 bytes"

    def empty(self) -> Any:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    def trainer(self, **options: Any) -> Any:
        from tokenizers import pre_tokenizers, trainers

        alphabet = pre_tokenizers.ByteLevel.alphabet()
        return trainers.BpeTrainer(**options, initial_alphabet=alphabet)

    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        return tokenizer.decode(ids).removeprefix(" ").replace("\n", " ")


class BPE(TokenizerKind):
    """Byte-pair encoding of the characters of words between spaces, for tokenised text.

    The papers use this kind (Sennrich et al. 2016). A character that training text does not
    contain is <unk>.
    """

    name = "bpe"
    specials = [*SPECIALS, "<unk>"]

    def empty(self, **learned: Any) -> Any:
        """Return a tokenizer, untrained unless its vocab and merges are given."""
        from tokenizers import models

        model = models.BPE(unk_token="<unk>", fuse_unk=True, end_of_word_suffix=END, **learned)
        return split_at_spaces(model)

    def trainer(self, **options: Any) -> Any:
        from tokenizers import trainers

        return trainers.BpeTrainer(**options, end_of_word_suffix=END)

    def learn(self, lines: Iterable[str], vocab_size: int, required: Sequence[str] = ()) -> Any:
        lines = list(lines)
        letters = set().union(*lines) - {" "}
        last = {word[-1] + END for line in lines for word in line.split(" ") if word}
        # The trainer would number the last letters in the order of a hash table, which differs
        # between processes, and merge equally frequent pairs in the order of these numbers.
        learned = super().learn(lines, vocab_size, [*sorted(letters), *sorted(last)])
        model = json.loads(learned.to_str())["model"]  # here letters are not special
        return self.empty(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])

    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        pieces = (tokenizer.id_to_token(i) for i in ids)
        words = (f"{p.removesuffix(END)} " if self.ends_word(p) else p for p in pieces)
        return "".join(words).rstrip(" ")

    def show(self, name: str) -> str:
        """Return a piece, with `@@` unless it ends a word."""
        return name.removesuffix(END) if self.ends_word(name) else f"{name}@@"

    def ends_word(self, piece: str) -> bool:
        """Return whether a piece is the last one of a word, as special types are."""
        return piece.endswith(END) or piece in self.specials


class WordLevel(TokenizerKind):
    """The most frequent words between spaces; any other is <unk>."""

    name = "words"
    # `< pad >` contains a space, so no word of the text can collide with it. An <unk> in the text,
    # as in WikiText, is meant to be our <unk>.
    specials = ["< pad >", "< eos >", "<unk>"]

    def empty(self) -> Any:
        from tokenizers import models

        return split_at_spaces(models.WordLevel(unk_token="<unk>"))

    def trainer(self, **options: Any) -> Any:
        from tokenizers import trainers

        return trainers.WordLevelTrainer(**options)

    def learn(self, lines: Iterable[str], vocab_size: int, required: Sequence[str] = ()) -> Any:
        # Counted as a word, the text's own <unk> would be given a second id.
        lines = (" ".join(w for w in line.split(" ") if w != "<unk>") for line in lines)
        return super().learn(lines, vocab_size, required)

    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        return " ".join(tokenizer.id_to_token(i) for i in ids)


def split_at_spaces(model: Any) -> Any:
    """Return a tokenizer of words between spaces."""
    from tokenizers import Tokenizer, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    return tokenizer


KINDS: dict[str, TokenizerKind] = {kind.name: kind for kind in (ByteLevelBPE(), BPE(), WordLevel())}


def require_kind(name: str) -> TokenizerKind:
    """Return the kind of this name. Raises UserError when there is none."""
    if name not in KINDS:
        hint = name_hint(str(name), KINDS, "there are")
        raise UserError(f"vocabulary {quoted(name)} is not known; {hint}")
    return KINDS[name]


def recognize_kind(tree: dict[str, Any]) -> TokenizerKind:
    """Recognise a kind by the JSON of its tokenizer: has it <unk>, and does it merge pairs?"""
    if tree["model"].get("unk_token") is None:
        return KINDS["bytes"]
    return KINDS["bpe" if "merges" in tree["model"] else "words"]
