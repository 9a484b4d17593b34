"""Class weights and several labels an example under the Trainer: the loss of the plain Trainer."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

pytest.importorskip("transformers", reason="not installed: pip install 'activebias[huggingface]'")
pytest.importorskip("accelerate", reason="not installed: pip install 'activebias[huggingface]'")

from accelerate.state import AcceleratorState
from transformers import Trainer

import activebias as ab
from activebias.integrations.huggingface.own_loss import check_own_loss
from huggingface_run import (
    CLASS_WEIGHT,
    NUM_SAMPLES,
    collate,
    make_case,
    make_model,
    make_trainer,
    samples,
    several_labels,
)
from scanned import AsScanned, assert_equal_weights


class WeighsClasses(nn.Module):
    """A model whose own loss weighs the classes; no attribute of it is a tensor."""

    def __init__(self, weight=CLASS_WEIGHT, zeros=False):
        super().__init__()
        self.model = make_model(False)
        self.weight = [weight]
        if zeros:
            nn.init.zeros_(self.model.classifier.weight)

    def loss(self, logits, labels):
        return cross_entropy(logits, labels, weight=self.weight[0])

    def forward(self, input_ids, attention_mask, labels=None):
        outputs = self.model(input_ids, attention_mask)
        if labels is not None:
            outputs["loss"] = self.loss(outputs["logits"], labels)
        return outputs


class WithCriterion(WeighsClasses):
    def __init__(self):
        super().__init__()
        self.loss = nn.CrossEntropyLoss(weight=CLASS_WEIGHT)


class FromZeros(WeighsClasses):
    """The losses of all classes are the same at first, so that their mean shows no weights."""

    def __init__(self):
        super().__init__(zeros=True)


class ByHand(WeighsClasses):
    def loss(self, logits, labels):
        weight = self.weight[0][labels]
        return (weight * cross_entropy(logits, labels, reduction="none")).sum() / weight.sum()


def trained(folder, method="scan", options=None, **arguments):
    trainer = make_trainer(method, folder=folder, options=options, **{"num_train_epochs": 1, **arguments})
    trainer.train()
    return trainer


def by_the_plain_trainer(folder, options, **arguments):
    plain = make_trainer(
        folder=folder,
        options=options,
        num_train_epochs=1,
        trainer_class=lambda bias, token_index, **rest: Trainer(**rest),
        **arguments,
    )
    order = AsScanned(NUM_SAMPLES)
    plain._get_train_sampler = lambda train_dataset=None: order
    plain.train()
    return plain.model


@pytest.mark.parametrize("model", [WeighsClasses, WithCriterion, FromZeros])
def test_class_weights_of_a_model_are_taken_over(model, tmp_path):
    ours = trained(tmp_path, options={"model": model()})
    assert torch.equal(ours.class_weight, CLASS_WEIGHT)
    assert_equal_weights(ours.model, by_the_plain_trainer(tmp_path, {"model": model()}))


def test_class_weights_by_hand(tmp_path):
    """Accumulated, the mean is that of the whole step. The evaluation is the model's own."""
    whole, parts = (
        trained(tmp_path, accumulate=accumulate, options={"class_weight": CLASS_WEIGHT.tolist()})
        for accumulate in (1, 4)
    )
    plain = by_the_plain_trainer(tmp_path, {"model": WeighsClasses()})
    assert_equal_weights(whole.model, plain.model)
    assert_equal_weights(parts.model, plain.model)


def test_class_weights_and_the_weights_of_a_method_multiply(tmp_path):
    def by_hand(outputs, labels, num_items_in_batch=None):
        weight = CLASS_WEIGHT[labels]  # the bias divides by the number of labels
        losses = cross_entropy(outputs["logits"], labels, reduction="none")
        return losses * weight * len(weight) / weight.sum()

    own = trained(tmp_path, "wtc", {"compute_loss_func": by_hand}, num_train_epochs=2)
    ours = trained(tmp_path, "wtc", {"class_weight": CLASS_WEIGHT}, num_train_epochs=2)
    assert_equal_weights(own.model, ours.model)
    assert torch.allclose(own.bias.scores, ours.bias.scores, atol=1e-5)


