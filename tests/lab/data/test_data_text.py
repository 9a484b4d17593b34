"""Word vectors, questions and tagged sentences."""

import gzip

import numpy as np
import pytest
import torch

from activebias.lab.data import DataError, load, read_vectors, reduce_dimensions, with_noise
from activebias.lab.data.conll import read_columns
from activebias.lab.data.tagging import CONLL2003_TYPES, ONTONOTES_TYPES, WNUT17_TYPES
from activebias.lab.data.trec import read_questions
from activebias.training.words import SHAPE_NAMES

VECTORS = "the 1 0 0\nwhere 0 1 0\nis 0 0 1\nparis 1 1 0\nada 0 1 1\n? 0.5 0.5 0.5\n"


def write(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


# Word vectors


@pytest.mark.parametrize("packed", [True, False])
def test_vectors_plain_and_packed(tmp_path, packed):
    raw = VECTORS.encode()
    path = tmp_path / "vectors.txt"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    vocabulary, matrix = read_vectors(path, ["Paris", "where", "unicorn"])
    assert vocabulary.words == ("<padding>", "<unknown>", "where", "paris")
    assert matrix.dtype == torch.float32
    assert matrix.tolist() == [[0, 0, 0], [0.5, 1, 0], [0, 1, 0], [1, 1, 0]]
    assert vocabulary.ids(["PARIS", "unicorn", "Where", "<padding>"]) == [3, 1, 2, 1]


def test_cased_vectors(tmp_path):
    path = write(tmp_path / "vectors.txt", "Paris 1 0\nparis 0 1\nthe 1 1\n")
    vocabulary, _ = read_vectors(path, ["Paris", "paris", "The"], lowercase=False)
    assert [vocabulary.words[k] for k in vocabulary.ids(["Paris", "paris", "The", "PARIS"])] == [
        "Paris",
        "paris",
        "the",
        "paris",
    ]


def test_vectors_with_header_spaces_in_words_and_repeats(tmp_path):
    path = write(tmp_path / "vectors.txt", "4 2\nthe 1 2\n. . . 3 4\nthe 5 6\n\ncat 7 8 \n")
    vocabulary, matrix = read_vectors(path, ["the", "cat"])
    assert vocabulary.words[2:] == ("the", "cat")
    assert matrix[2:].tolist() == [[1, 2], [7, 8]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the 1 2\ncat 3\n", "line 2: 2 columns where a word and 2 numbers"),
        ("the 1 x\n", "line 1: could not convert string to float"),
        ("the\n", "line 1: 1 columns"),
        ("the 1 nan\n", "vector of 'the' holds a number that is not finite"),
        ("dog 1 2\n", "no vector for any word of the data"),
        ("", "no vector for any word"),
    ],
)
def test_vector_refusals(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read_vectors(write(tmp_path / "vectors.txt", text), ["the", "cat"])


def test_vector_file_missing_or_too_narrow(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_vectors(tmp_path / "none.txt", ["the"])
    with pytest.raises(DataError, match="3 dimensions, fewer than the 50 asked for"):
        read_vectors(write(tmp_path / "vectors.txt", VECTORS), ["the"], dimensions=50)


def test_reduction_keeps_the_most_variance():
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(200, 8, generator=generator, dtype=torch.float64) * torch.arange(1.0, 9.0) + 3
    reduced = reduce_dimensions(data, 3)
    centred = (data - data.mean(0)).numpy()
    expected = np.linalg.svd(centred, compute_uv=False)[:3]
    assert torch.allclose(reduced.norm(dim=0), torch.from_numpy(expected))
    assert torch.allclose(reduced.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-9)
    assert torch.equal(reduced, reduce_dimensions(data, 3))
    # All dimensions: only a rotation, so distances stay.
    assert torch.allclose(torch.pdist(reduce_dimensions(data, 8)), torch.pdist(data))
    with pytest.raises(ValueError, match="`dimensions` must lie in 1 to 8"):
        reduce_dimensions(data, 9)


def test_read_vectors_reduces(tmp_path):
    path = write(tmp_path / "vectors.txt", VECTORS)
    _, matrix = read_vectors(path, ["the", "where", "is", "paris"], dimensions=2)
    assert matrix.shape == (6, 2)
    # The unknown word is the mean, and that is zero after centring.
    assert torch.allclose(matrix[:2], torch.zeros(2, 2), atol=1e-6)


def test_real_vectors(real_data):
    path = real_data("embeddings") / "glove.6B.50d.subset.txt.gz"
    vocabulary, matrix = read_vectors(path, ["The", "of", "Paris", "qqqqqqqq"])
    assert vocabulary.words[2:] == ("the", "of", "paris")
    assert matrix.shape == (5, 50)
    assert matrix[2, 0].item() == pytest.approx(0.4180)


# Questions


def trec_files(root, train="LOC:city Where is Paris ?\nHUM:ind Who is Ada ?\n", test="NUM:date When ?\n"):
    write(root / "trec" / "train_5500.label", train, "latin-1")
    write(root / "trec" / "TREC_10.label", test, "latin-1")
    write(root / "embeddings" / "glove.6B.50d.txt", VECTORS)


def test_questions_become_padded_ids(tmp_path):
    trec_files(tmp_path)
    dataset = load("trec", tmp_path, dimensions=None, verify=False)
    words = [[dataset.vocabulary[k] for k in row] for row in dataset.train.inputs[0]]
    assert words == [["where", "is", "paris", "?"], ["<unknown>", "is", "ada", "?"]]
    assert dataset.test.inputs[0].tolist()[0][2:] == [0, 0]
    assert dataset.train.targets.tolist() == [4, 3]
    assert dataset.test.lengths.tolist() == [2]
    assert dataset.embedding.shape == (len(dataset.vocabulary), 3)
    assert "glove.6B.50d.txt, 3 dimensions; the paper used word2vec" in dataset.notes[0]


def test_questions_without_vectors_know_training_words_only(tmp_path):
    trec_files(tmp_path, test="NUM:date Where when ?\n")
    dataset = load("trec", tmp_path, vectors=None, verify=False)
    assert dataset.embedding is None
    assert dataset.vocabulary[2:4] == ("?", "is")
    assert [dataset.vocabulary[k] for k in dataset.test.inputs[0][0, :3]] == ["where", "<unknown>", "?"]


def test_small_training_set_is_the_head_of_the_large_one(tmp_path):
    trec_files(tmp_path, train="".join(f"LOC:city Where is number{k} ?\n" for k in range(1200)))
    options = {"dimensions": None, "verify": False}
    assert len(load("trec", tmp_path, **options).train) == 1000
    assert len(load("trec", tmp_path, train_size=5500, **options).train) == 1200
    (tmp_path / "trec" / "train_5500.label").rename(tmp_path / "trec" / "train_1000.label")
    assert len(load("trec", tmp_path, **options).train) == 1200
    with pytest.raises(DataError, match=r"train_5500.label is missing"):
        load("trec", tmp_path, train_size=5500, **options)
    with pytest.raises(DataError, match="Expected `train_size` to be 1000 or 5500"):
        load("trec", tmp_path, train_size=7, **options)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("LOC Where ?", "line 2: expected `COARSE:fine question`"),
        ("LOC: Where ?", "line 2: expected"),
        ("LOC:city", "line 2: expected"),
        ("loc:city Where ?", "line 2: the class 'loc' is not one of ABBR, DESC"),
    ],
)
def test_question_refusals(tmp_path, line, words):
    path = write(tmp_path / "train.label", f"LOC:city Where ?\n{line}\n")
    with pytest.raises(DataError, match=words) as caught:
        read_questions(path)
    assert str(path) in str(caught.value)


