"""Many trials at once: trials × methods trained side by side on one device."""

from activebias.lab.side_by_side.batches import Trials as Trials
from activebias.lab.side_by_side.training import Lane as Lane
from activebias.lab.side_by_side.training import SideBySide as SideBySide
