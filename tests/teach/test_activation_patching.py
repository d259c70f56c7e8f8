"""Exchanging vectors of the memory, for lesson 22."""

import pytest
import torch

from dynconv.config import Seq2SeqConfig, StackConfig
from dynconv.lab import ledger
from dynconv.models import build
from dynconv.teach.controls.activation_patching import REACH, exchange, only_difference


class Letters:
    """A vocabulary in which each letter is a token."""

    def encode(self, lines):
        return [[ord(letter) for letter in line] for line in lines]

    def decode(self, ids):
        return "".join(map(chr, ids))


def test_the_exchange_of_all_vectors_brings_about_the_whole_change():
    stack = StackConfig(1, "dynamic", (3,))
    torch.manual_seed(0)
    sizes = {"vocab_size": 128, "channels": 16, "ffn": 16, "heads": 2}
    model = build(Seq2SeqConfig(**sizes, encoder=stack, decoder=stack)).eval()
    pair = "Geben Sie es ein", "Geben Sie es ean"
    groups = {"none": [], "all": range(len(pair[0]) + 1)}
    found = exchange(model, Letters(), pair, ("Enter", "Specify"), groups)
    assert found["share"] == {"none": 0, "all": 1}
    assert list(found["patched_first"].values()) == found["first"]


def test_only_sentences_that_differ_in_one_token_are_exchanged():
    assert only_difference([1, 2, 3], [1, 4, 3]) == 1
    for other in ([1, 4, 3, 5], [1, 2, 3], [1, 5, 6]):
        with pytest.raises(ValueError):
            only_difference([1, 2, 3], other)


def test_the_record_is_that_of_the_lesson():
    rows = ledger.read("activation-patching")["numbers"]["sentences"]
    assert len(rows) == 55 and rows[0]["tokens"] == 37 == len(rows[0]["stem"]["each"])


def test_no_recorded_vector_beyond_the_encoders_reach_has_a_share():
    rows = ledger.read("activation-patching")["numbers"]["sentences"]
    for word, place in (("particle", rows[0]["position"]), ("stem", 0)):
        each = rows[0][word]["each"]
        assert all(share == 0 for s, share in enumerate(each) if abs(s - place) > REACH)
    for row in rows:
        if row["position"] > REACH:
            assert row["particle"]["share"]["stem"] == row["stem"]["share"]["particle"] == 0
