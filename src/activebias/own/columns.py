"""Columns of a table: number, category, text or unusable; and their conversion into tensors."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from activebias.own.written_dates import find_dates, unclear_date
from activebias.own.written_numbers import decimal_commas, find_writing

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Role = Literal["number", "category", "text", "nothing"]

# A column of words with at most this many different values is a category, not text.
MOST_CATEGORIES = 50
# A column with at least this share of numbers is a column of numbers; its words are mistakes.
MOSTLY = 0.9
# Growing numbers count the rows if at least this share of their steps is exactly one.
MOSTLY_ONES = 0.8
# Squares of larger numbers overflow. No measurement is so large: such a number is a code.
LARGEST = 1e150
NUM_HASHES = 2**14
MOST_WORDS = 512


@final
@dataclass(frozen=True)
class Column:
    """A column of the table: its values, its role, and a note for the user ("" if there is none)."""

    name: str
    role: Role
    values: Any
    note: str = ""


def read_column(series: "Series") -> Column:
    """Find the role of a column. Numbers become float64, missing values NaN.

    >>> import pandas as pd
    >>> read_column(pd.Series(["1", "2", "x"] * 4, name="size")).note
    "Column 'size' mixes numbers (67 %) and words such as 'x': it is used as words."
    """
    import pandas as pd

    name = str(series.name)
    kind = pd.api.types
    if kind.is_datetime64_any_dtype(series) or kind.is_timedelta64_dtype(series):
        seconds = (series - series.min()) / pd.Timedelta(seconds=1)
        return _number(name, seconds.astype("float64"), "")
    if kind.is_complex_dtype(series):
        return Column(name, "nothing", series, f"Column {name!r} holds complex numbers: it is not used.")
    if kind.is_numeric_dtype(series) or kind.is_bool_dtype(series):
        return _number(name, series.astype("float64"), "")
    present = series[series.notna()]
    if any(not isinstance(value, str) for value in present.head(100)):
        if any(isinstance(value, (list, dict, tuple, np.ndarray)) for value in present.head(100)):
            return Column(name, "nothing", series, f"Column {name!r} holds lists: it is not used.")
        series = series.map(str, na_action="ignore")
        present = series[series.notna()]
    if (seconds := find_dates(series)) is not None:
        return _number(name, seconds, _note_dates(name, present, seconds))
    if (numbers := decimal_commas(series)) is not None:
        example = present[present.str.contains(",", regex=False)].iloc[0]
        note = f"Column {name!r} holds numbers with a decimal comma such as {example!r}"
        return _number(name, numbers, f"{note}: it is used as a number.")
    parsed = pd.to_numeric(series, errors="coerce")
    words = present[parsed[present.index].isna()]
    if len(present) and len(present) - len(words) >= MOSTLY * len(present):
        return _number(name, parsed.astype("float64"), _note_words_missing(name, present, words))
    return _words(name, series, words)


def _note_dates(name: str, present: "Series", seconds: "Series") -> str:
    no_dates = present[seconds[present.index].isna()]
    missing = "" if no_dates.empty else f" Cells such as {no_dates.iloc[0]!r} count as missing."
    return f"Column {name!r} holds dates: it is used as a number, the time since the earliest.{missing}"


def _note_words_missing(name: str, present: "Series", words: "Series") -> str:
    """Return the note on a column of numbers that also has `words`."""
    if not len(words):
        return ""
    writing = find_writing(words)
    hint = "" if writing is None else f" They look like numbers with {writing.what}: {writing.fix}."
    return f"{_mixture(name, present, words)}: the words count as missing.{hint}"


def _note_words_used(name: str, present: "Series", words: "Series", used_as: str) -> str:
    """Return the note on a column of words; all its values but `words` are numbers."""
    writing = find_writing(words)
    if writing is not None:
        return (
            f"Column {name!r} looks like numbers with {writing.what} such as {writing.example!r}; it is "
            f"{used_as}: {writing.fix}."
        )
    if (date := unclear_date(present)) is not None:
        return (
            f"Column {name!r} looks like dates such as {date!r}, whose order of day and month is not "
            f"certain; it is {used_as}: write dates as 2024-12-31."
        )
    return "" if len(words) == len(present) else f"{_mixture(name, present, words)}: it is used as words."


def _mixture(name: str, present: "Series", words: "Series") -> str:
    share = 100 * (len(present) - len(words)) / len(present)
    return f"Column {name!r} mixes numbers ({share:.0f} %) and words such as {words.iloc[0]!r}"


def _number(name: str, values: "Series", note: str) -> Column:
    values = values.replace([np.inf, -np.inf], np.nan)
    too_large = values[values.abs() > LARGEST]
    if len(too_large):
        note = (
            f"{note} Column {name!r} has values beyond {LARGEST:g} such as {too_large.iloc[0]:g} "
            f"({len(too_large)} in total): they count as missing."
        ).lstrip()
        values = values.mask(values.abs() > LARGEST)
    present = values.dropna()
    if present.nunique() == 0:
        note = f"{note} Column {name!r} has no values: it is not used.".lstrip()
        return Column(name, "nothing", values, note)
    if present.nunique() == 1 and len(present) == len(values):
        return Column(name, "nothing", values, f"Column {name!r} has only one value: it is not used.")
    if len(present) == len(values) > 2 and _counts(values.to_numpy()):
        return Column(name, "nothing", values, f"Column {name!r} only counts the rows: it is not used.")
    return Column(name, "number", values, note)


def _counts(values: NDArray[np.float64]) -> bool:
    """Return whether numbers count rows: they grow by one, with gaps if rows were removed.

    >>> _counts(np.array([1.0, 2, 3, 4])), _counts(np.array([1.0, 2, 3, 5, 6, 7, 8, 9, 10, 11]))
    (True, True)
    >>> _counts(np.array([1.0, 2, 4, 8])), _counts(np.array([3.0, 1, 2]))
    (False, False)
    """
    steps = np.diff(values)
    # A count may have gaps. Sorted years or temperatures have equal values or uneven steps.
    return bool((steps >= 1).all() and (steps == 1).mean() >= MOSTLY_ONES)


def _words(name: str, series: "Series", words: "Series") -> Column:
    present = series.dropna()
    distinct, number = present.nunique(), len(series)
    if distinct <= 1:
        return Column(name, "nothing", series, f"Column {name!r} has only one value: it is not used.")
    as_categories = Column(
        name, "category", series, _note_words_used(name, present, words, "used as categories")
    )
    if distinct <= MOST_CATEGORIES and distinct <= number / 2:
        return as_categories
    if float(present.str.split().str.len().mean()) >= 2:
        return Column(name, "text", series, _note_words_used(name, present, words, "used as text"))
    if distinct > MOSTLY * number:
        identifier = f"Column {name!r} names every row (an identifier): it is not used."
        if find_writing(words) is not None or unclear_date(present) is not None:
            identifier = _note_words_used(name, present, words, "not used, as an identifier")
        return Column(name, "nothing", series, identifier)
    return as_categories


def features(frame: "DataFrame", columns: list[Column], train: NDArray[np.int64]) -> Tensor:
    """Return standardised numbers and one-hot categories as (N, F) float32.

    Medians, scales and categories come from the training rows. A missing number is replaced by the median
    and marked in an additional column. A missing category is a category of its own.
    """
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    parts: list[NDArray[Any]] = [np.zeros((len(frame), 0))]
    numbers = [column.values.to_numpy() for column in columns if column.role == "number"]
    if numbers:
        values = np.stack(numbers, axis=1)
        steps = make_pipeline(
            SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True), StandardScaler()
        )
        # One value like 1e30 must not dominate the other features.
        parts.append(np.clip(steps.fit(values[train]).transform(values), -10, 10))
    categories = [column.values for column in columns if column.role == "category"]
    if categories:
        words = np.stack([values.fillna("(missing)").to_numpy(dtype=object) for values in categories], axis=1)
        encoder = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, sparse_output=False
        )
        parts.append(_quietly(encoder.fit(words[train]).transform, words))
    return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def _quietly(transform: Any, words: NDArray[Any]) -> NDArray[Any]:
    """Transform without scikit-learn's warning about categories that only the validation part has."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found unknown categories")
        return np.asarray(transform(words))


def hashed_words(columns: list[Column]) -> tuple[Tensor, Tensor]:
    """Return the words of the text columns as hashes (N, L), padded with 0, and their shares of the text.

    At most 512 different words of a text are used.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = columns[0].values.fillna("")
    for column in columns[1:]:
        texts = texts + " " + column.values.fillna("")
    hasher = HashingVectorizer(n_features=NUM_HASHES, alternate_sign=False, norm="l1")
    rows = hasher.transform(texts.tolist())
    lengths = np.minimum(np.diff(rows.indptr), MOST_WORDS)
    inside = np.arange(max(int(lengths.max(initial=0)), 1)) < lengths[:, None]
    kept = np.concatenate(
        [np.arange(start, start + length) for start, length in zip(rows.indptr, lengths, strict=False)]
    ).astype(np.int64)
    words = np.zeros(inside.shape, dtype=np.int64)
    shares = np.zeros(inside.shape, dtype=np.float32)
    words[inside] = rows.indices[kept] + 1
    shares[inside] = rows.data[kept]
    return torch.from_numpy(words), torch.from_numpy(shares)
