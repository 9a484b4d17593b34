"""Tag schemes, word shapes and column files."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activebias.lab.data import DataError, bilou_names, to_bilou
from activebias.lab.data.conll import read_columns, read_conll2012
from activebias.training.words import SHAPE_NAMES, word_shape


@st.composite
def entity_tags(draw):
    """Well-formed IOB2 tags of one sentence."""
    tags = []
    for kind, length in draw(
        st.lists(st.tuples(st.sampled_from(["O", "PER", "LOC"]), st.integers(1, 4)), max_size=8)
    ):
        tags += ["O"] * length if kind == "O" else [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
    return tags


@given(entity_tags())
def test_round_trip(tags):
    bilou = to_bilou(tags, "iob2")
    assert [{"U": "B", "L": "I"}.get(tag[0], tag[0]) + tag[1:] for tag in bilou] == tags
    letters = [tag[0] for tag in [*bilou, "O"]]
    assert all(after in ("IL" if letter in "BI" else "BUO") for letter, after in pairwise(letters))
    # The same entities, written in IOB1, give the same BILOU tags.
    iob1 = [
        tag if tag[0] != "B" or before[1:] == tag[1:] else f"I{tag[1:]}"
        for before, tag in pairwise(["O", *tags])
    ]
    assert to_bilou(iob1, "iob1") == bilou
    assert to_bilou(tags, "iob1") == bilou


@given(entity_tags())
def test_number_of_entities_stays(tags):
    starts = sum(tag.startswith("B-") for tag in tags)
    assert sum(tag.startswith(("B-", "U-")) for tag in to_bilou(tags)) == starts


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["I-PER", "I-PER", "O"], ["B-PER", "L-PER", "O"]),
        (["I-PER", "B-PER", "I-PER"], ["U-PER", "B-PER", "L-PER"]),
        (["I-PER", "I-LOC"], ["U-PER", "U-LOC"]),
        (["I-ORG", "I-ORG", "I-ORG"], ["B-ORG", "I-ORG", "L-ORG"]),
        ([], []),
    ],
)
def test_iob1(tags, expected):
    assert to_bilou(tags, "iob1") == expected


@pytest.mark.parametrize("tags", [["I-PER"], ["O", "I-PER"], ["B-LOC", "I-PER"]])
def test_bio_refuses_an_inside_that_continues_nothing(tags):
    with pytest.raises(DataError, match="continues no entity"):
        to_bilou(tags, "bio")


@pytest.mark.parametrize("tag", ["X", "B", "B-", "L-PER", "-PER", "BI-PER", ""])
def test_malformed_tag(tag):
    with pytest.raises(DataError, match=r"position 1: .* is not a tag"):
        to_bilou(["O", tag])


def test_unknown_type():
    with pytest.raises(DataError, match="unknown type 'ANIMAL': known are LOC, PER"):
        to_bilou(["B-ANIMAL"], types=["PER", "LOC"])


def test_unknown_scheme():
    with pytest.raises(ValueError, match="Expected `scheme` to be one of"):
        to_bilou(["O"], "iobes")


def test_tag_names():
    assert len(bilou_names(["LOC", "MISC", "ORG", "PER"])) == 17
    assert bilou_names(["A"])[0] == "O"


@pytest.mark.parametrize(
    ("word", "shape"),
    [
        ("house", "lower"),
        ("e-mail", "lower"),
        ("London", "capitalised"),
        ("A", "capitalised"),
        ("EU", "all capitals"),
        ("U.S.", "all capitals"),
        ("McDonald", "mixed case"),
        ("iPhone", "mixed case"),
        ("1996", "all digits"),
        ("1996-08-22", "digits and others"),
        ("B2", "digits and others"),
        (",", "punctuation"),
        ("漢字", "other"),
        ("Ärzte", "capitalised"),
    ],
)
def test_word_shape(word, shape):
    assert SHAPE_NAMES[word_shape(word)] == shape


@given(st.text(min_size=1))
def test_every_word_has_a_shape_and_none_is_padding(word):
    assert 1 <= word_shape(word) < len(SHAPE_NAMES)


def write(folder, text, name="words"):
    path = folder / name
    path.write_bytes(text.encode("utf-8"))
    return path


def read(path, **options):
    return read_columns(path, **({"types": ["PER", "LOC"], "scheme": "bio"} | options))


def test_columns_sentences_and_documents(tmp_path):
    path = write(
        tmp_path,
        "-DOCSTART- -X- O O\n\nAda NN I-NP I-PER\nsleeps VB I-VP O\n\n\n"
        "-DOCSTART- -X- O O\r\n\r\nRome NN I-NP I-LOC\r\n",
    )
    text = read(path, scheme="iob1", num_columns=4)
    assert text.sentences == ((("Ada", "sleeps"), ("U-PER", "O")), (("Rome",), ("U-LOC",)))
    assert (text.num_documents, text.num_tokens) == (2, 3)


def test_columns_by_tab_keep_unusual_blanks(tmp_path):
    # A no-break space and a line separator are parts of words here; a line of a tab alone ends a sentence.
    path = write(tmp_path, "a\u00a0b\tO\nc\u2028d\tO\n\t\nAda\tB-PER\n")
    words = [words for words, _ in read(path, num_columns=2).sentences]
    assert words == [("a\u00a0b", "c\u2028d"), ("Ada",)]


def test_columns_take_their_number_from_the_first_line(tmp_path):
    assert read(write(tmp_path, "Ada NN x y B-PER\n")).sentences == ((("Ada",), ("U-PER",)),)
    with pytest.raises(DataError, match="line 2: 2 columns where 3"):
        read(write(tmp_path, "Ada NN O\nsleeps O\n"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Ada O\nalone\n", "line 2: 1 columns where 2 are expected"),
        ("word\n", "line 1: 1 columns where 2 are expected"),
        ("\tO\n", "line 1: 2 columns where 2|line 1: 1 columns"),
        ("Ada O\n\nBob B-CAT\n", "line 3: the tag 'B-CAT' has the unknown type 'CAT'"),
        ("Ada O\nBob Q\n", "line 2: 'Q' is not a tag"),
        ("Ada O\nBob I-PER\n", "line 2: the tag I-PER continues no entity"),
        ("", "holds no sentence"),
        ("-DOCSTART- O\n\n", "holds no sentence"),
    ],
)
def test_columns_refusals_name_file_and_line(tmp_path, content, words):
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=words) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_refuse_other_encodings(tmp_path):
    path = tmp_path / "words"
    path.write_bytes(b"Ada O\nJos\xe9 O\n")
    with pytest.raises(DataError, match="line 2: byte 3 is not utf-8"):
        read(path)


def conll2012(*marks):
    rows = "".join(f"nw/x 0 {k} w{k} NN * - - - - {mark} - -\n" for k, mark in enumerate(marks))
    return f"#begin document (nw/x); part 000\n{rows}\n#end document\n"


def test_conll2012_brackets(tmp_path):
    path = write(tmp_path, conll2012("(PER*", "*", "*)", "*", "(LOC)", "(LOC*)"))
    text = read_conll2012([path], types=["PER", "LOC"])
    assert text.sentences[0][1] == ("B-PER", "I-PER", "L-PER", "O", "U-LOC", "U-LOC")
    assert text.sentences[0][0] == ("w0", "w1", "w2", "w3", "w4", "w5")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (conll2012("*)"), "line 2: .* not a valid entity bracket"),
        (conll2012("(PER*", "(PER)"), "line 3: .* not a valid entity bracket"),
        (conll2012("(*"), "line 2: .* not a valid entity bracket"),
        (conll2012("((PER*"), "line 2: .* not a valid entity bracket"),
        (conll2012("(PER*", "*"), "line 3: the entity PER is not closed"),
        (conll2012("(CAT)"), "line 2: the tag 'B-CAT' has the unknown type"),
        ("nw/x 0 0 word NN\n", "line 1: 5 columns where at least 12"),
        ("\n", "No sentence"),
    ],
)
def test_conll2012_refusals(tmp_path, content, words):
    with pytest.raises(DataError, match=words):
        read_conll2012([write(tmp_path, content)], types=["PER", "LOC"])
