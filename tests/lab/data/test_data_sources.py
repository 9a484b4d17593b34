"""Where data lies, what is there, and how it is downloaded and unpacked."""

import hashlib
import io
import socket
import tarfile
import threading
import time
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from activebias.lab.data import SOURCES, DataError, Dataset, Examples, data_root, fetch, load, status
from activebias.lab.data.catalogue import DataFile, Download, Form, Source
from activebias.lab.data.download import unpack
from activebias.lab.data.loading import LOADERS


def states(root):
    return {entry.name: entry for entry in status(root)}


# Containers


def test_containers_refuse_what_does_not_belong_together():
    good = Examples((torch.zeros(2, 1),), torch.zeros(2, dtype=torch.int64), torch.ones(2))
    assert good.select(torch.tensor([1])).lengths.tolist() == [1]
    with pytest.raises(ValueError, match="`inputs` has 3 examples, but `targets` has 2"):
        Examples((torch.zeros(3, 1),), good.targets)
    with pytest.raises(ValueError, match="`lengths` has 3"):
        Examples(good.inputs, good.targets, torch.ones(3))
    with pytest.raises(ValueError, match="at least one tensor"):
        Examples((), good.targets)
    with pytest.raises(TypeError, match="Expected `targets` to be int64"):
        Examples(good.inputs, torch.zeros(2))
    with pytest.raises(ValueError, match="1 names for 2 classes"):
        Dataset("toy", good, good, 2, ("a",))
    with pytest.raises(ValueError, match="`clean_targets` has shape"):
        Dataset("toy", good, good, 1, ("a",), clean_targets=torch.zeros(3))


# The data folder


def test_data_root_order(monkeypatch, tmp_path):
    monkeypatch.setenv("ACTIVEBIAS_DATA", str(tmp_path / "environment"))
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root() == tmp_path / "environment"
    monkeypatch.delenv("ACTIVEBIAS_DATA")
    assert data_root() == Path.home() / ".cache" / "activebias"
    assert data_root("~/here") == Path.home() / "here"


def test_load_finds_the_folder_in_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ACTIVEBIAS_DATA", str(tmp_path))
    with pytest.raises(
        DataError, match=f"mnist is missing: run `activebias data get mnist`, .* into {tmp_path}/mnist"
    ):
        load("mnist")


def test_load_refuses_unknown_names_and_options(tmp_path):
    with pytest.raises(DataError, match="no data set 'imagenet' to train on: known are digits, mnist"):
        load("imagenet")
    with pytest.raises(DataError, match="mnist has no option 'size': known are verify"):
        load("mnist", tmp_path, size=3)


def test_every_data_set_to_train_on_has_a_source():
    assert set(LOADERS) <= set(SOURCES)
    for source in SOURCES.values():
        for download in source.downloads:
            assert download.file.checksum, download.file.name
            assert download.addresses
        assert not source.forms or bool(source.downloads) != bool(source.by_hand)


# Status


def test_status_of_an_empty_folder_says_what_to_do(tmp_path):
    entries = states(tmp_path)
    assert entries.keys() == SOURCES.keys()
    assert entries.pop("digits").state == "present"
    for name, entry in entries.items():
        assert entry.state == "missing"
        assert str(tmp_path / SOURCES[name].folder) in entry.advice
        assert "\n" not in entry.advice
    assert "activebias data get mnist" in entries["mnist"].advice
    assert "licensed" in entries["conll2003"].advice


def test_status_tells_present_wrong_and_incomplete(tmp_path):
    trec = tmp_path / "trec"
    trec.mkdir()
    (trec / "train_5500.label").write_text("LOC:city Where ?\n")
    assert states(tmp_path)["trec"].state == "missing"
    (trec / "TREC_10.label").write_text("LOC:city Where ?\n")
    entry = states(tmp_path)["trec"]
    assert entry.state == "checksum wrong"
    assert "train_5500.label has the wrong SHA-256 checksum: delete it" in entry.advice
    (tmp_path / "conll2003").mkdir()
    for name in ("eng.train", "eng.testa", "eng.testb"):
        (tmp_path / "conll2003" / name).touch()
    assert states(tmp_path)["conll2003"].state == "present"


