"""Many trials at once: trials × methods trained side by side on one device.

This package is the door: the lab uses the first six names. The other names are for tests and benchmarks.
"""

from activebias.lab.side_by_side.lanes import epochs_of as epochs_of
from activebias.lab.side_by_side.lanes import in_groups as in_groups
from activebias.lab.side_by_side.lanes import lanes_of as lanes_of
from activebias.lab.side_by_side.schedule import can_stack as can_stack
from activebias.lab.side_by_side.schedule import run_side_by_side as run_side_by_side
from activebias.lab.side_by_side.stopped import remove_finished as remove_finished

# isort: split
from activebias.lab.side_by_side.batches import TrialData as TrialData
from activebias.lab.side_by_side.lanes import Lane as Lane
from activebias.lab.side_by_side.training import SideBySide as SideBySide
