"""The check of the exercise on cleaning a parallel text."""

from collections.abc import Callable, Sequence

from dynconv.text.corpus import Row
from dynconv.text.sets.splits import fits

LONGEST, RATIO = 6, 1.5
CASES = {
    "both sides of the same length": ("drei kleine wörter", "three little words"),
    "one side blank": ("", "nothing over there"),
    "the other side blank": ("nichts da", "   "),
    "both sides blank": ("", ""),
    "a ratio of exactly 1.5, the source longer": ("eins zwei drei", "one two"),
    "a ratio of exactly 1.5, the target longer": ("eins zwei", "one two three"),
    "the source twice as long": ("a b c d", "a b"),
    "the target twice as long": ("a b", "a b c d"),
    "three words and five": ("a b c", "a b c d e"),
    "as many words as may be": ("a b c d e f", "a b c d e f"),
    "one word too many on the source side": ("a b c d e f g", "a b c d e f"),
    "one word too many on the target side": ("a b c d e f", "a b c d e f g"),
    "many characters, few words": ("donaudampfschifffahrtsgesellschaft", "company"),
    "two words of 600 characters": (f"{'x' * 600} {'y' * 600}", "x y"),
    "several spaces between two words": ("eins    zwei", "one two"),
    "a word of 1,000 characters": ("x" * 1000, "y"),
    "a word of 1,001 characters": ("y", "x" * 1001),
    "a pair that was there before": ("drei kleine wörter", "three little words"),
}


def cleaned(mine: Callable[[Sequence[Row], int, float], Sequence[Row]]) -> None:
    """mine(pairs, longest, ratio) returns those of the pairs (source, target), unchanged and in
    order, of which each side has 1 to `longest` words, none over 1000 characters, and is at most
    `ratio` times as long as the other."""
    for about, pair in CASES.items():
        kept = _kept(mine, [pair], LONGEST, RATIO, about)
        if kept not in ([], [pair]):
            raise AssertionError(f"{about}: it returns {_short(kept)}, not the pair or nothing")
        _judge(about, bool(kept), fits(pair, LONGEST, RATIO), LONGEST, RATIO)
    wide = ("a b c", "a")
    about = "three words to one, with other limits"
    _judge(about, bool(_kept(mine, [wide], 3, 3.0, about)), True, 3, 3.0)
    pairs = list(CASES.values())
    right = [pair for pair in pairs if fits(pair, LONGEST, RATIO)]
    kept = _kept(mine, pairs, LONGEST, RATIO, "all pairs together")
    if kept != right:
        if sorted(kept) == sorted(right):
            why = "in another order"
        elif len(kept) < len(right):
            why = f"{len(kept)} of the {len(right)} to keep: is a repeated pair lost?"
        else:
            why = f"{len(kept)} pairs, not {len(right)}"
        raise AssertionError(f"all pairs together: {why}")
    print(f"right: it keeps {len(right)} of {len(pairs)} pairs, the same as the package")


def _kept(mine, pairs: list[Row], longest: int, ratio: float, about: str) -> list[Row]:
    given = list(pairs)
    try:
        found = mine(given, longest, ratio)
    except ZeroDivisionError:
        raise AssertionError(f"{about}: it divides by the length of an empty side") from None
    if found is None:
        raise AssertionError("it returns None, not a list of pairs")
    found = list(found)
    if given != pairs:
        raise AssertionError(f"{about}: it changes the list that it is given")
    if not all(isinstance(each, (tuple, list)) and len(each) == 2 for each in found):
        raise AssertionError(f"{about}: it returns {_short(found)}, not pairs (source, target)")
    return [tuple(each) for each in found]


def _judge(about: str, mine: bool, right: bool, longest: int, ratio: float) -> None:
    if mine != right:
        did, should = ("keeps", "goes") if mine else ("drops", "stays")
        raise AssertionError(
            f"{about}: it {did} the pair, which {should} with at most {longest} words and a ratio "
            f"of {ratio:g}"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