@pytest.mark.parametrize("name", ["mnist", "trec", "cifar-n", "wnut17", "conll2003", "embeddings"])
def test_real_data_has_the_official_checksums(real_data, name):
    assert states(real_data(name).parent)[name].state == "present"


# Download


def tar_of(files, **changes):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, raw in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            for key, value in changes.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(raw))
    return buffer.getvalue()


@pytest.fixture
def server(monkeypatch):
    """Serve a dictionary of files on 127.0.0.1 and give (its address, the dictionary)."""
    monkeypatch.setenv("no_proxy", "*")
    files = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            raw = files.get(self.path[1:])
            if raw is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw) + (99 if "short" in self.path else 0)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/", files
        http.shutdown()
        thread.join()


def made_up(monkeypatch, addresses, name, raw, **options):
    """Register a data set of one file, downloaded from the given addresses."""
    file = DataFile(name, f"sha256:{hashlib.sha256(raw).hexdigest()}")
    form = options.pop("form", Form((file,)))
    download = Download(file, tuple(f"{address}{name}" for address in addresses), **options)
    monkeypatch.setitem(SOURCES, "made-up", Source("made-up", "", "made-up", "", (form,), (download,)))


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/"


def test_fetch_downloads_once(monkeypatch, tmp_path, server):
    address, files = server
    files["words.txt"] = b"hello" * 200_000
    made_up(monkeypatch, [address], "words.txt", files["words.txt"])
    folder = fetch("made-up", tmp_path, quiet=True)
    assert (folder / "words.txt").read_bytes() == files["words.txt"]
    assert [path.name for path in folder.iterdir()] == ["words.txt"]
    files.clear()
    assert fetch("made-up", tmp_path, quiet=True) == folder


def test_fetch_replaces_a_damaged_file(monkeypatch, tmp_path, server):
    address, files = server
    files["words.txt"] = b"hello"
    made_up(monkeypatch, [address], "words.txt", files["words.txt"])
    (tmp_path / "made-up").mkdir()
    (tmp_path / "made-up" / "words.txt").write_bytes(b"hell")
    fetch("made-up", tmp_path, quiet=True)
    assert (tmp_path / "made-up" / "words.txt").read_bytes() == b"hello"


def test_fetch_shows_progress(monkeypatch, tmp_path, server, capsys):
    address, files = server
    files["words.txt"] = b"hello"
    made_up(monkeypatch, [address], "words.txt", files["words.txt"])
    fetch("made-up", tmp_path)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "words.txt" in captured.err


def test_fetch_goes_on_to_the_next_address(monkeypatch, tmp_path, server):
    address, files = server
    files["words.txt"] = b"hello"
    made_up(monkeypatch, [closed_port(), address + "none/", address], "words.txt", files["words.txt"])
    assert (fetch("made-up", tmp_path, quiet=True) / "words.txt").exists()


@pytest.mark.parametrize(
    ("name", "served", "words"),
    [
        ("words.txt", b"hellO", "has the wrong checksum"),
        ("words.txt", None, "answers 404"),
        ("short.txt", b"hello", "sent 5 of 104 bytes|bytes"),
    ],
)
def test_fetch_refuses_what_is_wrong_and_leaves_nothing(monkeypatch, tmp_path, server, name, served, words):
    address, files = server
    if served is not None:
        files[name] = served
    made_up(monkeypatch, [address], name, b"hello")
    with pytest.raises(DataError, match=words) as caught:
        fetch("made-up", tmp_path, quiet=True)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "made-up").iterdir()) == []


def test_fetch_without_network_fails_soon_and_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "*")
    source = SOURCES["mnist"]
    port = closed_port()
    downloads = tuple(replace(each, addresses=(port + each.file.name,)) for each in source.downloads)
    monkeypatch.setitem(SOURCES, "mnist", replace(source, downloads=downloads))
    start = time.monotonic()
    with pytest.raises(DataError) as caught:
        fetch("mnist", tmp_path, quiet=True)
    assert time.monotonic() - start < 5
    message = str(caught.value)
    for name in ("train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", str(tmp_path / "mnist")):
        assert name in message
    assert "\n" not in message
    assert list((tmp_path / "mnist").iterdir()) == []


