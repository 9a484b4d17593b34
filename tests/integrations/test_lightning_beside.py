"""The callback beside other callbacks and loaders of Lightning: averages of the weights, longer loaders."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn
from torch.utils.data import DataLoader, Sampler

pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'activebias[lightning]'")

from lightning.pytorch import callbacks as lightning_callbacks
from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging
from lightning.pytorch.utilities import CombinedLoader

from activebias.integrations.lightning import ActiveBiasCallback
from lightning_run import BATCH_SIZE, NUM_INSTANCES, USUAL_WARNINGS, Classifier, fit, make_bias, make_data

pytestmark = USUAL_WARNINGS

EPOCHS, FIRST_AVERAGED = 4, 2
OPTIONS = {"max_epochs": EPOCHS, "enable_checkpointing": False}
needs_ema = pytest.mark.skipif(
    not hasattr(lightning_callbacks, "EMAWeightAveraging"), reason="this Lightning has no EMAWeightAveraging"
)


def swa(learning_rate=0.05):
    return StochasticWeightAveraging(swa_lrs=learning_rate, swa_epoch_start=FIRST_AVERAGED + 1)


def ema():
    return lightning_callbacks.EMAWeightAveraging(decay=0.8)


class Deeper(Classifier):
    """A net with or without batch norm, which SWA averages by one more pass over the training set."""

    def __init__(self, bias, batch_norm=False) -> None:
        super().__init__(bias)
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(6) if batch_norm else nn.Identity()
        self.layer = nn.Sequential(nn.Linear(4, 6), norm, nn.ReLU(), nn.Linear(6, 2))


class SameOrder(Sampler):
    """The orders that a scan gave, for a Trainer without a bias."""

    def __init__(self) -> None:
        bias, self.orders, self.epoch = make_bias("scan"), [], 0
        for epoch in range(EPOCHS + 1):
            bias.set_epoch(epoch)
            self.orders.append(list(bias.sampler(batch_size=BATCH_SIZE)))

    def set_epoch(self, epoch) -> None:
        self.epoch = epoch

    def __iter__(self):
        return iter(self.orders[self.epoch])

    def __len__(self) -> int:
        return NUM_INSTANCES


class Plain(Deeper):
    """The same net without a bias."""

    def train_dataloader(self):
        return DataLoader(make_data(), batch_size=BATCH_SIZE, sampler=SameOrder())

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])


def assert_same_net(module, other) -> None:
    for name, value in module.layer.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("average", "batch_norm"),
    [(swa, False), (swa, True), pytest.param(ema, False, marks=needs_ema)],
    ids=["swa", "swa with batch norm", "ema"],
)
def test_averages_under_scan_are_those_without_a_bias(average, batch_norm, tmp_path):
    bias = make_bias("scan")
    ours, _ = fit(bias, tmp_path, module=Deeper(bias, batch_norm), callbacks=[average()], **OPTIONS)
    plain = Plain(None, batch_norm)
    fit(None, tmp_path, module=plain, callback=Callback(), callbacks=[average()], **OPTIONS)
    assert_same_net(ours, plain.layer)


def plain_loop(bias, average, after_step):
    """Train without a Trainer; `average` takes the weights in after a step, or before a late epoch."""
    module = Deeper(bias)
    averaged, optimizer = average(module.layer), module.configure_optimizers()
    for epoch in range(EPOCHS):
        bias.set_epoch(epoch)
        if not after_step and epoch >= FIRST_AVERAGED:
            averaged.update_parameters(module.layer)
        for batch in bias.loader(make_data(), BATCH_SIZE):
            optimizer.zero_grad()
            module.training_step(batch, 0).backward()
            optimizer.step()
            if after_step:
                averaged.update_parameters(module.layer)
    return averaged.module


@pytest.mark.parametrize("method", ["wtc", "stc"])
@pytest.mark.parametrize("kind", ["swa", pytest.param("ema", marks=needs_ema)])
def test_averages_are_those_of_the_plain_loop(kind, method, tmp_path):
    bias, other = make_bias(method), make_bias(method)
    callback = swa(learning_rate=0.1) if kind == "swa" else ema()  # 0.1 is the optimiser's
    module, _ = fit(bias, tmp_path, module=Deeper(bias), callbacks=[callback], **OPTIONS)

    def average(net):
        return AveragedModel(net, avg_fn=get_ema_avg_fn(0.8)) if kind == "ema" else AveragedModel(net)

    assert_same_net(module, plain_loop(other, average, after_step=kind == "ema"))
    torch.testing.assert_close(bias.scores, other.scores, atol=1e-5, rtol=0)


@pytest.mark.parametrize("bias_first", [True, False])
def test_the_pass_for_batch_norm_leaves_no_trace(bias_first, tmp_path):
    bias = make_bias("wtc")
    ours, theirs = ActiveBiasCallback(bias), swa()
    first, second = (ours, theirs) if bias_first else (theirs, ours)
    module = Deeper(bias, batch_norm=True)
    fit(bias, tmp_path, module=module, callback=first, callbacks=[second], **OPTIONS)
    assert bias.history.values()[1].sum(-1).tolist() == [1 + EPOCHS] * NUM_INSTANCES


class BesideLonger(Classifier):
    """Has a loader of more batches beside that of the bias."""

    def __init__(self, bias, mode) -> None:
        super().__init__(bias)
        self.mode = mode

    def train_dataloader(self):
        ours, longer = super().train_dataloader(), DataLoader(make_data(), batch_size=4)
        return [ours, longer] if self.mode is None else CombinedLoader([ours, longer], self.mode)

    def training_step(self, batch, batch_idx):
        ours, _ = batch
        return None if ours is None else super().training_step(ours, batch_idx)


@pytest.mark.parametrize("mode", [None, "max_size_cycle"])
def test_a_loader_that_would_begin_again_beside_a_longer_one_is_refused(mode, tmp_path):
    bias = make_bias()
    with pytest.raises(ValueError, match=r"has 7 batches, but the longest loader 13\..*'min_size'"):
        fit(bias, tmp_path, module=BesideLonger(bias, mode))
    assert bias.metrics()["share_unvisited"] == 1


@pytest.mark.parametrize("mode", ["min_size", "max_size"])
@pytest.mark.filterwarnings("ignore:`training_step` returned `None`:UserWarning")
def test_modes_that_do_not_begin_again_train_as_without_the_longer_loader(mode, tmp_path):
    bias, alone = make_bias("stc"), make_bias("stc")
    module, _ = fit(bias, tmp_path, module=BesideLonger(bias, mode))
    other, _ = fit(alone, tmp_path)
    assert torch.equal(module.layer.weight, other.layer.weight)
    assert torch.equal(bias.scores, alone.scores)


def test_a_longer_loader_that_is_limited_is_not_refused(tmp_path):
    bias = make_bias()
    fit(bias, tmp_path, module=BesideLonger(bias, None), limit_train_batches=7)
    assert bias.metrics()["share_unvisited"] == 0
