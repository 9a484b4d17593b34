"""The bias in the Trainer's checkpoints, and the validation errors that it gets from evaluations."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from activebias.integrations.huggingface.learning import evaluation_set, learn_from_evaluation_set

if TYPE_CHECKING:
    from activebias.integrations.huggingface.trainer import ActiveBiasMixin

STATE_NAME = "active_bias.pt"


def checkpoint_to_resume(resume_from: str | bool | None, output_dir: str) -> str | None:
    """Return the folder to resume from: the given folder, or for True the newest that holds the bias."""
    if not resume_from:
        return None
    folders = sorted(
        (folder for folder in Path(output_dir).glob("checkpoint-*") if folder.name[11:].isdigit()),
        key=lambda folder: int(folder.name[11:]),
    )
    whole = [folder for folder in folders if (folder / STATE_NAME).is_file()]
    if resume_from is not True:
        if not (Path(resume_from) / STATE_NAME).is_file():
            newest = f" The newest checkpoint with a bias is {whole[-1].name}." if whole else ""
            raise FileNotFoundError(
                f"{resume_from} holds no {STATE_NAME}: it was written without the bias, or a crash came in "
                f"between.{newest}"
            )
        return str(resume_from)
    if not folders:
        return None  # the Trainer says so
    if not whole:
        raise FileNotFoundError(
            f"No checkpoint in {output_dir} holds {STATE_NAME}: they were written without the bias."
        )
    if whole[-1] != folders[-1]:
        warnings.warn(
            f"{folders[-1].name} holds no {STATE_NAME} (a crash came in between, or it was written without "
            f"the bias), so training resumes from {whole[-1].name}.",
            stacklevel=3,
        )
    return str(whole[-1])


class StateCallback(TrainerCallback):
    """Writes the bias's state into every checkpoint, and logs its metrics at the end of every epoch."""

    def __init__(self, trainer: "ActiveBiasMixin") -> None:
        """Follow the trainer's bias."""
        self._trainer = trainer
        self._trains = False
        self._metrics: set[str] | None = None  # of the evaluations since the epoch began
        self._has_reported = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Listen to evaluations from now on; raise if the method cannot learn from the evaluation set."""
        evaluation_set(self._trainer)
        self._trains = True
        self._metrics, self._has_reported = None, False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Raise if the step was not weighed; after an epoch's last step let the method `auto` learn.

        A checkpoint of this step is written later, and holds the curve.
        """
        if not self._trainer.has_weighed:
            raise RuntimeError(
                f"The bias was not asked for this step's weights: `compute_loss` of "
                f"{type(self._trainer).__name__} must call `super().compute_loss(…)`."
            )
        if state.epoch is not None and float(state.epoch).is_integer():
            learn_from_evaluation_set(self._trainer)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the bias beside the Trainer's files."""
        if args.should_save:
            folder = os.path.join(str(args.output_dir), f"checkpoint-{state.global_step}")
            self._trainer.bias.save(os.path.join(folder, STATE_NAME))

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Report the validation error; evaluations of other sets have other names and are ignored."""
        name = self._trainer.validation_error
        if name is None or not self._trains:
            return
        self._metrics = {*(self._metrics or ()), *(metrics or ())}
        if metrics and name in metrics:
            self._trainer.bias.report_validation_error(metrics[name])
            self._has_reported = True

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Raise if the last epoch's evaluations did not give the error; begin the epoch.

        Accelerate's loader tells the epoch, on several ranks since 1.7.
        """
        self._require_report()
        if self._trainer.order is not None:
            self._trainer.order.set_epoch(int((state.epoch or 0) + 1e-6))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Raise if the last epoch's evaluations did not give the error."""
        self._trains = False
        self._require_report()

    def _require_report(self) -> None:
        if self._metrics is not None and not self._has_reported:
            raise RuntimeError(
                f"The evaluations gave no {self._trainer.validation_error!r}, only "
                f"{', '.join(sorted(self._metrics))}: return it from `compute_metrics`, without the 'eval_', "
                "as the share of wrong examples, or give another `validation_error`."
            )
        self._metrics, self._has_reported = None, False

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log the metrics."""
        metrics = self._trainer.bias.metrics()
        self._trainer.log({f"active_bias_{name}": value for name, value in metrics.items()})
