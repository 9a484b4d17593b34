"""The processes that other tests start have imported already what takes longer than what they do."""

from processes import PRELOADED, finish, note_preloaded, start


def test_the_server_has_imported_everything(tmp_path):
    """A module that the server does not find is no error: it would only make the tests slow."""
    finish(start(note_preloaded, tmp_path / "preloaded"))
    assert (tmp_path / "preloaded").read_text().splitlines() == PRELOADED
