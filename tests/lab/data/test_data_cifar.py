"""CIFAR in all forms, and CIFAR-N."""

import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
import torch

from activebias.lab.data import DataError, Dataset, Examples, load, with_noise
from activebias.lab.data.human_labels import read_human_labels, with_human_labels
from activebias.lab.data.pickles import read_array_pickle


def cifar_part(count, num_classes, seed):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 3072), dtype=np.uint8), random.integers(
        0, num_classes, count
    ).tolist()


def cifar10_parts():
    return [cifar_part(4, 10, seed) for seed in range(6)]


def binary_files():
    names = [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]
    return {
        name: np.concatenate([np.array(labels, np.uint8)[:, None], pixels], 1).tobytes()
        for name, (pixels, labels) in zip(names, cifar10_parts(), strict=True)
    }


def python_files(protocol=2):
    names = [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]
    return {
        name: pickle.dumps({b"data": pixels, b"labels": labels, b"batch_label": b"made up"}, protocol)
        for name, (pixels, labels) in zip(names, cifar10_parts(), strict=True)
    }


def write_files(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)


def pack(path, folder, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, raw in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))


def check_cifar10(dataset):
    parts = cifar10_parts()
    assert dataset.train.inputs[0].shape == (20, 3, 32, 32)
    assert dataset.train.inputs[0].dtype == torch.uint8
    assert dataset.train.targets.tolist() == [label for _, labels in parts[:5] for label in labels]
    assert dataset.test.targets.tolist() == parts[5][1]
    assert np.array_equal(dataset.train.inputs[0][4].flatten().numpy(), parts[1][0][0])
    assert dataset.class_names[3] == "cat"


@pytest.mark.parametrize("place", ["cifar10/cifar-10-batches-bin", "cifar10", "cifar-10-batches-bin"])
def test_cifar10_binary(tmp_path, place):
    write_files(tmp_path / place, binary_files())
    check_cifar10(load("cifar10", tmp_path, verify=False))


@pytest.mark.parametrize("protocol", [2, 4])
def test_cifar10_python(tmp_path, protocol):
    write_files(tmp_path / "cifar10" / "cifar-10-batches-py", python_files(protocol))
    check_cifar10(load("cifar10", tmp_path, verify=False))


def test_cifar10_as_python_2_wrote_it():
    # By hand, since the official files hold Python 2's strings and whole numbers for the dtype's flags.
    pixels = bytes(range(256)) * 24
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02M\x00\x0c\x86" + dtype + b"\x89T" + struct.pack("<I", len(pixels)) + pixels + b"tb"
    )
    raw = b"\x80\x02}(U\x04data" + array + b"U\x06labels](K\x03K\x07eu."
    content = read_array_pickle(raw, "data_batch_1")
    assert content[b"labels"] == [3, 7]
    assert content[b"data"].dtype == np.uint8
    assert content[b"data"].shape == (2, 3072)
    assert content[b"data"].tobytes() == pixels


def test_cifar10_packed(tmp_path):
    pack(tmp_path / "a" / "cifar10" / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", binary_files())
    check_cifar10(load("cifar10", tmp_path / "a", verify=False))
    pack(tmp_path / "b" / "cifar10" / "cifar-10-python.tar.gz", "cifar-10-batches-py", python_files())
    check_cifar10(load("cifar10", tmp_path / "b", verify=False))
    with pytest.raises(DataError, match="wrong MD5 checksum"):
        load("cifar10", tmp_path / "b")


def test_cifar10_packed_refusals(tmp_path):
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    pack(path, "elsewhere", binary_files())
    with pytest.raises(DataError, match=r"does not hold cifar-10-batches-bin/data_batch_1.bin"):
        load("cifar10", tmp_path, verify=False)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match="truncated or damaged"):
        load("cifar10", tmp_path, verify=False)


def test_cifar_sizes_are_checked(tmp_path):
    write_files(tmp_path / "cifar10", binary_files())
    with pytest.raises(
        DataError, match=r"data_batch_1.bin has 12292 bytes where the official file has 30730000"
    ):
        load("cifar10", tmp_path)


def test_cifar_binary_refusals(tmp_path):
    files = binary_files()
    write_files(tmp_path / "cifar10", files | {"data_batch_2.bin": files["data_batch_2.bin"][:-1]})
    with pytest.raises(DataError, match=r"data_batch_2.bin, offset 9219: the file ends inside a record"):
        load("cifar10", tmp_path, verify=False)
    broken = bytearray(files["data_batch_2.bin"])
    broken[3073] = 77
    write_files(tmp_path / "cifar10", files | {"data_batch_2.bin": bytes(broken)})
    with pytest.raises(DataError, match=r"offset 3073: the label 77 is not in 0 to 9"):
        load("cifar10", tmp_path, verify=False)


