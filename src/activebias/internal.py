"""The names of the core that our own rooms use besides the public names of `activebias`.

A room imports from `activebias` and from here, and from no other module of the core. Nothing here is meant
for users, and it may change without notice.
"""

from activebias._arrays import as_tensor as as_tensor
from activebias._arrays import native as native
from activebias._names import did_you_mean as did_you_mean
from activebias.alignments import MEMBERS as MEMBERS
from activebias.alignments import VALIDATION as VALIDATION
from activebias.alignments import Sources as Sources
from activebias.checkpoint import has_our_format as has_our_format
from activebias.checkpoint import read_checkpoint as read_checkpoint
from activebias.checks import IGNORED as IGNORED
from activebias.checks import is_probability as is_probability
from activebias.checks import own_scores as own_scores
from activebias.checks import tensor_of as tensor_of
from activebias.drawing import draw_directly as draw_directly
from activebias.epoch_items import epoch_generator as epoch_generator
from activebias.evidence import FIRST_ROUNDS as FIRST_ROUNDS
from activebias.evidence import NUM_KNOTS as NUM_KNOTS
from activebias.evidence import UNIFORM as UNIFORM
from activebias.evidence import Evidence as Evidence
from activebias.evidence import between as between
from activebias.evidence import is_usable as is_usable
from activebias.evidence import knot_means as knot_means
from activebias.evidence import less_rule as less_rule
from activebias.evidence import place_of as place_of
from activebias.evidence import rule_scores as rule_scores
from activebias.evidence import step_factor as step_factor
from activebias.files import remove_leftovers as remove_leftovers
from activebias.files import replacing as replacing
from activebias.files import until_written as until_written
from activebias.graphs import no_garbage_collection as no_garbage_collection
from activebias.history import CHUNK as CHUNK
from activebias.history import Visits as Visits
from activebias.history import rows_of_state as rows_of_state
from activebias.history import sort_visits as sort_visits
from activebias.learning import Forward as Forward
from activebias.learning import cost_of as cost_of
from activebias.learning import counted as counted
from activebias.learning import evaluating as evaluating
from activebias.learning import has_learnt as has_learnt
from activebias.learning import labelled as labelled
from activebias.learning import learn_from as learn_from
from activebias.learning import rounds_between as rounds_between
from activebias.learning import whole_parameters as whole_parameters
from activebias.losses import cross_entropy as cross_entropy
from activebias.methods import ALL_METHODS as ALL_METHODS
from activebias.trust import Trust as Trust
from activebias.trust import number_by_class as number_by_class
from activebias.validation import FEW_EPOCHS as FEW_EPOCHS
from activebias.validation import memorises as memorises