def test_fetch_gives_up_on_a_silent_server(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        made_up(monkeypatch, [f"http://127.0.0.1:{silent.getsockname()[1]}/"], "words.txt", b"hello")
        start = time.monotonic()
        with pytest.raises(DataError, match="timed out"):
            fetch("made-up", tmp_path, quiet=True, timeout=0.3)
        assert time.monotonic() - start < 3


def test_fetch_of_licensed_embedded_and_unknown_data(tmp_path):
    with pytest.raises(
        DataError, match=r"conll2003 cannot be downloaded, its text is licensed: .* into .*conll2003"
    ):
        fetch("conll2003", tmp_path)
    with pytest.raises(DataError, match="ontonotes5 cannot be downloaded, it is licensed"):
        fetch("ontonotes5", tmp_path)
    with pytest.raises(DataError, match="no data set 'imagenet'"):
        fetch("imagenet", tmp_path)
    fetch("digits", tmp_path)


def test_fetch_where_nothing_can_be_written(monkeypatch, tmp_path):
    made_up(monkeypatch, [closed_port()], "words.txt", b"hello")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"made-up cannot be written to .*: choose another folder"):
        fetch("made-up", tmp_path / "file", quiet=True)


def test_fetch_unpacks_an_archive(monkeypatch, tmp_path, server):
    address, files = server
    files["words.tar.gz"] = tar_of({"inner/a.txt": b"a", "inner/b.txt": b"b"})
    form = Form((DataFile("a.txt"), DataFile("b.txt")), "inner")
    made_up(monkeypatch, [address], "words.tar.gz", files["words.tar.gz"], archive=True, form=form)
    folder = fetch("made-up", tmp_path, quiet=True)
    assert folder == tmp_path / "made-up" / "inner"
    assert (folder / "b.txt").read_bytes() == b"b"
    assert not (tmp_path / "made-up" / "words.tar.gz").exists()


def test_fetch_refuses_an_archive_without_the_files(monkeypatch, tmp_path, server):
    address, files = server
    files["words.tar.gz"] = tar_of({"other.txt": b"a"})
    form = Form((DataFile("a.txt"),))
    made_up(monkeypatch, [address], "words.tar.gz", files["words.tar.gz"], archive=True, form=form)
    with pytest.raises(DataError, match="not complete"):
        fetch("made-up", tmp_path, quiet=True)


# Unpacking


def write(path, raw):
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize(
    "name", ["../out.txt", "/tmp/out.txt", "a/../../out.txt", "..\\out.txt", "C:/out.txt"]
)
def test_tar_that_leads_out_is_refused_before_anything_is_written(tmp_path, name):
    archive = write(tmp_path / "bad.tar.gz", tar_of({"good.txt": b"a", name: b"b"}))
    with pytest.raises(DataError, match="leads out of its folder"):
        unpack(archive, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_tar_with_links_or_devices_is_refused(tmp_path, kind):
    archive = write(tmp_path / "bad.tar.gz", tar_of({"link": b""}, type=kind, linkname="/etc/passwd"))
    with pytest.raises(DataError, match="a link or device"):
        unpack(archive, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_links_in_the_folder_are_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").symlink_to(tmp_path / "elsewhere")
    archive = write(tmp_path / "good.tar.gz", tar_of({"inner/a.txt": b"a"}))
    with pytest.raises(DataError, match="is a link out of"):
        unpack(archive, tmp_path / "folder")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_zip(tmp_path):
    archive = tmp_path / "words.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("a.txt", "a")
        zipped.writestr("b.txt", "b")
    unpack(archive, tmp_path / "folder", members=("a.txt",))
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["a.txt"]
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("../out.txt", "a")
    with pytest.raises(DataError, match="leads out of its folder"):
        unpack(archive, tmp_path / "folder")


@pytest.mark.parametrize("raw", [b"no archive", tar_of({"a": bytes(5000)})[:-30]], ids=["none", "cut off"])
def test_damaged_archive(tmp_path, raw):
    with pytest.raises(DataError, match="truncated or damaged"):
        unpack(write(tmp_path / "bad.tar.gz", raw), tmp_path / "folder")
