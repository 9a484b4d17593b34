"""The catalogue of data sets: their files, checksums and addresses."""

from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True)
class DataFile:
    """One file: its name, and its official checksum (``md5:…`` or ``sha256:…``) and size, if known.

    ``unpacked`` is the checksum of a gzipped file's content: another gzip packs it into other bytes.
    """

    name: str
    checksum: str | None = None
    size: int | None = None
    unpacked: str | None = None


@dataclass(frozen=True)
class Form:
    """One complete set of files; ``folder`` is the folder inside the official archive."""

    files: tuple[DataFile, ...]
    folder: str = ""


@dataclass(frozen=True)
class Download:
    """A download, from the first address that works; ``members``: the files of an archive to keep."""

    file: DataFile
    addresses: tuple[str, ...]
    archive: bool = False
    members: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Source:
    """A data set: its folder under the data root, the possible forms of its files, and the downloads."""

    name: str
    title: str
    folder: str
    terms: str
    forms: tuple[Form, ...] = ()
    downloads: tuple[Download, ...] = ()
    by_hand: str = ""


def _mnist(
    name: str,
    title: str,
    terms: str,
    checksums: tuple[str, str, str, str],
    hosts: tuple[str, ...],
    unpacked: tuple[str, ...] = (),
) -> Source:
    names = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    packed = tuple(
        DataFile(f"{file}.gz", f"md5:{sum_}", unpacked=f"md5:{inside}" if inside else None)
        for file, sum_, inside in zip_longest(names, checksums, unpacked)
    )
    return Source(
        name,
        title,
        name,
        terms,
        forms=(Form(packed), Form(tuple(DataFile(file) for file in names))),
        downloads=tuple(Download(file, tuple(host + file.name for host in hosts)) for file in packed),
    )


def _cifar(name: str, title: str, archives: tuple[DataFile, DataFile], binary: Form, python: Form) -> Source:
    return Source(
        name,
        title,
        name,
        "no licence stated",
        # The binary form first, because it needs no unpickling.
        forms=(binary, python, Form((archives[0],)), Form((archives[1],))),
        downloads=(
            Download(archives[0], (f"https://www.cs.toronto.edu/~kriz/{archives[0].name}",), archive=True),
        ),
    )