class InHalf(WeighsClasses):
    """Passes its class weights in the precision of the logits."""

    def __init__(self):
        super().__init__(torch.tensor([0.37, 0.71, 0.93]))

    def loss(self, logits, labels):
        return cross_entropy(logits, labels, weight=self.weight[0].to(logits))


def test_class_weights_in_half_precision_are_summed_in_float32(tmp_path, monkeypatch):
    # Older releases set it, and keep it for the trainers that follow.
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    ours = trained(tmp_path, options={"model": InHalf()}, bf16=True)
    theirs = by_the_plain_trainer(tmp_path, {"model": InHalf()}, bf16=True)
    AcceleratorState._reset_state()
    assert ours.class_weight.dtype == torch.bfloat16
    assert_equal_weights(ours.model, theirs)


class WithConfig(WeighsClasses):
    """The Trainer asks the config of a model whose labels it smooths."""

    def __init__(self, smoothing=0.0):
        super().__init__()
        self.config, self.smoothing = self.model.config, smoothing

    def loss(self, logits, labels):
        return cross_entropy(logits, labels, weight=self.weight[0], label_smoothing=self.smoothing)


def test_class_weights_of_a_model_and_label_smoothing_are_torchs(tmp_path):
    """The plain Trainer's smoother leaves the class weights of the model out."""
    ours = trained(tmp_path, options={"model": WithConfig()}, label_smoothing_factor=0.1)
    assert_equal_weights(ours.model, by_the_plain_trainer(tmp_path, {"model": WithConfig(0.1)}))


