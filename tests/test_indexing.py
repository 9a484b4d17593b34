"""The index reaches the batch, whatever the samples look like, and survives workers."""

import dataclasses
from collections import UserDict

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import activebias as ab


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    label: int


class Samples(torch.utils.data.Dataset):
    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return self.make(index)


def as_tuple(i):
    return torch.full((2,), float(i)), i % 3


def as_dict(i):
    return {"pixels": torch.full((2,), float(i)), "label": i % 3}


def as_tensor(i):
    return torch.full((2,), float(i))


def as_dataclass(i):
    return Sample(torch.full((2,), float(i)), i % 3)


def sum_of_images(samples):
    return sum(sample.image.sum() for sample in samples)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_tuples(num_workers):
    loader = DataLoader(ab.with_index(Samples(as_tuple)), batch_size=4, num_workers=num_workers)
    for index, (image, label) in loader:
        assert index.dtype == torch.int64
        assert torch.equal(image[:, 0], index.float())
        assert torch.equal(label, index % 3)


def test_dicts_get_a_column():
    for batch in DataLoader(ab.with_index(Samples(as_dict)), batch_size=4):
        assert batch["index"].dtype == torch.int64
        assert torch.equal(batch["pixels"][:, 0], batch["index"].float())


def test_single_tensors():
    for index, batch in DataLoader(ab.with_index(Samples(as_tensor)), batch_size=4):
        assert torch.equal(batch[:, 0], index.float())


@pytest.mark.parametrize("num_workers", [0, 2])
def test_dataclasses(num_workers):
    collate = ab.collate_with_index()
    loader = DataLoader(
        ab.with_index(Samples(as_dataclass)), batch_size=4, collate_fn=collate, num_workers=num_workers
    )
    for index, batch in loader:
        assert isinstance(batch, Sample)
        assert torch.equal(batch.image[:, 0], index.float())
        assert torch.equal(batch.label, index % 3)


def test_a_collation_of_ones_own():
    collate = ab.collate_with_index(sum_of_images)
    loader = DataLoader(ab.with_index(Samples(as_dataclass)), batch_size=4, collate_fn=collate)
    for index, total in loader:
        assert total == 2 * index.sum()
    loader = DataLoader(
        ab.with_index(Samples(as_dict)),
        batch_size=4,
        collate_fn=ab.collate_with_index(lambda s: {"n": len(s)}),
    )
    assert next(iter(loader)).keys() == {"n", "index"}


def test_a_batch_that_is_like_a_dict_keeps_its_type():
    """As Hugging Face's BatchEncoding, which also moves itself to a device."""
    collate = ab.collate_with_index(lambda samples: UserDict(n=len(samples)))
    batch = collate([{"x": 1, "index": 4}, {"x": 2, "index": 7}])
    assert type(batch) is UserDict
    assert batch["n"] == 2
    assert batch["index"].tolist() == [4, 7]


def test_a_data_set_that_fetches_many_at_once_is_asked_once():
    class Batched(TensorDataset):
        calls = 0

        def __getitems__(self, indices):
            Batched.calls += 1
            return [self[i] for i in indices]

    loader = DataLoader(ab.with_index(Batched(torch.arange(20.0))), batch_size=5)
    for index, (value,) in loader:
        assert torch.equal(value, index.float())
    assert Batched.calls == 4


def test_repeated_instances_in_a_batch():
    loader = DataLoader(ab.with_index(Samples(as_tuple)), batch_size=4, sampler=[3, 3, 5, 3])
    index, (image, _) = next(iter(loader))
    assert index.tolist() == [3, 3, 5, 3]
    assert image[:, 0].tolist() == [3, 3, 5, 3]


def test_what_cannot_be_indexed_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(TypeError, match=r"map-style data set.*Stream"):
        ab.with_index(Stream())
    with pytest.raises(ValueError, match="already have a column 'index'"):
        ab.with_index([{"index": 3}])[0]
    with pytest.raises(TypeError, match="integer"):
        ab.with_index(["a", "b", "c"])[1.9]

    class StreamOfKnownLength(Stream):
        def __len__(self):
            return 3

    with pytest.raises(TypeError, match="map-style data set"):
        ab.with_index(StreamOfKnownLength())
    for index in (-1, 20):
        with pytest.raises(IndexError, match="the data set has 20"):
            ab.with_index(Samples(as_tuple))[index]


def test_words_of_ragged_sentences_have_indices_of_their_own():
    tokens = ab.TokenIndex([4, 1, 0, 7, 2])
    assert (tokens.num_instances, tokens.num_sequences) == (14, 5)
    everything = tokens(torch.arange(5))
    assert everything.shape == (5, 7)
    assert everything[everything >= 0].tolist() == list(range(14))
    assert tokens([1, 4], width=3).tolist() == [[4, -1, -1], [12, 13, -1]]
    with pytest.raises(ValueError, match="`lengths`"):
        ab.TokenIndex([])
    with pytest.raises(ValueError, match="`lengths`"):
        ab.TokenIndex([3, -1])
    with pytest.raises(TypeError, match="`lengths` to hold integers"):
        ab.TokenIndex([2.9, 1.2])
    for sentences in ([-1], [5]):
        with pytest.raises(ValueError, match=r"`sequence_index` to be from 0 to 4.*got \[(-1|5)\]"):
            tokens(sentences)
    assert tokens(torch.tensor([4, 1], dtype=torch.uint8)).tolist() == [[12, 13], [4, -1]]  # no mask