def test_no_questions(tmp_path):
    with pytest.raises(DataError, match="holds no question"):
        read_questions(write(tmp_path / "train.label", "\n"))


def test_missing_vectors_are_named(tmp_path):
    trec_files(tmp_path)
    (tmp_path / "embeddings" / "glove.6B.50d.txt").unlink()
    with pytest.raises(
        DataError, match=r"embeddings is missing: run `activebias data get embeddings`, or put glove"
    ):
        load("trec", tmp_path, verify=False)


def test_real_trec(real_data):
    root = real_data("trec").parent
    real_data("embeddings")
    dataset = load("trec", root)
    assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (1000, 500, 6)
    assert dataset.embedding.shape[1] == 50
    assert torch.bincount(dataset.test.targets).tolist() == [9, 138, 94, 65, 81, 113]
    large = load("trec", root, train_size=5500, vectors=None)
    assert torch.bincount(large.train.targets).tolist() == [86, 1162, 1250, 1223, 835, 896]
    assert torch.equal(large.train.targets[:1000], dataset.train.targets)
    # One question holds a latin-1 letter that is no UTF-8.
    assert any("ð" in word for word in large.vocabulary)


# Tagged sentences

ONTO = "Ada NN x B-PERSON\nLovelace NN x I-PERSON\nis VB x O\n\nParis NN x B-GPE\n"


def test_ontonotes_columns(tmp_path):
    for part in ("train", "development", "test"):
        write(tmp_path / "ontonotes5" / f"onto.{part}.ner", ONTO.replace(" ", "\t"))
    write(tmp_path / "embeddings" / "glove.6B.50d.txt", VECTORS)
    dataset = load("ontonotes5", tmp_path, dimensions=None)
    assert dataset.num_classes == 4 * 18 + 1 == len(ONTONOTES_TYPES) * 4 + 1
    words, shapes = dataset.train.inputs
    assert words.shape == shapes.shape == dataset.train.targets.shape == (2, 3)
    assert [dataset.vocabulary[k] for k in words[0]] == ["ada", "<unknown>", "is"]
    assert [SHAPE_NAMES[k] for k in shapes[1]] == ["capitalised", "padding", "padding"]
    names = [[dataset.class_names[k] for k in row if k != -100] for row in dataset.train.targets]
    assert names == [["B-PERSON", "L-PERSON", "O"], ["U-GPE"]]
    assert dataset.train.targets[1, 1:].tolist() == [-100, -100]
    assert dataset.train.lengths.tolist() == [3, 1]
    noisy = with_noise(dataset, "uniform_other", fraction=1.0)
    assert int((noisy.train.targets != noisy.clean_targets).sum()) == 4