class Counts(nn.Module):
    """Counts how often it is evaluated; it has nine classes."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def forward(self, x, labels):
        self.number += 1
        return {"logits": x, "loss": cross_entropy(x, labels)}


def test_ranks_evaluate_a_model_equally_often(tmp_path):
    """Each evaluation gathers the parameters that ranks share, so that none may have one more."""
    numbers = set()
    for num_labels in (0, 1, 2, 30):
        model, labels = Counts(), torch.full((30,), -100)
        labels[:num_labels] = torch.arange(num_labels) % 9
        check_own_loss(model, model, {"x": torch.randn(30, 9), "labels": labels}, "labels", False)
        numbers.add(model.number)
    assert numbers == {9}


def test_one_logit_is_named(tmp_path):
    class OneLogit(WeighsClasses):
        def forward(self, input_ids, attention_mask, labels=None):
            logits = self.model(input_ids, attention_mask)["logits"][:, :1]
            return {"loss": logits.mean(), "logits": logits}

    with pytest.raises(ValueError, match=r"Expected `logits` of shape \(8, 3\) .* but got \(8, 1\)"):
        trained(tmp_path, options={"model": OneLogit()})


class WithPlace(WeighsClasses):
    def forward(self, input_ids, attention_mask, place, labels=None):
        return super().forward(input_ids + place, attention_mask, labels)


def test_an_input_of_the_model_called_place(tmp_path):
    def with_place(batch):
        return {**collate(batch), "place": torch.zeros(len(batch), 1, dtype=torch.long)}

    options = {"data_collator": with_place}
    ours = trained(tmp_path, options={**options, "model": WithPlace()})
    assert_equal_weights(ours.model, by_the_plain_trainer(tmp_path, {**options, "model": WithPlace()}))


@pytest.mark.parametrize("weight", [CLASS_WEIGHT, torch.tensor([1.0, 1.0, 5.0])])
def test_class_weights_that_cannot_be_found_are_refused(weight, tmp_path):
    """Also where no label of the first batch has another weight than the others."""
    options = {"model": ByHand(weight)}
    if weight[0] == 1:
        options["train_dataset"] = [sample for sample in samples(False) if sample["labels"] < 2]
        options["train_dataset"] *= 2
        options["train_dataset"] = options["train_dataset"][:NUM_SAMPLES]
    with pytest.raises(
        ValueError, match=r"the model weighs the classes.*Pass the weights .*`class_weight=…`"
    ):
        trained(tmp_path, options=options)
    options["class_weight"] = weight
    trained(tmp_path, options=options)
    options["class_weight"] = weight.flip(0)
    with pytest.raises(ValueError, match="the model weighs the classes"):
        trained(tmp_path, options=options)


def test_class_weights_beside_a_loss_of_ones_own_are_refused(tmp_path):
    options = {"class_weight": CLASS_WEIGHT, "compute_loss_func": lambda *_, **__: None}
    with pytest.raises(ValueError, match="Expected `class_weight` or `compute_loss_func`, but got both"):
        make_trainer(folder=tmp_path, options=options)


def test_several_labels_an_example(tmp_path):
    ours, case = (make_case("scan", "several", folder=tmp_path, num_train_epochs=1) for _ in range(2))
    ours.train()
    options = {"model": case.model, "train_dataset": case.train_dataset.dataset}
    assert_equal_weights(ours.model, by_the_plain_trainer(tmp_path, options))
    assert ours.bias.metrics()["share_unvisited"] == 0


@pytest.mark.filterwarnings("ignore:Label smoothing is not compatible")
def test_the_smoothing_of_several_labels_is_off_as_in_the_plain_trainer(tmp_path):
    smoothed, plain = (
        make_case("scan", "several", folder=tmp_path, num_train_epochs=1, **smoothing)
        for smoothing in ({"label_smoothing_factor": 0.3}, {})
    )
    if smoothed.label_smoother is not None:
        pytest.skip("this transformers smooths several labels an example")
    for trainer in (smoothed, plain):
        trainer.train()
    assert_equal_weights(smoothed.model, plain.model)


def test_a_function_that_makes_the_bias_of_several_labels(tmp_path):
    model = make_model(False, problem_type="multi_label_classification")
    make_bias = partial(ab.ActiveBias, "wtc", num_classes=3, multi_label=True)
    ours = trained(tmp_path, options={"model": model, "bias": make_bias, "train_dataset": several_labels()})
    assert ours.token_index is None
    assert ours.bias.num_instances == 3 * NUM_SAMPLES


class LeavesOut(nn.Module):
    """A model of several labels whose own loss leaves unknown labels out."""

    def __init__(self):
        super().__init__()
        self.model = make_model(False, problem_type="multi_label_classification")

    def forward(self, input_ids, attention_mask, labels=None):
        outputs = self.model(input_ids, attention_mask)
        if labels is not None:
            known = labels != -100
            outputs["loss"] = binary_cross_entropy_with_logits(outputs["logits"][known], labels[known])
        return outputs


def test_unknown_labels_among_several(tmp_path):
    dataset = several_labels()
    for number, sample in enumerate(dataset):
        sample["labels"][number % 4 : number % 4 + 1] = -100  # of a fourth, none
    bias = ab.ActiveBias("scan", num_instances=NUM_SAMPLES, num_classes=3, multi_label=True)
    options = {"train_dataset": dataset, "bias": bias}
    ours = trained(tmp_path, options={**options, "model": LeavesOut()})
    assert_equal_weights(ours.model, by_the_plain_trainer(tmp_path, {**options, "model": LeavesOut()}))


def test_weights_of_positive_labels_are_refused(tmp_path):
    trainer = make_case("scan", "several", folder=tmp_path)
    weight = torch.tensor([1.0, 2.0, 3.0])
    forward = trainer.model.forward

    def weighs(input_ids, attention_mask, labels=None):
        outputs = forward(input_ids, attention_mask)
        if labels is not None:
            loss = nn.functional.binary_cross_entropy_with_logits
            outputs["loss"] = loss(outputs["logits"], labels, pos_weight=weight)
        return outputs

    trainer.model.forward = weighs
    with pytest.raises(ValueError, match="the model weighs the classes or adds another loss"):
        trainer.train()


def test_labels_of_the_other_kind_are_refused(tmp_path):
    several = make_case("scan", "several", folder=tmp_path)
    with pytest.raises(ValueError, match=r"With `multi_label=True` expected float labels .*int64"):
        make_trainer(folder=tmp_path, options={"bias": several.bias}).train()