def test_dataclasses_whose_constructor_does_not_take_every_field():
    @dataclasses.dataclass(frozen=True)
    class Sample:
        x: int
        double: int = dataclasses.field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "double", 2 * self.x)

    index, batch = ab.collate_with_index()([(4, Sample(1)), (7, Sample(2))])
    assert index.tolist() == [4, 7]
    assert (batch.x.tolist(), batch.double.tolist()) == ([1, 2], [2, 4])  # made by the batch's constructor


def test_a_stream_that_can_be_indexed_is_one_of_map_style():
    class Both(IterableDataset):
        def __iter__(self):
            return iter("abc")

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return "abc"[index]

    assert ab.with_index(Both())[2] == (2, "c")
    bias = ab.ActiveBias("scan", num_instances=3, num_classes=2)
    bias.set_epoch(0)
    ((index, samples),) = bias.loader(Both(), 3)
    assert sorted(zip(index.tolist(), samples, strict=True)) == [(0, "a"), (1, "b"), (2, "c")]


def test_an_empty_index_may_be_of_any_type():
    bias = ab.ActiveBias("wpv", num_instances=3, num_classes=2)
    bias.set_epoch(0)
    for empty in ([], torch.tensor([]), torch.empty(0, dtype=torch.int64)):
        assert bias.weight(empty).shape == (0,)
    with pytest.raises(TypeError, match=r"`index` to hold integers.*float32\. An index that has been"):
        bias.weight(torch.tensor([1.0]))


def test_words_are_numbered_whatever_the_side_of_the_padding():
    tokens = ab.TokenIndex([2, 1])
    right = tokens.of_labels([0, 1], torch.tensor([[5, -100, 6, -100], [7, -100, -100, -100]]))
    left = tokens.of_labels([0, 1], torch.tensor([[-100, 5, -100, 6], [-100, -100, -100, 7]]))
    assert right.tolist() == [[0, -1, 1, -1], [2, -1, -1, -1]]
    assert left.tolist() == [[-1, 0, -1, 1], [-1, -1, -1, 2]]


def test_words_by_their_position_under_masking_truncation_and_padding():
    tokens = ab.TokenIndex([4, 3], by_position=True)
    masked = tokens.of_labels([0, 1], torch.tensor([[-100, 5, -100, 6], [7, -100, -100, -100]]))
    assert masked.tolist() == [[-1, 1, -1, 3], [4, -1, -1, -1]]
    truncated = tokens.of_labels([1, 0], torch.tensor([[-100, 5], [6, 7]]))
    assert truncated.tolist() == [[-1, 5], [0, 1]]
    left = torch.tensor([[0, 1, 1, 1]])
    assert tokens.of_labels([1], torch.tensor([[-100, 5, -100, 6]]), attention_mask=left).tolist() == [
        [-1, 4, -1, 6]
    ]


def test_labels_that_do_not_fit_their_sequence_are_refused():
    with pytest.raises(ValueError, match=r"Sequence 1 came with 2 labels, but its length is 3"):
        ab.TokenIndex([2, 3]).of_labels([0, 1], torch.tensor([[1, 2, -100], [1, 2, -100]]))
    with pytest.raises(ValueError, match=r"Sequence 0 has a label at its position 3, but it has 2 positions"):
        ab.TokenIndex([2, 3], by_position=True).of_labels([0], torch.tensor([[1, 2, 3]]))
    left, words = torch.tensor([[-100, 1, 2]]), ab.TokenIndex([2, 3], by_position=True)
    with pytest.raises(ValueError, match="padding is on the left, pass `attention_mask`"):
        words.of_labels([0], left)
    assert words.of_labels([0], left, attention_mask=left > 0).tolist() == [[-1, 0, 1]]
    with pytest.raises(ValueError, match=r"Expected `labels` of shape \(2, words\)"):
        ab.TokenIndex([2, 3]).of_labels([0, 1], torch.tensor([[1, 2, 1, 2, 3]]))


class Columns:
    """A data set with named columns, as Hugging Face's has them."""

    column_names = ("labels", "input_ids")

    def __getitem__(self, name):
        return {"labels": [[-100, 5, 6], [7]], "input_ids": [[4, 5, 6], [7]]}[name]


ROWS = [{"labels": torch.tensor([-100, 5, 6]), "input_ids": [4, 5, 6]}, {"labels": [7], "input_ids": [7]}]


@pytest.mark.parametrize("dataset", [Columns(), ROWS])
def test_a_numbering_from_a_data_set(dataset):
    lengths = {
        "labels": ab.TokenIndex.from_dataset(dataset).lengths,
        "causal": ab.TokenIndex.from_dataset(dataset, shift=True).lengths,
        "inputs": ab.TokenIndex.from_dataset(dataset, "input_ids").lengths,
        "positions": ab.TokenIndex.from_dataset(dataset, by_position=True).lengths,
    }
    assert {name: value.tolist() for name, value in lengths.items()} == {
        "labels": [2, 1],
        "causal": [2, 0],
        "inputs": [3, 1],
        "positions": [3, 1],
    }
    with pytest.raises(ValueError, match=r"got 'tags', and it has 'labels', 'input_ids': pass `column=…`"):
        ab.TokenIndex.from_dataset(dataset, "tags")
