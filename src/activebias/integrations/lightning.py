"""Active Bias under Lightning's Trainer: one callback."""

from typing import Any

from torch.utils.data import DataLoader

from activebias import ActiveBias
from activebias.sampling import EmphasisSampler

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.utilities import CombinedLoader
except ImportError as error:
    raise ImportError(
        "activebias.integrations.lightning needs Lightning: pip install 'activebias[lightning]'"
    ) from error


class ActiveBiasCallback(Callback):
    """Tells the bias the epoch, puts its state into the Trainer's checkpoints and logs its metrics.

    The module computes `bias.loss(logits, y, index)` in its `training_step`. Its loader is made in
    `train_dataloader`, where the ranks are known, with `sampler=bias.sampler(batch_size=…)`, whose batch size
    counts what is accumulated: the loader's times `accumulate_grad_batches`. Lightning leaves this sampler
    alone.

    With `validation_error`, the name under which the module logs the share of wrong validation examples, the
    bias is told that error after every validation: `burn_in="auto"` needs it.

    A run that goes on from a checkpoint, mid-epoch too, sees only the batches not yet trained on.
    """

    def __init__(
        self,
        bias: ActiveBias,
        *,
        validation_error: str | None = None,
        log_metrics: bool = True,
        prefix: str = "active_bias/",
    ) -> None:
        """Log every metric of the bias under `prefix` at the end of an epoch, unless told not to."""
        self.validation_error = validation_error
        self.bias = bias
        self.log_metrics = log_metrics
        self.prefix = prefix
        self._resumes = False
        self._epoch_was_over = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say the epoch early: a loader with worker processes draws before the epoch starts."""
        if not self._resumes:
            self.bias.set_epoch(trainer.current_epoch)
        self._resumes = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a loader that does not follow the bias."""
        loader, sampler = self._find_sampler(trainer)
        if sampler.num_replicas != trainer.world_size:
            raise RuntimeError(
                f"`bias.sampler(…)` was made for {sampler.num_replicas} rank(s), but {trainer.world_size} "
                "train: make it in `train_dataloader`, which Lightning calls when the ranks are known."
            )
        if loader.batch_size is None:  # the user's own batches; nobody but the user knows their size
            return
        batch_size = loader.batch_size * trainer.accumulate_grad_batches
        if sampler.batch_size != batch_size:
            raise ValueError(
                f"Expected `bias.sampler(batch_size={batch_size})`, the loader's batch size "
                f"({loader.batch_size}) times accumulate_grad_batches "
                f"({trainer.accumulate_grad_batches}), but got {sampler.batch_size}."
            )

    def _find_sampler(self, trainer: Trainer) -> tuple[DataLoader[Any], EmphasisSampler]:
        for loader in CombinedLoader(trainer.train_dataloader, "max_size").flattened:
            for owner in (loader, getattr(loader, "batch_sampler", None)):
                sampler = getattr(owner, "sampler", None)
                if isinstance(sampler, EmphasisSampler) and sampler.belongs_to(self.bias):
                    return loader, sampler
        raise RuntimeError(
            "The training loader does not follow this bias: give it `sampler=bias.sampler(batch_size=…)`. "
            "(With `overfit_batches` Lightning puts a sampler of its own there.)"
        )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the epoch."""
        self.bias.set_epoch(trainer.current_epoch)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell the bias the validation error."""
        if self.validation_error is None or trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self.validation_error not in trainer.callback_metrics:
            raise RuntimeError(
                f"The module logged no {self.validation_error!r} in validation: log it there, as the share "
                "of wrong examples, or give ActiveBiasCallback another `validation_error`."
            )
        self.bias.report_validation_error(float(trainer.callback_metrics[self.validation_error]))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics; they are the same on all ranks, which averages leave as they are."""
        if self.log_metrics:
            metrics = {f"{self.prefix}{name}": value for name, value in self.bias.metrics().items()}
            pl_module.log_dict(metrics, sync_dist=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the bias's state."""
        return self.bias.state_dict()

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """See whether the checkpoint was written when its epoch was over."""
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        self._epoch_was_over = progress["is_last_batch"]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the checkpoint stood; if its epoch was over, a new loader must draw from the next."""
        self.bias.load_state_dict(state_dict)
        self._resumes = self.bias.epoch is not None
        if self._epoch_was_over and self.bias.epoch is not None:
            self.bias.set_epoch(self.bias.epoch + 1)
