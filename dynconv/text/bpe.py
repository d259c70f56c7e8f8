"""Joint byte-pair encoding by HF `tokenizers`, learned on the training split only.

Byte-level: every text can be encoded and comes back unchanged, but for Unicode's composed form
(NFC). Two special tokens: padding, and the end of a sentence, from which the decoder also starts.
"""

from collections.abc import Iterable
from pathlib import Path

from dynconv.errors import UserError

PAD, EOS = 0, 1
SPECIALS = ["<pad>", "<eos>"]
SMALLEST = len(SPECIALS) + 256
"""the special tokens and one type for each byte"""


class BPE:
    """A vocabulary and its merges: text to ids and back."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    @classmethod
    def learn(cls, lines: Iterable[str], vocab_size: int) -> "BPE":
        """Learn merges until there are `vocab_size` types, the special ones and bytes included.

        Raises UserError when the size is below 258 or the text yields fewer types.
        """
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        if vocab_size < SMALLEST:
            raise UserError(f"vocab_size {vocab_size} is below {SMALLEST}: 256 bytes and specials")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines, trainer)
        found = tokenizer.get_vocab_size()
        if found < vocab_size:
            raise UserError(
                f"the text yields {found} types, not vocab_size {vocab_size}: ask for {found}"
            )
        tokenizer.encode_special_tokens = True  # "<eos>" in a text is text
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> "BPE":
        """Read what `save` wrote; UserError when it cannot be read."""
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises a bare Exception
            raise UserError(f"{path}: not a readable vocabulary ({error})") from error
        tokenizer.encode_special_tokens = True
        return cls(tokenizer)

    def save(self, path: Path) -> None:
        """Write vocabulary and merges as JSON."""
        # not by the library's save: a full disk would raise a bare Exception
        path.write_text(self._tokenizer.to_str(pretty=True), encoding="utf-8")

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Ids of each line, without <eos>; a blank line gives no ids."""
        return [
            e.ids if line.strip() else []
            for line, e in zip(lines, self._tokenizer.encode_batch_fast(lines), strict=True)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of some ids; special tokens vanish, a line break becomes a space."""
        text = self._tokenizer.decode([i for i in ids if i >= len(SPECIALS)])
        return " ".join(text.removeprefix(" ").split("\n"))
