"""Small made-up data sets in the official formats, for where the real ones are not."""

import gzip
import struct

import numpy as np

IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
WORDS = ("the", "a", "of", "Ada", "Paris", "London", "visits", "sees", "1996", ",", ".", "who", "where", "is")


def write_idx(folder, count):
    random = np.random.default_rng(0)
    for name in IDX_NAMES:
        shape = (count, 28, 28) if "images" in name else (count,)
        array = random.integers(0, 256 if "images" in name else 10, shape, dtype=np.uint8)
        raw = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
        (folder / f"{name}.gz").write_bytes(gzip.compress(raw))


def write_cifar(folder, names, label_bytes, num_classes, count):
    random = np.random.default_rng(0)
    for name in names:
        records = random.integers(0, 256, (count, label_bytes + 3072), dtype=np.uint8)
        records[:, :label_bytes] %= 20
        records[:, label_bytes - 1] %= num_classes
        (folder / name).write_bytes(records.tobytes())


def write_vectors(root):
    folder = root / "embeddings"
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    lines = [f"{word.lower()} {' '.join(f'{x:.3f}' for x in random.normal(size=50))}" for word in WORDS]
    (folder / "glove.6B.50d.txt").write_text("\n".join(dict.fromkeys(lines)) + "\n")


def sentences(count, tag):
    """Return sentences in columns: `tag` makes a line of a word and a BIO tag."""
    random = np.random.default_rng(1)
    blocks = []
    for _ in range(count):
        lines = []
        for word in random.choice(WORDS, random.integers(2, 9)):
            kind = {"Ada": "PERSON", "Paris": "PLACE", "London": "PLACE"}.get(word)
            lines.append(tag(word, kind))
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def write(name, root, count):
    """Write the data set `name` with `count` training examples under `root`."""
    folder = root / name
    folder.mkdir(parents=True)
    if name in ("mnist", "fashion-mnist"):
        write_idx(folder, count)
    elif name == "cifar10":
        names = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
        write_cifar(folder, names, 1, 10, -(-count // 5))
    elif name == "cifar100":
        write_cifar(folder, ["train.bin", "test.bin"], 2, 100, count)
    elif name == "trec":
        write_vectors(root)
        classes = ("ABBR:abb", "DESC:def", "ENTY:animal", "HUM:ind", "LOC:city", "NUM:date")
        random = np.random.default_rng(2)
        lines = [
            f"{classes[k % 6]} {' '.join(random.choice(WORDS, random.integers(4, 9)))}" for k in range(count)
        ]
        for file in ("train_1000.label", "TREC_10.label"):
            (folder / file).write_text("\n".join(lines) + "\n", encoding="latin-1")
    else:
        write_vectors(root)
        files, kinds, columns = {
            "conll2003": (("eng.train", "eng.testa", "eng.testb"), ("PER", "LOC"), " NN I-NP "),
            "wnut17": (
                ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
                ("person", "location"),
                "\t",
            ),
            "ontonotes5": (
                ("onto.train.ner", "onto.development.ner", "onto.test.ner"),
                ("PERSON", "GPE"),
                "\t",
            ),
        }[name]
        spelled = dict(zip(("PERSON", "PLACE"), kinds, strict=True))

        def tag(word, kind):
            return f"{word}{columns}{'O' if kind is None else f'B-{spelled[kind]}'}"

        for file in files:
            (folder / file).write_text(sentences(count, tag))
