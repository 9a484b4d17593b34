"""One way for a loss: few files, and none entered twice."""

import pytest

import activebias as ab
from walk import walk


@pytest.mark.parametrize("method", list(ab.METHODS))
def test_a_loss_walks_through_few_files_and_enters_none_twice(method):
    found = walk(method)
    assert {"active_bias.py", "losses.py", "order.py", "memory.py", "history.py"} <= set(found.entries)
    assert len(found.entries) <= (10 if method == "isd" else 9)  # isd draws and weighs by emphasis
    assert set(found.entries.values()) == {1}


def test_a_loss_of_auto_adds_its_curve_and_enters_no_file_twice():
    with pytest.warns(UserWarning, match="has learnt nothing"):
        found = walk("auto")
    assert set(found.entries) - set(walk("wtc").entries) == {"curve.py", "evidence.py", "_arrays.py"}
    assert set(found.entries.values()) == {1}
