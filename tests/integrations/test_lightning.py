"""The callback under the real Trainer: same numbers as the plain loop, also after a resume."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

import activebias as ab

pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'activebias[lightning]'")

from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

import activebias.integrations.lightning
from activebias.integrations.lightning import ActiveBiasCallback
from lightning_run import (
    BATCH_SIZE,
    EPOCHS,
    NO_FILES,
    NUM_INSTANCES,
    USUAL_WARNINGS,
    Classifier,
    assert_same,
    fit,
    make_bias,
    make_data,
)

pytestmark = USUAL_WARNINGS


@pytest.mark.parametrize("method", ["wpv", "spv"])
def test_same_bits_as_the_plain_loop(method, tmp_path):
    bias = make_bias(method)
    module, _ = fit(bias, tmp_path)
    plain = make_bias(method)
    model = Classifier(plain)
    optimizer = model.configure_optimizers()
    loader = DataLoader(
        ab.with_index(make_data()), batch_size=BATCH_SIZE, sampler=plain.sampler(batch_size=BATCH_SIZE)
    )
    for epoch in range(EPOCHS):
        plain.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            model.training_step(batch, 0).backward()
            optimizer.step()
    assert_same(bias, module, plain, model)


# Draws that were prefetched lag by what depends on when a run began: with workers only a scan repeats.
@pytest.mark.parametrize(
    ("method", "every", "num_workers"),
    [("wpv", 10, 0), ("wpv", 7, 0), ("spv", 10, 0), ("spv", 14, 0), ("wpv", 10, 2), ("wpv", 7, 2)],
)
def test_resume_at_a_step_gives_the_same_bits(method, every, num_workers, tmp_path):
    """Seven steps are an epoch: 10 is mid-epoch, 7 and 14 are an epoch's last step."""
    options = {"num_workers": num_workers, "persistent_workers": bool(num_workers)}
    whole = make_bias(method)
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=every, save_top_k=-1)
    module, _ = fit(whole, tmp_path, callbacks=[saver], module=Classifier(whole, **options))
    resumed = make_bias(method)
    other, _ = fit(
        resumed,
        tmp_path,
        ckpt_path=tmp_path / f"step={every}.ckpt",
        module=Classifier(resumed, **options),
    )
    assert_same(whole, module, resumed, other)


@pytest.mark.skipif(
    activebias.integrations.lightning.VERSION < (2, 5),
    reason="before 2.5 Lightning trains one more batch there, as docs/frameworks.md says",
)
@pytest.mark.parametrize("step", [6, 7, 14, 21])
def test_resume_at_a_step_without_validation(step, tmp_path):
    """An epoch that was over, at the steps 7, 14 and 21, gets no further batch."""
    whole, resumed = make_bias(), make_bias()
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    module, trainer = fit(whole, tmp_path, callbacks=[saver], limit_val_batches=0)
    other, again = fit(resumed, tmp_path, ckpt_path=tmp_path / f"step={step}.ckpt", limit_val_batches=0)
    assert again.global_step == trainer.global_step
    assert_same(whole, module, resumed, other)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"limit_train_batches": 3}, {"limit_val_batches": 0}])
def test_resume_between_epochs_gives_the_same_bits(options, num_workers, tmp_path):
    whole = make_bias()
    saver = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    module = Classifier(whole, num_workers=num_workers)
    fit(whole, tmp_path, callbacks=[saver], module=module, **options)
    resumed = make_bias()
    other = Classifier(resumed, num_workers=num_workers)
    fit(resumed, tmp_path, ckpt_path=tmp_path / "epoch=0.ckpt", module=other, **options)
    assert_same(whole, module, resumed, other)


