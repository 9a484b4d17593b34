"""Named entities: CoNLL-2003, WNUT-17 and OntoNotes 5.0, tagged in BILOU.

CoNLL-2003 has 17 tags, WNUT-17 has 25. OntoNotes' 18 types give 73 tags; the paper counts 74, one more than
BILOU has.
"""

from pathlib import Path

import torch

from activebias.internal import IGNORED
from activebias.lab.data.conll import TaggedText, read_columns, read_conll2012
from activebias.lab.data.dataset import Dataset
from activebias.lab.data.sources import Found, require
from activebias.lab.data.tags import bilou_names
from activebias.lab.data.vectors import Vocabulary, vocabulary_for
from activebias.training.examples import Examples
from activebias.training.reading import DataError
from activebias.training.words import word_shape

CONLL2003_TYPES = ("LOC", "MISC", "ORG", "PER")
WNUT17_TYPES = ("corporation", "creative-work", "group", "location", "person", "product")
ONTONOTES_TYPES = (
    "CARDINAL",
    "DATE",
    "EVENT",
    "FAC",
    "GPE",
    "LANGUAGE",
    "LAW",
    "LOC",
    "MONEY",
    "NORP",
    "ORDINAL",
    "ORG",
    "PERCENT",
    "PERSON",
    "PRODUCT",
    "QUANTITY",
    "TIME",
    "WORK_OF_ART",
)
_PARTS = ("train", "development", "test")


def load_conll2003(
    root: str | Path | None = None,
    *,
    evaluate_on: str = "test",
    vectors: str | Path | None = "auto",
    dimensions: int | None = 50,
    lowercase: bool = True,
    verify: bool = True,
) -> Dataset:
    """Load CoNLL-2003 English: eng.train, evaluated on eng.testb ("test") or eng.testa ("development")."""
    found = require("conll2003", root, verify=verify)
    names = dict(zip(_PARTS, ("eng.train", "eng.testa", "eng.testb"), strict=True))
    texts = _read_parts(found, names, evaluate_on, CONLL2003_TYPES, "iob1", 4)
    return _dataset("conll2003", texts, CONLL2003_TYPES, vectors, dimensions, lowercase, root)


def load_wnut17(
    root: str | Path | None = None,
    *,
    evaluate_on: str = "test",
    vectors: str | Path | None = "auto",
    dimensions: int | None = 50,
    lowercase: bool = True,
    verify: bool = True,
) -> Dataset:
    """Load WNUT-17, which is free and can replace CoNLL-2003."""
    found = require("wnut17", root, verify=verify)
    names = dict(zip(_PARTS, (file.name for file in found.form.files), strict=True))
    texts = _read_parts(found, names, evaluate_on, WNUT17_TYPES, "bio", 2)
    return _dataset("wnut17", texts, WNUT17_TYPES, vectors, dimensions, lowercase, root)


def load_ontonotes5(
    root: str | Path | None = None,
    *,
    evaluate_on: str = "test",
    vectors: str | Path | None = "auto",
    dimensions: int | None = 50,
    lowercase: bool = True,
    verify: bool = True,
) -> Dataset:
    """Load OntoNotes 5.0 English from BIO column files, or from folders of CoNLL-2012's *gold_conll files.

    In the folders, files under ``pt`` (New Testament) are left out, because they have no entity annotation.
    """
    found = require("ontonotes5", root, verify=verify)
    if found.path("train").is_dir():
        _check_part(evaluate_on)
        texts = (_read_folder(found.path("train")), _read_folder(found.path(evaluate_on)))
    else:
        names = {part: f"onto.{part}.ner" for part in _PARTS}
        texts = _read_parts(found, names, evaluate_on, ONTONOTES_TYPES, "bio", None)
    return _dataset("ontonotes5", texts, ONTONOTES_TYPES, vectors, dimensions, lowercase, root)


def _check_part(evaluate_on: str) -> None:
    if evaluate_on not in _PARTS[1:]:
        raise DataError(f"Expected `evaluate_on` to be test or development, but got {evaluate_on!r}.")


def _read_parts(
    found: Found,
    names: dict[str, str],
    evaluate_on: str,
    types: tuple[str, ...],
    scheme: str,
    num_columns: int | None,
) -> tuple[TaggedText, TaggedText]:
    _check_part(evaluate_on)
    train = read_columns(found.path(names["train"]), types=types, scheme=scheme, num_columns=num_columns)
    return train, read_columns(
        found.path(names[evaluate_on]), types=types, scheme=scheme, num_columns=num_columns
    )


def _read_folder(folder: Path) -> TaggedText:
    # Sorted, because the position identifies an instance, and folders list files in any order.
    paths = sorted(path for path in folder.rglob("*gold_conll") if "pt" not in path.relative_to(folder).parts)
    if not paths:
        raise DataError(f"{folder} holds no *gold_conll file: put the English CoNLL-2012 files there.")
    return read_conll2012(paths, types=ONTONOTES_TYPES)


def _dataset(
    name: str,
    texts: tuple[TaggedText, TaggedText],
    types: tuple[str, ...],
    vectors: str | Path | None,
    dimensions: int | None,
    lowercase: bool,
    root: str | Path | None,
) -> Dataset:
    train, test = texts
    vocabulary, matrix, notes = vocabulary_for(
        (word for words, _ in train.sentences for word in words),
        (word for words, _ in test.sentences for word in words),
        vectors=vectors,
        dimensions=dimensions,
        lowercase=lowercase,
        root=root,
        stands_in_for="Collobert's vectors, 50 dimensions",
    )
    tag_names = bilou_names(types)
    return Dataset(
        name,
        _examples(train, vocabulary, tag_names),
        _examples(test, vocabulary, tag_names),
        len(tag_names),
        tag_names,
        embedding=matrix,
        vocabulary=vocabulary.words,
        notes=notes,
    )


def _examples(text: TaggedText, vocabulary: Vocabulary, tag_names: tuple[str, ...]) -> Examples:
    tag_ids = {tag: k for k, tag in enumerate(tag_names)}
    lengths = torch.tensor([len(words) for words, _ in text.sentences])
    size = (len(lengths), int(lengths.max()))
    inside = torch.arange(size[1]) < lengths.unsqueeze(1)
    word_ids, shape_ids = torch.zeros(size, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)
    targets = torch.full(size, IGNORED, dtype=torch.int64)
    # One flat list for all sentences, written into the rows by the mask: faster than a tensor per sentence.
    flat = [word for words, _ in text.sentences for word in words]
    word_ids[inside] = torch.tensor(vocabulary.ids(flat))
    shape_ids[inside] = torch.tensor([word_shape(word) for word in flat])
    targets[inside] = torch.tensor([tag_ids[tag] for _, tags in text.sentences for tag in tags])
    return Examples((word_ids, shape_ids), targets, lengths)
