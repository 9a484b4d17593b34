"""The models of the paper's experiments, each an ordinary `nn.Module` that takes raw inputs.

Every model is built from an explicit `torch.Generator`: the same seed gives the same model, bit for bit, and
the global random state is not used. It takes the data readers' tensors (images as uint8, words as integers).
Its method `regulariser()` returns the L2 regulariser, which the training loop adds to the loss.
"""

from activebias.lab.models.digits import DigitsMLP as DigitsMLP
from activebias.lab.models.distillation import DistillationTeacher as DistillationTeacher
from activebias.lab.models.mnist import MnistCNN as MnistCNN
from activebias.lab.models.mnist import SigmoidNet as SigmoidNet
from activebias.lab.models.protocol import LabModel as LabModel
from activebias.lab.models.residual import NormThenLeakyReLU as NormThenLeakyReLU
from activebias.lab.models.residual import ResidualNet as ResidualNet
from activebias.lab.models.residual import augment as augment
from activebias.lab.models.residual import crop_and_flip as crop_and_flip
from activebias.lab.models.residual import draw_shifts as draw_shifts
from activebias.lab.models.residual import standardise as standardise
from activebias.lab.models.softmax_regression import SoftmaxRegression as SoftmaxRegression
from activebias.lab.models.text import SentenceCNN as SentenceCNN
from activebias.lab.models.text import TaggingCNN as TaggingCNN
