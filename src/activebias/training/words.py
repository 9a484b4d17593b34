"""Word shapes: capitals, digits and punctuation, which lower-cased word vectors lose.

Strubell et al.'s tagger, the basis of the paper's tagger, has four shapes: no capitals, first letter
capital, all capitals, and other capitals. Numbers and punctuation have no case, so that they get shapes of
their own here.
"""

# Row 0 is for padding: its shape embedding stays zero.
SHAPE_NAMES = (
    "padding",
    "lower",  # house
    "capitalised",  # London, A
    "all capitals",  # EU, U.S.
    "mixed case",  # iPhone, McDonald
    "all digits",  # 1996
    "digits and others",  # 1996-08-22, B2
    "punctuation",  # no letter and no digit: ( -- $
    "other",  # letters without case
)


def word_shape(word: str) -> int:
    """Return the position of a word's shape in ``SHAPE_NAMES``.

    >>> [SHAPE_NAMES[word_shape(word)] for word in ["house", "London", "EU", "iPhone", "1996", "3.5", "--"]]
    ['lower', 'capitalised', 'all capitals', 'mixed case', 'all digits', 'digits and others', 'punctuation']
    """
    if any(letter.isdigit() for letter in word):
        return 5 if word.isdigit() else 6
    letters = [letter for letter in word if letter.isalpha()]
    if not letters:
        return 7
    upper = [letter.isupper() for letter in letters]
    if not any(upper):
        return 1 if any(letter.islower() for letter in letters) else 8
    if all(upper) and len(letters) > 1:
        return 3
    return 2 if upper[0] and not any(upper[1:]) else 4
