"""Ray Train: one of two workers is killed, and the run ends like one that nobody disturbed."""

import pytest

pytest.importorskip(
    "ray", reason="Ray is not installed (a large package): `make examples` installs it and runs its example"
)


def test_example(run_example, plain_accuracy):
    assert run_example("ray_train.py") == plain_accuracy
