"""One spelling for texts that people write in several: case, accents, widths, forms of Unicode.

ASCII text needs none of it and passes untouched (the tokeniser lower-cases), so English costs nothing.
"""

import re
import unicodedata

# Characters of scripts written without spaces between words, and Hangul, whose words carry their particles: CJK
# radicals, kana, bopomofo, jamo, ideographs, Hangul, Thai, Lao, Myanmar, Khmer. Their digits are folded to ASCII first.
UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e80-\u0ecf\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u104c-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"  # Hangul
    "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"  # kana
    "\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
)

# Marks that change how a word is written, not which word it is. What is not here stays: Indic vowel signs, Thai vowels
# and tones, Japanese voicing marks.
_MARKS = re.compile(
    "["
    "\u0300-\u0305\u0307\u0309-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"  # Latin, Greek, symbols
    "\u0483-\u0489"  # Cyrillic
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew points and accents
    "\u0610-\u061a\u0640\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"  # Arabic
    "\u08d3-\u08e1\u08e3-\u08ff"
    "]+"
    # Breve and diaeresis go too, except where they make another letter of Cyrillic: short i and u, and yi.
    "|(?<![иуИУ])\u0306+|(?<![іІ])\u0308+"
)
_HAMZA_ON_ALEF = re.compile("(?<=\u0627)[\u0653-\u0655]+")
# Joiners, direction marks, soft hyphens, variation selectors: invisible, so never a difference between words.
_INVISIBLE = re.compile(
    "[\u00ad\u180b-\u180f\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]+"
)
# A zero-width space marks a possible line break in the scripts without spaces, and separates words elsewhere.
_BREAK_IN_UNSPACED = re.compile(f"(?<=[{UNSPACED}])\u200b+(?=[{UNSPACED}])")
_SURROGATE = re.compile("[\ud800-\udfff]")
_APOSTROPHE = re.compile("[\u02bc\u2018\u2019\u201b\u2032]")
# Normalisation sorts each run of marks, in quadratic time: longer runs than any text needs are cut. What is neither
# letter nor digit is in no term, so nothing else is lost.
_LONG_RUN_OF_MARKS = re.compile(r"([^\w\s]{30})[^\w\s]+")
_OTHER_DIGIT = re.compile(r"[^\D0-9]")


def fold(text: str) -> str:
    """Fold case, accents, widths and compatible forms of characters; compose what is left (Unicode NFC).

    "É", "é" and "e" with a combining accent become "e"; full-width "Ｖ" becomes "v"; "ß" becomes "ss"; Greek and
    Cyrillic lose their accents, Hebrew its points, Arabic its vowel marks and the hamza on alef; all decimal digits
    become 0 to 9; typographic apostrophes become "'". Latin letters with strokes ("ø") are left to the tokeniser's
    filter. Case is folded only in text that is not plain ASCII; the tokeniser lower-cases the rest. A lone surrogate
    is no character and becomes a space.
    """
    if text.isascii():
        return text
    text = _SURROGATE.sub(" ", text)
    text = _INVISIBLE.sub("", text)
    text = _BREAK_IN_UNSPACED.sub("", text).replace("\u200b", " ")
    text = _LONG_RUN_OF_MARKS.sub(r"\1", text)
    text = unicodedata.normalize("NFKD", text)
    text = _APOSTROPHE.sub("'", text)
    text = _MARKS.sub("", text)
    text = _HAMZA_ON_ALEF.sub("", text)
    # Casefold after the marks are gone: it would turn a Greek iota below a letter into a letter.
    text = unicodedata.normalize("NFC", text.casefold())
    return _OTHER_DIGIT.sub(lambda digit: str(unicodedata.digit(digit.group())), text)