@pytest.mark.parametrize(("labels", "byte", "num_classes"), [("fine", 1, 100), ("coarse", 0, 20)])
def test_cifar100_both_forms(tmp_path, labels, byte, num_classes):
    pixels, fine = cifar_part(6, 100, 0)
    coarse = [value // 5 for value in fine]
    record = np.concatenate([np.array([coarse, fine], np.uint8).T, pixels], 1).tobytes()
    content = pickle.dumps({b"data": pixels, b"fine_labels": fine, b"coarse_labels": coarse}, 2)
    write_files(tmp_path / "a" / "cifar100" / "cifar-100-binary", {"train.bin": record, "test.bin": record})
    write_files(tmp_path / "b" / "cifar100" / "cifar-100-python", {"train": content, "test": content})
    for root in ("a", "b"):
        dataset = load("cifar100", tmp_path / root, labels=labels, verify=False)
        assert dataset.train.targets.tolist() == (coarse, fine)[byte]
        assert dataset.num_classes == num_classes
        assert np.array_equal(dataset.train.inputs[0].flatten(1).numpy(), pixels)
    with pytest.raises(DataError, match="Expected `labels` to be fine or coarse"):
        load("cifar100", tmp_path / "a", labels="both")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1, 2], "holds a list"),
        ({b"labels": [1]}, "`data` is not a uint8 array"),
        ({b"data": np.zeros((2, 3072), np.float32), b"labels": [0, 0]}, "`data` is not a uint8 array"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "not a list of 2 labels"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 10]}, "entry 1 of `labels` is 10"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, "a"]}, "entry 1 of `labels`"),
        ({b"data": np.array([None]), b"labels": [0]}, "is not a CIFAR file .*not allowed"),
    ],
)
def test_cifar_python_refusals(tmp_path, content, words):
    write_files(tmp_path / "cifar10", python_files() | {"data_batch_3": pickle.dumps(content, 2)})
    with pytest.raises(DataError, match=rf"data_batch_3.*{words}"):
        load("cifar10", tmp_path, verify=False)


class Hostile:
    def __init__(self, call, *arguments):
        self.state = (call, arguments)

    def __reduce__(self):
        return self.state


@pytest.mark.parametrize(
    "hostile",
    [
        Hostile(os.system, "touch broken-in"),
        Hostile(eval, "open('broken-in', 'w')"),
        Hostile(getattr, "text", "upper"),
        Hostile(np.load, "anything"),
        Hostile(np.ndarray, (1 << 50,)),
        Hostile(np.dtype, "O"),
    ],
)
def test_hostile_pickles_are_refused(tmp_path, monkeypatch, hostile):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="is not a CIFAR file"):
        read_array_pickle(pickle.dumps({b"data": hostile}), "data_batch_1")
    torch.save({"clean_label": hostile}, tmp_path / "labels.pt")
    with pytest.raises(DataError, match=r"labels\.pt"):
        read_human_labels(tmp_path / "labels.pt", "noisy_label", 10)
    assert not (tmp_path / "broken-in").exists()


@pytest.mark.parametrize("raw", [b"", b"not a pickle", pickle.dumps({b"a": 1})[:-3]])
def test_damaged_pickles_are_refused(tmp_path, raw):
    with pytest.raises(DataError, match="data_batch_1 is not a CIFAR file"):
        read_array_pickle(raw, "data_batch_1")
    (tmp_path / "labels.pt").write_bytes(raw)
    with pytest.raises(DataError, match="cannot be read safely"):
        read_human_labels(tmp_path / "labels.pt", "noisy_label", 10)


# CIFAR-N


def images_with(name, labels, num_classes):
    labels = torch.as_tensor(labels, dtype=torch.int64)
    examples = Examples((torch.arange(len(labels)),), labels)
    return Dataset(name, examples, examples, num_classes, tuple(map(str, range(num_classes))))


RATES = {"aggregate": 9.01, "random1": 17.23, "random2": 18.12, "random3": 17.64, "worst": 40.21}


@pytest.mark.parametrize("annotation", RATES)
def test_real_cifar10n(real_data, annotation):
    root = real_data("cifar-n").parent
    clean = read_human_labels(root / "cifar-n" / "CIFAR-10_human.pt", "aggre_label", 10).clean
    noisy = with_noise(images_with("cifar10", clean, 10), "human", annotation=annotation, root=root)
    rate = 100 * float((noisy.train.targets != noisy.clean_targets).double().mean())
    assert round(rate, 2) == RATES[annotation]


def test_real_cifar100n(real_data):
    root = real_data("cifar-n").parent
    path = root / "cifar-n" / "CIFAR-100_human.pt"
    human = read_human_labels(path, "noisy_label", 100)
    assert round(100 * float((human.labels != human.clean).double().mean()), 2) == 40.20
    coarse = read_human_labels(path, "noisy_coarse_label", 20)
    assert 20 < 100 * float((coarse.labels != coarse.clean).double().mean()) < 30


