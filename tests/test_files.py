"""Files and folders appear whole or not at all."""

import pytest

from activebias.files import remove_leftovers, replacing


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_takes_the_place_of_another(tmp_path):
    path = tmp_path / "around" / "folder"
    for text in ("old", "new"):
        with replacing(path, folder=True) as temporary:
            (temporary / text).touch()
    assert [entry.name for entry in path.iterdir()] == ["new"]
    assert list(path.parent.iterdir()) == [path]


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path):
    with pytest.raises(ValueError, match="name a file in it"), replacing(tmp_path):
        pass


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    for name in ("file", ".file.12ab", ".files.12ab"):
        (tmp_path / name).touch()
    (tmp_path / ".file.34cd").mkdir()
    remove_leftovers(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".files.12ab", "file"]


@pytest.mark.parametrize("folder", [False, True])
def test_a_place_that_cannot_be_written_is_named(tmp_path, folder):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "new"
    with pytest.raises(OSError) as caught, replacing(path, folder=folder):
        pass
    assert str(caught.value).startswith(f"{path} cannot be written (")
    assert str(caught.value).endswith("): choose another place.")
