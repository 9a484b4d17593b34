"""The Trainer with Active Bias: same numbers as a plain loop, accumulated, resumed and on two ranks."""

import inspect
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import activebias as ab

pytest.importorskip("transformers", reason="not installed: pip install 'activebias[huggingface]'")
pytest.importorskip("accelerate", reason="not installed: pip install 'activebias[huggingface]'")

import accelerate
from transformers import Trainer, TrainingArguments

from activebias.integrations.huggingface import ActiveBiasMixin, ActiveBiasTrainer
from activebias.integrations.huggingface import trainer as trainer_module
from huggingface_run import (
    RANK_CASES,
    collate,
    make_bias,
    make_case,
    make_model,
    make_tokens,
    make_trainer,
    samples,
)
from language_run import STEP_SIZE

RUN = Path(__file__).parents[1] / "helpers" / "huggingface_run.py"


def assert_close(trainer, bias, model) -> None:
    for name, value in model.state_dict().items():
        assert torch.allclose(trainer.model.state_dict()[name], value, atol=1e-5), name
    values, valid = bias.history.values()
    ours, ours_valid = trainer.bias.history.values()
    assert torch.equal(valid, ours_valid)
    assert torch.allclose(values, ours, atol=1e-5)


def plain_loop(method: str, tagging: bool):
    """Return bias and model after the same training without a Trainer."""
    bias, model, tokens = make_bias(method, tagging), make_model(tagging), make_tokens()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [{key: value for key, value in sample.items() if key != "text"} for sample in samples(tagging)]
    sampler = bias.sampler(batch_size=STEP_SIZE, num_sequences=len(data) if tagging else None)
    loader = DataLoader(
        ab.with_index(data), batch_size=STEP_SIZE, sampler=sampler, collate_fn=ab.collate_with_index(collate)
    )
    for epoch in range(3):
        bias.set_epoch(epoch)
        for batch in loader:
            index, labels = batch["index"], batch["labels"]
            if tagging:
                first = tokens._first[index].unsqueeze(-1)
                index = torch.where(labels != -100, first + (labels != -100).cumsum(-1) - 1, -1)
            logits = model(batch["input_ids"], batch["attention_mask"]).logits
            loss = bias.loss(logits, labels, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return bias, model


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize(("method", "tagging"), [("wpv", False), ("wtc", True)])
def test_same_as_the_plain_loop(method, tagging, accumulate, tmp_path):
    """Also accumulated: the loss is divided by the items of the whole step, the last of which is short."""
    trainer = make_trainer(method, folder=tmp_path, tagging=tagging, accumulate=accumulate)
    trainer.train()
    assert_close(trainer, *plain_loop(method, tagging))


@pytest.mark.parametrize("method", ["wpv", "spv"])
@pytest.mark.parametrize("step", [4, 7, 10])
def test_resume_gives_the_same_bits(method, step, tmp_path):
    """Seven steps are an epoch. Dropout is on, whose random state is the Trainer's to keep."""
    options = {"save_strategy": "steps", "save_steps": step, "dropout": 0.1}
    whole = make_trainer(method, folder=tmp_path, **options)
    whole.train()
    resumed = make_trainer(method, folder=tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    for ours, theirs in zip(whole.bias.history.values(), resumed.bias.history.values(), strict=True):
        assert torch.equal(ours, theirs)


def test_resume_from_the_last_checkpoint(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 5, "accumulate": 2}
    whole = make_trainer(folder=tmp_path, max_steps=20, **options)
    whole.train()
    (tmp_path / "checkpoint-20").rename(tmp_path / "later")
    resumed = make_trainer(folder=tmp_path, max_steps=20, **options)
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(whole.bias.scores, resumed.bias.scores)


def test_evaluation_leaves_no_trace(tmp_path):
    trainer = make_trainer(folder=tmp_path, eval_strategy="steps", eval_steps=2)
    trainer.train()
    assert trainer.bias.history.values()[1].sum(-1).tolist() == [1 + 3] * len(samples(False))
    assert "eval_loss" in trainer.evaluate(ab.with_index(samples(False)))


def test_an_automatic_burn_in_follows_the_evaluation(tmp_path):
    trainer = make_trainer(folder=tmp_path, eval_strategy="epoch", num_train_epochs=6)
    trainer.bias = ab.ActiveBias("wpv", num_instances=len(samples(False)), num_classes=3, burn_in="auto")
    trainer.compute_metrics = lambda prediction: {"error": 0.5}
    trainer.validation_error = "eval_error"
    trainer.train()
    assert trainer.bias.burn_in_end == 4


def test_an_error_that_no_evaluation_gives_is_told(tmp_path):
    trainer = make_trainer(folder=tmp_path, eval_strategy="epoch")
    trainer.compute_metrics = lambda prediction: {"error": 0.5}
    trainer.validation_error = "eval_eror"
    with pytest.raises(RuntimeError, match=r"The evaluations gave no 'eval_eror', only .*eval_error"):
        trainer.train()


def test_evaluations_of_other_sets_are_not_meant(tmp_path):
    """A dict of evaluation sets calls each metric by its set's name."""
    trainer = make_trainer(folder=tmp_path, eval_strategy="epoch", num_train_epochs=1)
    trainer.eval_dataset = {"valid": samples(False), "clean": samples(False)}
    errors = iter([0.5, 0.25, 0.125])
    trainer.compute_metrics = lambda prediction: {"error": next(errors)}
    trainer.validation_error = "eval_valid_error"
    trainer.train()
    assert trainer.bias._validation.state_dict()["latest"] == 0.5
    assert trainer.evaluate(samples(False), metric_key_prefix="test")["test_error"] == 0.125
    assert trainer.bias._validation.state_dict()["latest"] == 0.5


def test_label_smoothing_reaches_the_loss(tmp_path):
    smoothed, plain = (
        make_trainer("scan", folder=tmp_path, label_smoothing_factor=factor, max_steps=1)
        for factor in (0.2, 0.0)
    )
    assert smoothed.train().training_loss != plain.train().training_loss
    # What is recorded is the true class's probability all the same.
    assert torch.equal(smoothed.bias.history.values()[0], plain.bias.history.values()[0])


def test_metrics_are_logged_once_an_epoch(tmp_path):
    trainer = make_trainer(folder=tmp_path)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "active_bias_effective_sample_size" in entry]
    assert [round(entry["epoch"]) for entry in logged] == [1, 2, 3]


def test_mix_in_with_a_trainer_of_ones_own(tmp_path):
    class Counting(Trainer):
        num_steps = 0

        def training_step(self, *args, **kwargs):
            self.num_steps += 1
            return super().training_step(*args, **kwargs)

    class Own(ActiveBiasMixin, Counting):
        pass

    trainer = make_trainer(folder=tmp_path, trainer_class=Own, num_train_epochs=1)
    trainer.train()
    assert trainer.num_steps == 7
    assert trainer.bias.metrics()["share_unvisited"] == 0


def test_tags_without_a_token_index_are_refused(tmp_path):
    trainer = make_trainer(folder=tmp_path, tagging=True)
    trainer.token_index = None
    trainer.bias = ab.ActiveBias("wpv", num_instances=len(samples(True)), num_classes=3)
    with pytest.raises(ValueError, match="token_index=TokenIndex"):
        trainer.train()


def test_a_training_set_that_is_given_later_needs_an_index(tmp_path):
    trainer = make_trainer(folder=tmp_path)
    trainer.train_dataset = samples(False)
    with pytest.raises(RuntimeError, match="no 'index': pass `train_dataset` to the Trainer's constructor"):
        trainer.train()
    trainer = make_trainer(folder=tmp_path)
    trainer.train_dataset = ab.with_index(samples(False))
    trainer.train()


def test_a_search_for_the_batch_size_is_refused(tmp_path):
    with pytest.raises(ValueError, match="per_device_train_batch_size"):
        make_trainer(folder=tmp_path, auto_find_batch_size=True)


def test_a_bias_that_has_trained_does_not_begin_again(tmp_path):
    trainer = make_trainer(folder=tmp_path, num_train_epochs=1)
    trainer.train()
    with pytest.raises(ValueError, match="the bias has trained in epoch 0 already: pass `resume_from_"):
        trainer.train()
    with pytest.raises(NotImplementedError, match="a Trainer and a bias in every trial"):
        trainer.hyperparameter_search()
    trainer = make_trainer(folder=tmp_path / "longer", num_train_epochs=2)
    trainer.train()
    with pytest.warns(UserWarning, match="epoch 0 again, and the bias keeps its history up to epoch 1: pass"):
        trainer.train()


def test_a_checkpoint_without_the_bias_is_refused(tmp_path):
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(FileNotFoundError, match=r"checkpoint-3 holds no active_bias\.pt"):
        make_trainer(folder=tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    with pytest.raises(FileNotFoundError, match=r"No checkpoint in .* holds active_bias\.pt"):
        make_trainer(folder=tmp_path).train(resume_from_checkpoint=True)


def test_a_crash_before_the_bias_is_written_resumes_from_an_older_checkpoint(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 5, "max_steps": 20}
    whole = make_trainer(folder=tmp_path, **options)
    whole.train()
    (tmp_path / "checkpoint-20" / "active_bias.pt").unlink()
    with pytest.raises(FileNotFoundError, match="newest checkpoint with a bias is checkpoint-15"):
        make_trainer(folder=tmp_path, **options).train(str(tmp_path / "checkpoint-20"))
    resumed = make_trainer(folder=tmp_path, **options)
    with pytest.warns(UserWarning, match=r"checkpoint-20 holds no active_bias\.pt .* from checkpoint-15"):
        resumed.train(resume_from_checkpoint=True)
    assert torch.equal(whole.bias.scores, resumed.bias.scores)


def test_what_is_overridden_is_what_transformers_calls():
    """Two of the names are private: if a release renames them, this says so before anyone trains."""
    for name, parameters in {
        "_get_train_sampler": ["self", "train_dataset"],
        "_get_collator_with_removed_columns": ["self", "data_collator", "description"],
        "get_batch_samples": ["self", "epoch_iterator", "num_batches", "device"],
        "compute_loss": ["self", "model", "inputs", "return_outputs", "num_items_in_batch"],
    }.items():
        theirs = list(inspect.signature(getattr(Trainer, name)).parameters)
        assert theirs == parameters[: len(theirs)]  # older releases pass fewer
        assert name in vars(ActiveBiasMixin)
    source = inspect.getsource(Trainer.get_train_dataloader)
    source += inspect.getsource(getattr(Trainer, "_get_dataloader", Trainer.get_train_dataloader))
    assert "self._get_train_sampler" in source
    assert "self._get_collator_with_removed_columns(" in source


def test_a_loader_that_does_not_tell_the_epoch(tmp_path, monkeypatch):
    """As Accelerate before 1.7 on several ranks."""
    told = make_trainer(folder=tmp_path)
    told.train()
    monkeypatch.setattr(accelerate.data_loader.DataLoaderShard, "set_epoch", lambda self, epoch: None)
    untold = make_trainer(folder=tmp_path)
    untold.train()
    assert_close(untold, told.bias, told.model)


def test_accumulation_before_transformers_counted_its_steps_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer_module, "VERSION", (4, 51))
    make_trainer(folder=tmp_path)
    with pytest.raises(ValueError, match=r"transformers miscounts the steps .*gradient_accumulation_steps=1"):
        make_trainer(folder=tmp_path, accumulate=2)


@pytest.fixture(scope="module")
def of_two_ranks(programs, tmp_path_factory) -> Path:
    """Return the folder with what each of two ranks ended with, in every case."""
    folder = tmp_path_factory.mktemp("ranks")
    programs.run(RUN, str(folder), folder=folder, ranks=2, framework="huggingface")
    return folder


@pytest.mark.parametrize(("method", "task", "accumulate"), RANK_CASES)
def test_two_ranks_train_like_one(method, task, accumulate, of_two_ranks, tmp_path):
    """50 samples in steps of 8 leave 2: the last batches are filled up, which must not show."""
    states = [torch.load(of_two_ranks / f"{method}-{task}.{rank}", weights_only=True) for rank in (0, 1)]
    trainer = make_case(method, task, folder=tmp_path / "one")
    trainer.train()
    one = trainer.bias.state_dict()
    for state in states:
        assert torch.equal(state["bias"]["history"]["count"], one["history"]["count"])
        assert torch.allclose(state["bias"]["history"]["values"], one["history"]["values"], atol=1e-5)
        for name, value in trainer.model.state_dict().items():
            assert torch.allclose(state["model"][name], value, atol=1e-5), name
    assert torch.equal(states[0]["bias"]["scores"]["values"], states[1]["bias"]["scores"]["values"])


@pytest.mark.parametrize("rank", [0, 1])
def test_two_ranks_resume_with_dropout_and_a_last_batch_that_is_not_full(rank, of_two_ranks):
    """Accelerate would fill the batch up with the epoch's first examples, which a resumed run skips."""
    whole, resumed = (
        torch.load(of_two_ranks / f"{name}.{rank}", weights_only=True) for name in ("whole", "resumed")
    )
    for name, value in whole["model"].items():
        assert torch.equal(value, resumed["model"][name]), name
    assert torch.equal(whole["bias"]["history"]["values"], resumed["bias"]["history"]["values"])


def test_an_order_of_the_trainers_own_is_refused(tmp_path):
    name = "group_by_length" if hasattr(TrainingArguments, "group_by_length") else "train_sampling_strategy"
    with pytest.raises(ValueError, match="but got 'group_by_length': the bias orders the training set"):
        make_trainer(folder=tmp_path, **{name: "group_by_length"})


class Renamed(torch.nn.Module):
    """A model that calls its labels otherwise."""

    def __init__(self):
        super().__init__()
        self.model = make_model(False)

    def forward(self, input_ids, attention_mask, tags=None):
        return self.model(input_ids, attention_mask, labels=tags)


def with_collator(tmp_path, change):
    trainer = make_trainer("scan", folder=tmp_path)
    trainer.data_collator = lambda batch: change(collate(batch))
    return trainer


def test_labels_by_another_name(tmp_path):
    def rename(batch):
        collated = collate([{"input_ids": each["input_ids"], "labels": each["tags"]} for each in batch])
        collated["tags"] = collated.pop("labels")
        return collated

    data = [{"input_ids": each["input_ids"], "tags": each["labels"]} for each in samples(False)]
    model = Renamed()
    renamed = ActiveBiasTrainer(
        model=model,
        args=make_trainer(folder=tmp_path, max_steps=6, label_names=["tags"]).args,
        train_dataset=data,
        eval_dataset=data,
        data_collator=rename,
        optimizers=(torch.optim.SGD(model.parameters(), lr=0.1), None),
        bias=make_bias("scan", False),
    )
    renamed.create_scheduler(6)
    loss = renamed.train().training_loss
    assert renamed.evaluate()["eval_loss"] < loss


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda batch: {
                "input_ids": batch["input_ids"],
                "start_positions": batch["labels"],
                "end_positions": batch["labels"],
            },
            "found start_positions and end_positions among",
        ),
        (lambda batch: {"input_ids": batch["input_ids"]}, "found none among input_ids, index: .*rewards"),
        (
            lambda batch: {**batch, "labels": torch.zeros(len(batch["labels"]), 3)},
            "several labels an example make the bias with `multi_label=True`",
        ),
        (lambda batch: {**batch, "labels": batch["labels"].float()}, "regression.*`bias.weigh`"),
    ],
)
def test_tasks_without_one_class_label_are_refused(change, message, tmp_path):
    trainer = with_collator(tmp_path, change)
    trainer.label_names = ["labels", "start_positions", "end_positions"]
    with pytest.raises(ValueError, match=message):
        trainer.train()


def test_example_of_sequences(run_example, plain_accuracy):
    assert run_example("huggingface_sequence.py", framework="huggingface") == pytest.approx(
        plain_accuracy, abs=0.03
    )


def test_example_of_tagging(run_example):
    """One tag in ten is wrong in training, none in the test. Two ranks: tests above, and `make examples`."""
    assert run_example("huggingface_tagging.py", framework="huggingface") > 0.97
