"""The method `auto` under Lightning's Trainer: it learns after the last batch of every epoch."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from activebias import learning

pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'activebias[lightning]'")

from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import FSDPStrategy

from activebias.integrations.lightning import ActiveBiasCallback
from lightning_run import BATCH_SIZE, EPOCHS, USUAL_WARNINGS, Classifier, fit, make_bias, make_data

pytestmark = USUAL_WARNINGS


class Called(Classifier):
    """A module that is called as the model is, as most are."""

    def forward(self, x):
        return self.layer(x)


@pytest.fixture(autouse=True)
def learning_in_every_epoch(monkeypatch):
    """On 50 instances it would learn in every hundredth epoch only."""
    monkeypatch.setattr(learning, "PART", 100.0)


def learner(bias, **options):
    return ActiveBiasCallback(bias, learn_from=DataLoader(make_data(), batch_size=BATCH_SIZE), **options)


def test_same_as_a_plain_loop_that_learns(tmp_path):
    bias, plain = make_bias("auto"), make_bias("auto")
    module, _ = fit(bias, tmp_path, callback=learner(bias), module=Called(bias))
    model = Called(plain)
    optimizer = model.configure_optimizers()
    loader = plain.loader(make_data(), BATCH_SIZE)
    for epoch in range(EPOCHS):
        plain.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            model.training_step(batch, 0).backward()
            optimizer.step()
        plain.learn(model, loader, make_data())
    assert bias._memory.curve.num_learnt == learning.FIRST_ROUNDS + EPOCHS - 1
    torch.testing.assert_close(bias.curve(), plain.curve())
    assert torch.allclose(module.layer.weight, model.layer.weight)
    assert bias.weights().std() > 0.01
    assert module.training


@pytest.mark.parametrize("every", [7, 10])
def test_resume_at_a_step_gives_the_same_bits(every, tmp_path):
    """Seven steps are an epoch: the checkpoint of its last step holds what was learnt after it."""
    whole, resumed = make_bias("auto"), make_bias("auto")
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=every, save_top_k=-1)
    module, _ = fit(whole, tmp_path, callback=learner(whole), callbacks=[saver], module=Called(whole))
    path = tmp_path / f"step={every}.ckpt"
    other, _ = fit(resumed, tmp_path, callback=learner(resumed), ckpt_path=path, module=Called(resumed))
    assert resumed._memory.curve.num_learnt == whole._memory.curve.num_learnt > learning.FIRST_ROUNDS
    assert torch.equal(whole.curve()[1], resumed.curve()[1])
    assert torch.equal(whole.weights(), resumed.weights())
    assert torch.equal(module.layer.weight, other.layer.weight)


def test_a_forward_of_ones_own_in_half_precision(tmp_path):
    bias, seen = make_bias("auto"), []

    def forward(module, batch):
        logits = module.layer(batch[0])
        seen.append((logits.dtype, module.training))
        return logits, batch[1]

    fit(bias, tmp_path, callback=learner(bias, forward=forward), max_epochs=1, precision="bf16-mixed")
    assert set(seen) == {(torch.bfloat16, False)}
    assert bias._memory.curve.num_learnt == learning.FIRST_ROUNDS


def test_a_module_that_cannot_be_called_is_refused_at_the_start(tmp_path):
    bias = make_bias("auto")
    with pytest.raises(ValueError, match=r"Classifier has no `forward`.* `forward=lambda module, batch"):
        fit(bias, tmp_path, callback=learner(bias))


def test_sharded_parameters_are_refused():
    bias = make_bias("auto")
    trainer = SimpleNamespace(strategy=FSDPStrategy(), current_epoch=0)
    with pytest.raises(NotImplementedError, match="whole parameters, but FSDPStrategy shards them"):
        learner(bias).on_fit_start(trainer, Called(bias))


def test_without_validation_data_it_is_wtc_and_says_so(tmp_path):
    bias = make_bias("auto")
    with pytest.warns(UserWarning, match="emphasises by the rule"):
        fit(bias, tmp_path)
    assert bias._memory.curve.num_learnt == 0


def test_other_methods_do_not_read_the_validation_data(tmp_path):
    bias = make_bias("wtc")
    fit(bias, tmp_path, callback=ActiveBiasCallback(bias, learn_from=object()), max_epochs=1)
