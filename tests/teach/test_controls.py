"""The controls of lessons 12 and 13: they use the lessons' code, and their records are complete."""

from dynconv.lab import ledger
from dynconv.teach.controls import LOUD, SIDES, definitions


def test_lesson_12_still_defines_what_its_controls_use():
    names = definitions("12_normalizers", "TEN", "training")
    assert {"times", "fit", "fresh", "bits_on_validation", "training", "validation"} <= names.keys()
    record = ledger.read("controls-normalizers")["numbers"]
    assert record["default weights"].keys() == names["TEN"].keys()
    assert tuple(record["200 steps"]) == LOUD


def test_lesson_13_still_defines_what_its_controls_use():
    names = definitions("13_averaging", "training")
    assert {"Restorer", "restored", "is_vowel", "training", "validation"} <= names.keys()
    record = ledger.read("controls-averaging")["numbers"]
    assert [*record] == [f"{encoder} -> {decoder}" for encoder, decoder in SIDES]
    alone = ledger.read("controls-averaging-alone")["numbers"]
    assert [*alone] == ["800 steps", "2,400 steps", "mean of 63, 200 steps"]
    longer = ledger.read("controls-averaging-long")["numbers"]
    assert longer.keys() < record.keys()
