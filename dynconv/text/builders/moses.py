"""The tokenizer and the normalizer of Moses, from sacremoses.

With the corrections below its tokenizer equals tokenizer.perl, with and without -a, on all but 2
of 85,116 lines of German, French and English, and its normalizer normalize-punctuation.perl on
all but 4: "Inc." and the single curly quotation marks, on which versions of those scripts differ.
"""

import re
from functools import cache

LAST_STOP = re.compile(r"(?<=[^ .])\.$")
"""a full stop at the end of a line. Since 2017 tokenizer.perl separates it whatever precedes it;
IWSLT'14 and the later sets were made so. The library still leaves it attached to abbreviations."""
LETTERS = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
"""characters of Han and Hangul: Perl treats these as letters, the library as one word each"""


def tokenize(line: str, language: str, *, aggressive: bool = False, escape: bool = True) -> str:
    """Separate the words of a line by single spaces, as tokenizer.perl -l LANGUAGE does.

    aggressive  -a: a hyphen between letters becomes the word "@-@"
    escape      & | < > ' " [ ] are written &amp; &#124; &lt; &gt; &apos; &quot; &#91; &#93;
    """
    words = corrected_tokenizer(language).tokenize(
        line, return_str=True, aggressive_dash_splits=aggressive, escape=escape
    )
    return LAST_STOP.sub(" .", words)


def normalize(line: str, language: str) -> str:
    """Apply normalize-punctuation.perl -l LANGUAGE, then remove-non-printing-char.perl."""
    import regex  # re lacks \p{C}

    # The scripts also see the line break: before it, a quotation ."  becomes ". in German.
    return regex.sub(r"\p{C}", " ", corrected_normalizer(language).normalize(line + "\n"))


@cache
def corrected_tokenizer(language: str):
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(language)
    apart = re.compile(rf"([^{tokenizer.IsAlnum}{LETTERS}\s.'`,\-])")
    tokenizer.PAD_NOT_ISALNUM = apart, r" \1 "
    return tokenizer


@cache
def corrected_normalizer(language: str):
    from sacremoses import MosesPunctNormalizer

    normalizer = MosesPunctNormalizer(language, perl_parity=True)
    if language == "ro":  # the script treats all quotations but English and Czech as German ones
        rules = normalizer.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
        normalizer.substitutions[-1:-1] = rules  # before the numbers
    return normalizer