_CIFAR10 = _cifar(
    "cifar10",
    "CIFAR-10: 50,000 + 10,000 colour images, 10 classes",
    (
        DataFile("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),
        DataFile("cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a"),
    ),
    Form(
        (
            *(DataFile(f"data_batch_{k}.bin", size=30_730_000) for k in range(1, 6)),
            DataFile("test_batch.bin", size=30_730_000),
        ),
        "cifar-10-batches-bin",
    ),
    Form(
        (
            DataFile("data_batch_1", "md5:c99cafc152244af753f735de768cd75f"),
            DataFile("data_batch_2", "md5:d4bba439e000b95fd0a9bffe97cbabec"),
            DataFile("data_batch_3", "md5:54ebc095f3ab1f0389bbae665268c751"),
            DataFile("data_batch_4", "md5:634d18415352ddfa80567beed471001a"),
            DataFile("data_batch_5", "md5:482c414d41f54cd18b22e5b47cb7c3cb"),
            DataFile("test_batch", "md5:40351d587109b95175f43aff81a1287e"),
        ),
        "cifar-10-batches-py",
    ),
)

_CIFAR100 = _cifar(
    "cifar100",
    "CIFAR-100: 50,000 + 10,000 colour images, 100 classes",
    (
        DataFile("cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8"),
        DataFile("cifar-100-python.tar.gz", "md5:eb9058c3a382ffc7106e4002c42a8d85"),
    ),
    Form(
        (DataFile("train.bin", size=153_700_000), DataFile("test.bin", size=30_740_000)), "cifar-100-binary"
    ),
    Form(
        (
            DataFile("train", "md5:16019d7e3df5f24257cddd939b257f8d"),
            DataFile("test", "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"),
        ),
        "cifar-100-python",
    ),
)

_CIFAR_N_FILES = (
    DataFile("CIFAR-10_human.pt", "sha256:873e69c39cb9b5e97fb6bae2d60bb59b38a5cbc31d2b868f7903dcb2b9dd2310"),
    DataFile("CIFAR-100_human.pt", "sha256:bd2d80409754d420292d622e15e25248ba21e37d27429efac49c8da723f44394"),
)

_TREC_TRAIN = DataFile(
    "train_5500.label", "sha256:9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3"
)
_TREC_TEST = DataFile(
    "TREC_10.label", "sha256:033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e"
)
# The first 1,000 lines of train_5500.label.
_TREC_1000 = DataFile(
    "train_1000.label", "sha256:9e26897eefb72b02b380412c6d8d3ccc003458ff1b3ff0998a2e60e31f77926d"
)
_TREC_HOST = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"

_WNUT_FILES = (
    DataFile("wnut17train.conll", "sha256:731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5"),
    DataFile("emerging.dev.conll", "sha256:e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8"),
    DataFile(
        "emerging.test.annotated", "sha256:2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0"
    ),
)

_GLOVE_ZIP = DataFile(
    "glove.6B.zip", "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb"
)

_ALL = (
    Source("digits", "Digits: 1,797 images of 8×8 pixels, 10 classes", "", "comes with scikit-learn"),
    _mnist(
        "mnist",
        "MNIST: 60,000 + 10,000 images of handwritten digits, 10 classes",
        "free to use",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        # torchvision's mirror first, because the author's server often refuses downloads.
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    _mnist(
        "fashion-mnist",
        "Fashion-MNIST: 60,000 + 10,000 images of clothes, 10 classes",
        "MIT",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    ),
    _CIFAR10,
    _CIFAR100,
    Source(
        "cifar-n",
        "CIFAR-10N and CIFAR-100N: human labels for the CIFAR training images",
        "cifar-n",
        "CC BY-NC 4.0",
        forms=(Form(_CIFAR_N_FILES),),
        downloads=tuple(
            Download(
                file, (f"https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data/{file.name}",)
            )
            for file in _CIFAR_N_FILES
        ),
    ),
    Source(
        "trec",
        "TREC question type: 1,000 (or 5,452) + 500 questions, 6 classes",
        "trec",
        "free to use",
        forms=(
            Form((_TREC_1000, _TREC_TRAIN, _TREC_TEST)),
            Form((_TREC_TRAIN, _TREC_TEST)),
            Form((_TREC_1000, _TREC_TEST)),
        ),
        downloads=tuple(Download(file, (_TREC_HOST + file.name,)) for file in (_TREC_TRAIN, _TREC_TEST)),
    ),
    Source(
        "conll2003",
        "CoNLL-2003 English named entities, 4 types",
        "conll2003",
        "Reuters text: research use under agreement",
        # No checksum, because valid copies differ in their bytes.
        forms=(Form((DataFile("eng.train"), DataFile("eng.testa"), DataFile("eng.testb"))),),
        by_hand="its text is licensed: get the Reuters corpus from NIST "
        "(https://trec.nist.gov/data/reuters/reuters.html), "
        "build the files with the CoNLL-2003 annotations, and put eng.train, eng.testa and eng.testb (4 "
        "columns, IOB1)",
    ),
    Source(
        "wnut17",
        "WNUT-17 emerging named entities, 6 types",
        "wnut17",
        "CC BY 4.0",
        forms=(Form(_WNUT_FILES),),
        downloads=tuple(
            Download(
                file, (f"https://raw.githubusercontent.com/leondz/emerging_entities_17/master/{file.name}",)
            )
            for file in _WNUT_FILES
        ),
    ),
    Source(
        "ontonotes5",
        "OntoNotes 5.0 English named entities, 18 types",
        "ontonotes5",
        "Linguistic Data Consortium, LDC2013T19",
        forms=(
            Form((DataFile("onto.train.ner"), DataFile("onto.development.ner"), DataFile("onto.test.ner"))),
            Form((DataFile("train"), DataFile("development"), DataFile("test"))),
        ),
        by_hand="it is licensed: get LDC2013T19 from https://catalog.ldc.upenn.edu/LDC2013T19 and put either "
        "onto.train.ner, onto.development.ner and onto.test.ner (word first, BIO tag last), or the folders "
        "train, development and test with the English CoNLL-2012 *gold_conll files,",
    ),
    Source(
        "embeddings",
        "GloVe word vectors, 6B tokens, 50 dimensions",
        "embeddings",
        "PDDL",
        forms=(
            Form((DataFile("glove.6B.50d.txt"),)),
            Form((DataFile("glove.6B.50d.txt.gz"),)),
            Form((DataFile("glove.6B.50d.subset.txt.gz"),)),
        ),
        downloads=(
            Download(
                _GLOVE_ZIP,
                (
                    "https://nlp.stanford.edu/data/glove.6B.zip",
                    "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip",
                ),
                archive=True,
                members=("glove.6B.50d.txt",),
            ),
        ),
    ),
)

SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