def test_real_cifar100n_order(real_data):
    root = real_data("cifar-n").parent
    order = real_data("cifar100") / "labels.npz"
    if not order.exists():
        pytest.skip("real data set 'cifar100' not tested: it has no labels.npz")
    with np.load(order) as content:
        fine = content["train_fine"].astype(np.int64)
    noisy = with_human_labels(images_with("cifar100", fine, 100), root=root)
    assert len(noisy.train) == 44_522
    assert noisy.clean_targets.shape == noisy.train.targets.shape
    assert "44522" in noisy.notes[0]


def save_labels(folder, name, **arrays):
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({key: np.array(value) for key, value in arrays.items()}, folder / name)


def test_human_labels_on_made_up_files(tmp_path):
    save_labels(tmp_path / "cifar-n", "CIFAR-10_human.pt", clean_label=[1, 2, 3], aggre_label=[1, 2, 9])
    dataset = images_with("cifar10", [1, 2, 3], 10)
    noisy = with_human_labels(dataset, root=tmp_path, verify=False)
    assert noisy.train.targets.tolist() == [1, 2, 9]
    assert noisy.clean_targets.tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="wrong SHA-256 checksum"):
        with_human_labels(dataset, root=tmp_path)
    with pytest.raises(DataError, match="does not belong to these training images"):
        with_human_labels(images_with("cifar10", [1, 2, 4], 10), root=tmp_path, verify=False)
    with pytest.raises(DataError, match="does not hold worse_label"):
        with_human_labels(dataset, "worst", root=tmp_path, verify=False)
    with pytest.raises(DataError, match="aggregate, random1, random2, random3, worst, but got 'best'"):
        with_human_labels(dataset, "best", root=tmp_path, verify=False)
    save_labels(tmp_path / "cifar-n", "CIFAR-10_human.pt", clean_label=[1, 2, 3], aggre_label=[1, 2, 10])
    with pytest.raises(DataError, match="entry 2 of aggre_label is 10"):
        with_human_labels(dataset, root=tmp_path, verify=False)
    save_labels(tmp_path / "cifar-n", "CIFAR-10_human.pt", clean_label=[1, 2, 3], aggre_label=[0.5, 1, 1])
    with pytest.raises(DataError, match="holds more than whole numbers"):
        with_human_labels(dataset, root=tmp_path, verify=False)
    save_labels(tmp_path / "cifar-n", "CIFAR-10_human.pt", clean_label=[1, 2, 3], aggre_label=[[1], [2], [3]])
    with pytest.raises(DataError, match="not a list of whole numbers"):
        with_human_labels(dataset, root=tmp_path, verify=False)
    (tmp_path / "cifar-n" / "CIFAR-10_human.pt").unlink()
    with pytest.raises(DataError, match="is missing: run `activebias data get cifar-n`"):
        with_human_labels(dataset, root=tmp_path)


def test_cifar100n_leaves_out_images_of_unknown_order(tmp_path):
    save_labels(tmp_path / "cifar-n", "CIFAR-100_human.pt", clean_label=[1, 2, 3], noisy_label=[1, 2, 99])
    write_files(tmp_path / "cifar100", {"train.bin": b"", "test.bin": b""})
    dataset = images_with("cifar100", [1, 2, 3], 100)
    unchecked = with_human_labels(dataset, root=tmp_path, verify=False)
    assert len(unchecked.train) == 3
    assert "could not be checked" in unchecked.notes[0]
    np.savez(tmp_path / "cifar100" / "labels.npz", train_order_tier=np.array([1, 0, 2], np.uint8))
    noisy = with_human_labels(dataset, root=tmp_path, verify=False)
    assert noisy.train.targets.tolist() == [1, 99]
    assert noisy.clean_targets.tolist() == [1, 3]
    assert noisy.train.inputs[0].tolist() == [0, 2]
    np.savez(tmp_path / "cifar100" / "labels.npz", other=np.array([1]))
    with pytest.raises(DataError, match="does not hold `train_order_tier`"):
        with_human_labels(dataset, root=tmp_path, verify=False)


def test_load_with_human_labels(tmp_path):
    write_files(tmp_path / "cifar10", binary_files())
    clean = load("cifar10", tmp_path, verify=False).train.targets
    wrong = (clean + 1) % 10
    save_labels(
        tmp_path / "cifar-n", "CIFAR-10_human.pt", clean_label=clean.tolist(), worse_label=wrong.tolist()
    )
    dataset = load("cifar10", tmp_path, human="worst", verify=False)
    assert bool((dataset.train.targets != dataset.clean_targets).all())
