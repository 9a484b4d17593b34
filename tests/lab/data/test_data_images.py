"""MNIST and its like, and digits."""

import gzip
import shutil
import struct

import numpy as np
import pytest
import torch

from activebias.lab.data import DataError, load
from activebias.lab.data.images import read_idx

IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx_set(folder, packed):
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (5, 4, 3), dtype=np.uint8)
    labels = np.array([3, 1, 4, 1, 9], np.uint8)
    for name, array in zip(IDX_NAMES, (images, labels, images[:2], labels[:2]), strict=True):
        raw = idx(array)
        (folder / (f"{name}.gz" if packed else name)).write_bytes(
            gzip.compress(raw, mtime=0) if packed else raw
        )
    return images


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("packed", [True, False])
def test_idx_sets(tmp_path, name, packed):
    images = write_idx_set(tmp_path / name, packed)
    dataset = load(name, tmp_path, verify=not packed)
    assert dataset.train.inputs[0].shape == (5, 1, 4, 3)
    assert dataset.train.inputs[0].dtype == torch.uint8
    assert np.array_equal(dataset.train.inputs[0][:, 0].numpy(), images)
    assert dataset.train.targets.tolist() == [3, 1, 4, 1, 9]
    assert len(dataset.test) == 2
    assert dataset.class_names[9] == ("9" if name == "mnist" else "Ankle boot")


def test_files_that_are_not_the_official_ones_are_refused(tmp_path):
    write_idx_set(tmp_path / "mnist", packed=True)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz has the wrong MD5 checksum: delete it"):
        load("mnist", tmp_path)


def test_the_official_images_packed_by_another_gzip(tmp_path, real_data):
    source = real_data("mnist")
    (tmp_path / "mnist").mkdir()
    for path in source.glob("*.gz"):
        shutil.copy(path, tmp_path / "mnist")
    labels = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    content = gzip.decompress(labels.read_bytes())
    labels.write_bytes(gzip.compress(content, 1, mtime=5))
    assert len(load("mnist", tmp_path).test) == 10_000
    for other in (gzip.compress(content[:-1] + b"\x01"), gzip.compress(content)[:-20]):
        labels.write_bytes(other)
        with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz has the wrong MD5"):
            load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x00\x00\x08\x03" + bytes(12), "offset 0: the first bytes are 00000803"),
        (b"\x00\x00\x08\x01\x00", "ends inside its header"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x09abc", "3 bytes follow where the header announces 9"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x01abc", "3 bytes follow where the header announces 1"),
        (b"", "offset 0"),
        (gzip.compress(idx(np.zeros(99, np.uint8)), mtime=0)[:-9], "truncated or damaged"),
        (b"\x1f\x8bnonsense", "truncated or damaged"),
    ],
)
def test_idx_refusals(tmp_path, raw, words):
    path = tmp_path / "labels"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=words) as caught:
        read_idx(path, 1)
    assert str(path) in str(caught.value)


def test_idx_label_out_of_range_and_counts_that_differ(tmp_path):
    write_idx_set(tmp_path / "mnist", packed=False)
    labels = tmp_path / "mnist" / IDX_NAMES[1]
    labels.write_bytes(idx(np.array([3, 1, 4, 1, 10], np.uint8)))
    with pytest.raises(DataError, match="offset 12: the label 10 is not in 0 to 9"):
        load("mnist", tmp_path)
    labels.write_bytes(idx(np.array([3, 1], np.uint8)))
    with pytest.raises(DataError, match="2 labels for the 5 images"):
        load("mnist", tmp_path)


def test_real_mnist(real_data):
    dataset = load("mnist", real_data("mnist").parent)
    assert dataset.train.inputs[0].shape == (60_000, 1, 28, 28)
    assert dataset.test.inputs[0].shape == (10_000, 1, 28, 28)
    assert torch.bincount(dataset.train.targets).tolist()[:3] == [5923, 6742, 5958]
    assert dataset.train.targets[:5].tolist() == [5, 0, 4, 1, 9]
    assert float(dataset.train.inputs[0].float().mean()) == pytest.approx(33.318, abs=0.001)


def test_digits_split_is_seeded():
    first, same, other = load("digits"), load("digits"), load("digits", split_seed=1)
    assert torch.equal(first.train.targets, same.train.targets)
    assert not torch.equal(first.train.targets, other.train.targets)
    assert int(first.train.inputs[0].max()) == 16
    assert torch.bincount(first.test.targets, minlength=10).min() > 30
    with pytest.raises(ValueError, match="`num_test` must lie in 1 to 1796"):
        load("digits", num_test=0)


# CIFAR


def test_import_is_cheap(fresh_python):
    code = "import sys, activebias.lab.data; print({'sklearn', 'rich', 'scipy'} & set(sys.modules))"
    assert fresh_python(code) == (0, "set()\n", "")