def test_dropped_last_batch_and_workers_resume_in_the_next_epoch(tmp_path):
    whole = make_bias()
    saver = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    module = Classifier(whole, num_workers=1, drop_last=True)
    fit(whole, tmp_path, callbacks=[saver], module=module)
    resumed = make_bias()
    other = Classifier(resumed, num_workers=1, drop_last=True)
    fit(resumed, tmp_path, ckpt_path=tmp_path / "epoch=1.ckpt", module=other)
    assert_same(whole, module, resumed, other)


def test_validation_and_sanity_checks_leave_no_trace(tmp_path):
    bias = make_bias("wd")
    fit(bias, tmp_path, num_sanity_val_steps=2)
    assert bias.history.values()[1].sum(-1).tolist() == [1 + EPOCHS] * NUM_INSTANCES


def test_fast_dev_run(tmp_path):
    bias = make_bias()
    fit(bias, tmp_path, fast_dev_run=True)
    assert int(bias.history.values()[1].sum()) == NUM_INSTANCES + BATCH_SIZE


def test_accumulated_batches_are_one_step(tmp_path):
    bias, small = make_bias(), make_bias()
    fit(bias, tmp_path, limit_train_batches=1)
    module = Classifier(small, batch_size=BATCH_SIZE // 4)
    fit(small, tmp_path, module=module, limit_train_batches=4, accumulate_grad_batches=4)
    assert torch.allclose(bias.scores, small.scores, atol=1e-6)


def test_half_precision_records_exact_probabilities(tmp_path):
    bias = make_bias()
    fit(bias, tmp_path, precision="bf16-mixed")
    values, valid = bias.history.values()
    recorded = values[valid]
    assert bool((recorded.bfloat16().float() != recorded).any())


def test_metrics_reach_the_logger(tmp_path):
    bias = make_bias()
    _, trainer = fit(bias, tmp_path, logger=CSVLogger(tmp_path), log_every_n_steps=1)
    for name, value in bias.metrics().items():
        assert float(trainer.logged_metrics[f"active_bias/{name}"]) == pytest.approx(value, rel=1e-6)
    text = next(tmp_path.rglob("metrics.csv")).read_text()
    assert "active_bias/effective_sample_size" in text


def test_a_loader_without_the_sampler_is_refused(tmp_path):
    class Careless(Classifier):
        def train_dataloader(self):
            return DataLoader(ab.with_index(make_data()), batch_size=BATCH_SIZE, shuffle=True)

    bias = make_bias()
    with pytest.raises(RuntimeError, match=r"sampler=bias.sampler\(batch_size=…\)"):
        fit(bias, tmp_path, module=Careless(bias))


def test_a_sampler_that_ignores_accumulation_is_refused(tmp_path):
    class Careless(Classifier):
        def train_dataloader(self):
            sampler = self.bias.sampler(batch_size=BATCH_SIZE)
            return DataLoader(ab.with_index(make_data()), batch_size=BATCH_SIZE, sampler=sampler)

    bias = make_bias()
    with pytest.raises(ValueError, match=r"bias.sampler\(batch_size=16\)"):
        fit(bias, tmp_path, module=Careless(bias), accumulate_grad_batches=2)


def test_a_sampler_made_before_the_ranks_are_known_is_refused():
    bias = make_bias()
    loader = DataLoader(make_data(), batch_size=BATCH_SIZE, sampler=bias.sampler(batch_size=BATCH_SIZE))
    trainer = SimpleNamespace(train_dataloader=loader, world_size=2, accumulate_grad_batches=1)
    with pytest.raises(RuntimeError, match="make it in `train_dataloader`"):
        ActiveBiasCallback(bias).on_train_start(trainer, None)


def test_example_on_two_processes(run_example, plain_accuracy):
    options = {"ranks": 2, "framework": "lightning"}
    assert run_example("lightning_trainer.py", "--devices", "2", **options) == plain_accuracy


class Validated(Classifier):
    """Logs errors as if they had been measured: the best in epoch 0."""

    def validation_step(self, batch, batch_idx):
        self.log("val_error", 0.3 + 0.01 * self.current_epoch)


def test_an_automatic_burn_in_follows_the_logged_error(tmp_path):
    bias = ab.ActiveBias("wpv", num_instances=NUM_INSTANCES, num_classes=2, burn_in="auto")
    callback = ActiveBiasCallback(bias, validation_error="val_error")
    fit(bias, tmp_path, callback=callback, module=Validated(bias), max_epochs=6, limit_val_batches=1)
    assert bias.burn_in_end == 4


def test_an_error_that_nobody_logs_is_refused(tmp_path):
    bias = make_bias()
    callback = ActiveBiasCallback(bias, validation_error="val_eror")
    with pytest.raises(RuntimeError, match="logged no 'val_eror' in validation"):
        fit(bias, tmp_path, callback=callback, module=Validated(bias), limit_val_batches=1)


def test_a_schedule_of_accumulation_is_refused(tmp_path):
    bias = make_bias()
    with pytest.raises(ValueError, match="GradientAccumulationScheduler changes the number of instances"):
        fit(bias, tmp_path, callbacks=[GradientAccumulationScheduler({0: 1, 2: 4})], **NO_FILES)


def test_a_schedule_that_changes_nothing_is_accumulation(tmp_path):
    class Accumulated(Classifier):
        def train_dataloader(self):
            sampler = self.bias.sampler(batch_size=BATCH_SIZE)
            return DataLoader(ab.with_index(make_data()), batch_size=BATCH_SIZE // 4, sampler=sampler)

    bias, plain = make_bias(), make_bias()
    schedule = [GradientAccumulationScheduler({0: 4})]
    fit(bias, tmp_path, module=Accumulated(bias), callbacks=schedule, max_epochs=1, **NO_FILES)
    fit(plain, tmp_path, module=Classifier(plain, BATCH_SIZE // 4), max_epochs=1, accumulate_grad_batches=4)
    assert torch.equal(bias.scores, plain.scores)


class ByHand(Classifier):
    """Accumulates two batches under manual optimisation."""

    def __init__(self, bias, size=BATCH_SIZE) -> None:
        super().__init__(bias)
        self.automatic_optimization = False
        self.size = size

    def train_dataloader(self):
        sampler = self.bias.sampler(batch_size=self.size)
        return DataLoader(ab.with_index(make_data()), batch_size=BATCH_SIZE // 2, sampler=sampler)

    def training_step(self, batch, batch_idx):
        self.manual_backward(super().training_step(batch, batch_idx) / 2)
        if batch_idx % 2 == 1 or self.trainer.is_last_batch:
            self.optimizers().step()
            self.optimizers().zero_grad()


def test_accumulation_by_hand(tmp_path):
    """The plain run stops before the last step, whose mean over two instances Lightning would halve."""
    bias, plain = make_bias(), make_bias()
    module, _ = fit(bias, tmp_path, module=ByHand(bias), limit_train_batches=12)
    other, _ = fit(plain, tmp_path, limit_train_batches=6)
    assert torch.allclose(module.layer.weight, other.layer.weight, atol=1e-6)
    assert torch.allclose(bias.scores, plain.scores, atol=1e-6)
    with pytest.raises(ValueError, match="to be a multiple of the loader's batch size, 4, but got 6"):
        fit(bias, tmp_path, module=ByHand(bias, size=6))


def test_a_checkpoint_of_a_step_counts_the_batch_it_was_written_after(tmp_path, monkeypatch):
    """Before 2.5 Lightning does not count it, and would train it once more."""
    monkeypatch.setattr(activebias.integrations.lightning, "VERSION", (2, 4))
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=7, save_top_k=-1)
    bias = make_bias()
    module, trainer = fit(bias, tmp_path, callbacks=[saver])
    trainer.state.fn = "fit"
    checkpoint = torch.load(tmp_path / "step=7.ckpt", weights_only=True)
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    progress["current"]["completed"] = progress["total"]["completed"] = 6
    ActiveBiasCallback(bias).on_load_checkpoint(trainer, module, checkpoint)
    assert progress["current"]["completed"] == progress["total"]["completed"] == 7


def test_a_checkpoint_without_the_bias_is_refused(tmp_path):
    bias = make_bias()
    saver = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    bare = ActiveBiasCallback(bias, prefix="other/")
    fit(bias, tmp_path, callback=bare, callbacks=[saver])
    with pytest.raises(ValueError, match="holds no bias 'ActiveBiasCallback': it was written without"):
        fit(make_bias(), tmp_path, ckpt_path=tmp_path / "epoch=0.ckpt")


def test_a_test_of_a_checkpoint_leaves_the_bias_as_it_is(tmp_path):
    class Tested(Classifier):
        def test_dataloader(self):
            return self.val_dataloader()

        def test_step(self, batch, batch_idx):
            self.layer(batch[0])

    bias = make_bias()
    saver = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    module, trainer = fit(bias, tmp_path, callbacks=[saver], module=Tested(bias))
    before = bias.history.values()[1].sum().item()
    trainer.test(module, ckpt_path=tmp_path / "epoch=0.ckpt", verbose=False)
    assert bias.history.values()[1].sum().item() == before


class ForgetsTheBias(Classifier):
    def training_step(self, batch, batch_idx):
        _, (x, y) = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)


def test_a_forgotten_loss_is_noticed(tmp_path):
    bias = make_bias()
    with pytest.warns(UserWarning, match=r"not asked in epoch 0, .*return `bias.loss") as noted:
        fit(bias, tmp_path, module=ForgetsTheBias(bias))
    assert sum("was not asked" in str(each.message) for each in noted) == 1


def test_loaders_that_are_made_again_have_a_callback_too(tmp_path):
    """No warning, which would be an error here, says that there is none."""
    fit(make_bias(), tmp_path, reload_dataloaders_every_n_epochs=1)


def test_a_forgotten_callback_is_noticed(tmp_path):
    bias = make_bias()
    with pytest.warns(UserWarning, match=r"callbacks=\[ActiveBiasCallback\(bias\)\]") as warned:
        fit(bias, tmp_path, callback=Callback())
    assert len([each for each in warned if "ActiveBiasCallback" in str(each.message)]) == 1


class TwoTasks(LightningModule):
    """Two heads with a bias and a loader each."""

    def __init__(self, biases) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.biases, self.layer = biases, torch.nn.Linear(4, 4)

    def train_dataloader(self):
        data = ab.with_index(make_data())
        return [
            DataLoader(data, batch_size=BATCH_SIZE, sampler=bias.sampler(batch_size=BATCH_SIZE))
            for bias in self.biases
        ]

    def training_step(self, batch, batch_idx):
        losses = []
        for bias, (index, (x, y)), part in zip(self.biases, batch, (slice(2), slice(2, 4)), strict=True):
            losses.append(bias.loss(self.layer(x)[:, part], y, index))
        return sum(losses)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_two_biases_in_one_trainer_resume(tmp_path):
    def biases():
        return [make_bias("wtc"), make_bias("we")]

    def callbacks_of(pair):
        return [ActiveBiasCallback(pair[0]), ActiveBiasCallback(pair[1], prefix="second/")]

    whole, resumed = biases(), biases()
    saver = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    first, second = callbacks_of(whole)
    fit(None, tmp_path, callback=first, callbacks=[second, saver], module=TwoTasks(whole))
    first, second = callbacks_of(resumed)
    path = tmp_path / "epoch=0.ckpt"
    options = {"callback": first, "callbacks": [second], "ckpt_path": path, **NO_FILES}
    fit(None, tmp_path, module=TwoTasks(resumed), **options)
    for ours, theirs in zip(whole, resumed, strict=True):
        assert torch.equal(ours.scores, theirs.scores)
    assert not torch.equal(whole[0].scores, whole[1].scores)
