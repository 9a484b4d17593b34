"""The folds of `benchmarks/audit.py`, side by side and one by one."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from audit_observed import find_recipe, observe, unpack
from audit_side_by_side import observe_together


@pytest.fixture
def recipe():
    # 640 images in four of five folds: five whole batches, because side by side leaves out the rest.
    recipe = dataclasses.replace(find_recipe("digits", epochs=3), limit=800)
    assert 640 % recipe.batch_size == 0
    return recipe


def test_folds_side_by_side_equal_folds_one_by_one(recipe, tmp_path):
    alone, together = tmp_path / "alone.npz", {1: tmp_path / "1.npz", 2: tmp_path / "2.npz"}
    observe(recipe, 2, "cpu", "scan", alone, folds_only=True)
    observe_together(recipe, together, 5, "cpu", kept=[1, 2, 3])
    one, other = unpack(alone), unpack(together[2])
    for key in ("labels", "true", "kept", "judged_epochs"):
        np.testing.assert_array_equal(one[key], other[key])
    for key in ("outside", "judged_history", "judged_rival"):
        np.testing.assert_allclose(one[key], other[key], atol=1e-4)
    assert (unpack(together[1])["labels"] != other["labels"]).any()


def test_small_files_keep_the_probabilities(recipe, tmp_path):
    whole, small = ({0: tmp_path / f"{name}.npz"} for name in ("whole", "small"))
    observe_together(recipe, whole, 4, "cpu", kept=[3])
    observe_together(recipe, small, 4, "cpu", kept=[3], small=True)
    one, other = unpack(whole[0]), unpack(small[0])
    assert one["outside"].shape == (1, 800, 10)
    for key in ("outside", "judged_outside", "judged_inside", "judged_history"):
        np.testing.assert_allclose(one[key], other[key], rtol=5e-3, atol=1e-3)
    np.testing.assert_allclose(one["judged_outside"].sum(1), 1, atol=1e-5)


def test_too_few_images_are_refused(recipe, tmp_path):
    with pytest.raises(SystemExit, match="a batch"):
        observe_together(dataclasses.replace(recipe, limit=150), {0: tmp_path / "0.npz"}, 5, "cpu", kept=[3])
