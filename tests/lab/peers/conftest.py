"""A protocol that is trained once for the tests of this folder."""

import pytest

from activebias.lab import Place, run_trials
from activebias.lab.protocol import Protocol, run_protocol
from side_by_side_cases import digits


@pytest.fixture(scope="package")
def trained(tmp_path_factory):
    """Return a protocol with all its runs, the place, and the units in their order."""
    place = Place(tmp_path_factory.mktemp("protocol"))
    protocol = Protocol.of(digits(), ["scan", "wtc", "gce"])
    units = []

    def train(unit):
        units.append(unit)
        run_trials(unit.recipe, methods=unit.sides, seeds=unit.seeds, place=place)
        return True

    assert run_protocol(protocol, range(3), place, train, at_once=8)
    return protocol, place, units
