"""Tagged text: CoNLL files, real and made up."""

import pytest
import torch

pytest.importorskip("pandas")
pytest.importorskip("PIL")

from activebias.internal import IGNORED
from activebias.own.tagged import read_tagged
from own_data import PLACES, made_up


@pytest.fixture
def path(tmp_path):
    (tmp_path / "tweets.conll").write_text(made_up())
    return tmp_path / "tweets.conll"


def read(path, **options):
    return read_tagged(path, **{"validation": 0.2, "seed": 0} | options)


def test_words_tags_and_positions(path):
    data = read(path)
    assert data.kind == "tagging"
    assert data.class_names == ("B-location", "B-person", "I-person", "O")
    assert (len(data.train), len(data.validation)) == (48, 12)
    counted = data.train.targets != IGNORED
    words = data.inputs.rows["word"][: data.tokens.num_instances]  # then come those of the validation part
    assert data.tokens.num_instances == int(counted.sum())
    assert len(data.inputs) == len(words) + int((data.validation.targets != IGNORED).sum())
    tags = [data.class_names[tag] for tag in data.train.targets[counted]]
    for word, tag in zip(words, tags, strict=True):
        assert (tag == "B-location") == (word in PLACES)
    tokens = data.train.inputs[0][counted]
    seldom = torch.tensor([word.startswith("@") for word in words])
    assert (tokens[seldom, 0] == 1).all()  # a word that comes once is unknown
    assert (tokens[~seldom, 0] > 1).all()
    assert (data.train.inputs[0][~counted] == 0).all()


def test_other_columns_blanks_and_document_marks(path, tmp_path):
    text = path.read_text().replace("\t", " NN -X- ")
    start = "\ufeff-DOCSTART- -X- -X- O\n\n# a comment\n"  # with a byte order mark
    (tmp_path / "four.conll").write_text(start + text.replace("\n", "\r\n"), encoding="utf-8")
    expected, data = read(path), read(tmp_path / "four.conll")
    assert data.inputs.rows.equals(expected.inputs.rows)
    assert torch.equal(data.train.targets, expected.train.targets)


def test_a_hash_with_a_tag_is_a_word(path, tmp_path):
    for separator, comments in (("\t", "# id 3\n# new\n"), (" ", "# text = # 1\n")):
        text = path.read_text().replace("saw\t", "#\t").replace("\t", separator)
        (tmp_path / "hash.conll").write_text(comments + text)
        data = read(tmp_path / "hash.conll", validation=path)
        words = data.inputs.rows["word"].tolist()
        assert words.count("#") == 60
        assert len(words) == len(read(path, validation=path).inputs.rows)
        assert not data.skipped


def test_tags_that_differ_in_case_are_named(path):
    path.write_text(path.read_text().replace("B-location", "b-location", 5))
    assert any("'B-location' (55) and 'b-location' (5). They stay" in note for note in read(path).notes)


def test_lines_without_a_tag_are_listed(path):
    path.write_text("".join(letter for letter in path.read_text() if not letter.isdigit()))
    data = read(path)
    assert data.notes[0].startswith("Duplicate sentences: 42")

    def sentences(part):
        return {tuple(row[row != 0].tolist()) for row in part.inputs[0][:, :, 0]}

    assert not sentences(data.train) & sentences(data.validation)


def test_a_file_of_its_own_to_validate(path, tmp_path):
    other = tmp_path / "dev.conll"
    other.write_text(made_up(7))
    data = read(path, validation=other)
    assert (len(data.train), len(data.validation)) == (60, 7)
    other.write_text("Ada\tB-robot\n")
    with pytest.raises(ValueError, match=r"dev\.conll has tags that .* does not have: B-robot"):
        read(path, validation=other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no sentence: each line must be a word and its tag"),
        ("only\nwords\n", "holds no sentence"),
        ("a O\nb O\n\nc O\n", "at least two classes to learn from, but has only 'O'"),
        ("a B-x\nb O\n", "at least 4 different sentences .* but got 1: put a blank line after every"),
        ("1 a B-x\n2 b O\n\n1 c O\n\n" * 9, "to be the words, but got their numbers: put the word first"),
    ],
)
def test_what_is_refused(tmp_path, text, message):
    (tmp_path / "bad.conll").write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "bad.conll")
    with pytest.raises(ValueError, match="There is no file"):
        read(tmp_path / "nowhere.conll")


def test_wnut17(real_data):
    folder = real_data("wnut17")
    data = read(folder / "wnut17train.conll", validation=folder / "emerging.dev.conll")
    assert len(data.class_names) == 13
    assert (len(data.train), data.tokens.num_instances) == (3394, 62730)
    assert data.skipped == ()


def test_a_sentence_with_many_copies_trains(path):
    """Its copies stay together: in the validation part they alone would decide the error."""
    copied = "Nothing\tO\nhappened\tO\n\n"
    others = "".join(f"word{k}\tO\n\n" for k in range(20))
    path.write_text(made_up(100) + "\n" + others + copied * 60)
    for seed in range(8):
        assert len(read(path, seed=seed).validation) == 24  # a fifth of the other 120 sentences