def test_ontonotes_folders(tmp_path):
    rows = [("Ada", "(PERSON*"), ("Lovelace", "*)"), ("is", "*")]
    text = "".join(f"nw/x 0 {k} {word} NN * - - - - {mark} -\n" for k, (word, mark) in enumerate(rows))
    for part in ("train", "development", "test"):
        write(tmp_path / "ontonotes5" / part / "nw" / "b.v4_gold_conll", text)
        write(tmp_path / "ontonotes5" / part / "nw" / "a.v4_gold_conll", text + "\n" + text)
        write(tmp_path / "ontonotes5" / part / "pt" / "c.v4_gold_conll", text)
    dataset = load("ontonotes5", tmp_path, vectors=None, evaluate_on="development")
    assert (len(dataset.train), len(dataset.test)) == (3, 3)
    assert [dataset.class_names[k] for k in dataset.train.targets[0]] == ["B-PERSON", "L-PERSON", "O"]
    for path in (tmp_path / "ontonotes5" / "train").rglob("*gold_conll"):
        path.unlink()
    with pytest.raises(DataError, match="holds no \\*gold_conll file"):
        load("ontonotes5", tmp_path, vectors=None)


def test_licensed_data_says_what_to_put_where(tmp_path):
    for name, words in (("conll2003", "eng.train, eng.testa and eng.testb"), ("ontonotes5", "LDC2013T19")):
        with pytest.raises(DataError, match=rf"{name} is missing: .*licensed.*{words}.* into .*{name}"):
            load(name, tmp_path)


def test_conll2003_made_up(tmp_path):
    train = (
        "-DOCSTART- -X- O O\n\nAda NN I-NP I-PER\nis VB I-VP O\n\nParis NN I-NP I-LOC\nRome NN I-NP B-LOC\n"
    )
    for name in ("eng.train", "eng.testa", "eng.testb"):
        write(tmp_path / "conll2003" / name, train)
    dataset = load("conll2003", tmp_path, vectors=None)
    names = [[dataset.class_names[k] for k in row] for row in dataset.train.targets]
    assert names == [["U-PER", "O"], ["U-LOC", "U-LOC"]]
    with pytest.raises(DataError, match="Expected `evaluate_on` to be test or development"):
        load("conll2003", tmp_path, vectors=None, evaluate_on="train")
    write(tmp_path / "conll2003" / "eng.testb", "Ada NN O\n")
    with pytest.raises(DataError, match=r"eng.testb, line 1: 3 columns where 4 are expected"):
        load("conll2003", tmp_path, vectors=None)


@pytest.mark.parametrize(
    ("name", "tokens", "sentences", "documents"),
    [
        ("eng.train", 204_567, 14_041, 946),
        ("eng.testa", 51_578, 3_250, 216),
        ("eng.testb", 46_666, 3_453, 231),
    ],
)
def test_real_conll2003_counts(real_data, name, tokens, sentences, documents):
    text = read_columns(real_data("conll2003") / name, types=CONLL2003_TYPES, scheme="iob1", num_columns=4)
    assert (len(text.sentences), text.num_documents) == (sentences, documents)
    assert text.num_tokens + text.num_documents == tokens


def test_real_conll2003(real_data):
    real_data("embeddings")
    dataset = load("conll2003", real_data("conll2003").parent, evaluate_on="development")
    assert dataset.num_classes == 17
    starts = [k for k, name in enumerate(dataset.class_names) if name[0] in "BU"]
    # The published number of entities in the development part.
    assert int(torch.isin(dataset.test.targets, torch.tensor(starts)).sum()) == 5942
    known = (dataset.train.inputs[0] > 1).sum() / dataset.train.lengths.sum()
    assert float(known) > 0.97


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("wnut17train.conll", 62_730), ("emerging.dev.conll", 15_733), ("emerging.test.annotated", 23_394)],
)
def test_real_wnut17_counts(real_data, name, tokens):
    text = read_columns(real_data("wnut17") / name, types=WNUT17_TYPES, scheme="bio", num_columns=2)
    assert text.num_tokens == tokens


def test_real_wnut17(real_data):
    dataset = load("wnut17", real_data("wnut17").parent, vectors=None)
    assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (3394, 1287, 25)
    starts = [k for k, name in enumerate(dataset.class_names) if name[0] in "BU"]
    assert int(torch.isin(dataset.test.targets, torch.tensor(starts)).sum()) == 1079
