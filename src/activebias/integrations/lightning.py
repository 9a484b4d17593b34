"""Active Bias under Lightning's Trainer: one callback."""

import warnings
from typing import Any

from torch.utils.data import DataLoader

from activebias import ActiveBias, TokenIndex
from activebias.internal import Forward
from activebias.sampling import EmphasisSampler

try:
    from lightning import __version__
    from lightning.pytorch import Callback, LightningModule, Trainer, strategies
    from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
    from lightning.pytorch.utilities import CombinedLoader
except ImportError as error:
    raise ImportError(
        "activebias.integrations.lightning needs Lightning: pip install 'activebias[lightning]'"
    ) from error


VERSION = tuple(map(int, __version__.split(".")[:2]))
DEFAULT_PREFIX = "active_bias/"
SHARDING = ("DeepSpeedStrategy", "FSDPStrategy", "ModelParallelStrategy")  # the last one since 2.3


class ActiveBiasCallback(Callback):
    """Passes the epoch to the bias, saves its state in the Trainer's checkpoints, and logs its metrics.

    The module computes `bias.loss(logits, y, index)` in its `training_step`. It makes its loader in
    `train_dataloader`, when the ranks are known, with `sampler=bias.sampler(batch_size=…)`. That batch size
    includes accumulation: the loader's batch size times `accumulate_grad_batches`, or times the batches that
    manual optimisation accumulates. Lightning does not replace this sampler.

    `validation_error` is the name under which the module logs the share of wrong validation examples. The
    bias receives this error after every validation, which `burn_in="auto"` needs.

    A run that resumes from a checkpoint, even in mid-epoch, trains only the remaining batches. A checkpoint
    that was written without the bias is refused. `Trainer.test` and `validate` leave the bias as it is.

    `learn_from` is the validation data of the method `auto`: a loader or a data set. The bias learns after
    the last batch of every epoch; a checkpoint of that step holds the curve. If the module is not called as
    `module(*inputs)`, give `forward`, a function of module and batch that returns (logits, targets). `tokens`
    is the `TokenIndex` of tagging. See `bias.learn`.

    Two biases in one Trainer, each with a loader of its own, have two callbacks with different prefixes.
    """

    def __init__(
        self,
        bias: ActiveBias,
        *,
        validation_error: str | None = None,
        learn_from: Any = None,
        forward: Forward | None = None,
        tokens: TokenIndex | None = None,
        log_metrics: bool = True,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        """Log every metric of the bias under `prefix` at the end of an epoch, unless switched off."""
        self.validation_error = validation_error
        self.learn_from, self.forward, self.tokens = learn_from, forward, tokens
        self.bias = bias
        self.log_metrics = log_metrics
        self.prefix = prefix
        self._resumes = False
        self._trains = True
        self._has_warned = False
        self._epoch_was_over = False
        self._before_pass: dict[str, Any] | None = None  # the state before a pass that does not train

    @property
    def state_key(self) -> str:
        """The name of the bias in a checkpoint; it contains the prefix, unless that is the default."""
        if self.prefix == DEFAULT_PREFIX:
            return super().state_key
        return self._generate_state_key(prefix=self.prefix)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the epoch early, because a loader's worker processes draw before the epoch starts."""
        if self._learns:
            self._check_learning(trainer, pl_module)
        if not self._resumes:
            self.bias.set_epoch(trainer.current_epoch)
        self._resumes = False

    @property
    def _learns(self) -> bool:
        return self.learn_from is not None and self.bias.method.learns

    def _check_learning(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise before the first epoch if the bias cannot learn after it."""
        if isinstance(trainer.strategy, tuple(getattr(strategies, name, ()) for name in SHARDING)):
            raise NotImplementedError(
                f"`learn_from` needs whole parameters, but {type(trainer.strategy).__name__} shards them: "
                f"leave it out, and method {self.bias.method.name!r} emphasises by the rule p̄ (1 - p̄)."
            )
        if self.forward is None and type(pl_module).forward is LightningModule.forward:
            raise ValueError(
                f"{type(pl_module).__name__} has no `forward`, which the method {self.bias.method.name!r} "
                "learns by: give ActiveBiasCallback `forward=lambda module, batch: (logits, targets)`."
            )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After an epoch's last batch let the method `auto` learn; checkpoints are written later.

        Warn once if the bias was asked in none of the epoch's batches.
        """
        if (
            trainer.is_last_batch
            and not self._find_sampler(trainer)[1].order.recorded
            and not self._has_warned
        ):
            self._has_warned = True
            warnings.warn(
                f"The bias was not asked in epoch {trainer.current_epoch}, so nothing is emphasised: let "
                "`training_step` return `bias.loss(logits, targets, index)`, or call `bias.weigh` or "
                "`bias.record` in it.",
                stacklevel=2,
            )
        if self._learns and trainer.is_last_batch:
            with trainer.precision_plugin.forward_context():
                self.bias.learn(
                    pl_module,
                    self._find_sampler(trainer)[0],
                    self.learn_from,
                    tokens=self.tokens,
                    forward=self.forward,
                )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise if the loader does not use the bias's sampler."""
        loader, sampler = self._find_sampler(trainer)
        sampler.order.has_callback = True
        if sampler.num_replicas != trainer.world_size:
            raise RuntimeError(
                f"`bias.sampler(…)` was made for {sampler.num_replicas} rank(s), but {trainer.world_size} "
                "train: make it in `train_dataloader`, which Lightning calls when the ranks are known."
            )
        _refuse_cycling(trainer, loader)
        if loader.batch_size is None:  # the user makes the batches, and only the user knows their size
            return
        if not pl_module.automatic_optimization:  # the module accumulates as it likes
            if sampler.batch_size % loader.batch_size:
                raise ValueError(
                    f"Expected `bias.sampler(batch_size=…)` to be a multiple of the loader's batch size, "
                    f"{loader.batch_size}, but got {sampler.batch_size}: pass the instances that the module "
                    "accumulates before it calls `optimizer.step()`."
                )
            return
        accumulate = _accumulated_batches(trainer)
        batch_size = loader.batch_size * accumulate
        if sampler.batch_size != batch_size:
            raise ValueError(
                f"Expected `bias.sampler(batch_size={batch_size})`, the loader's batch size "
                f"({loader.batch_size}) times accumulate_grad_batches ({accumulate}), but got "
                f"{sampler.batch_size}."
            )

    def _find_sampler(self, trainer: Trainer) -> tuple[DataLoader[Any], EmphasisSampler]:
        for loader in CombinedLoader(trainer.train_dataloader, "max_size").flattened:
            for owner in (loader, getattr(loader, "batch_sampler", None)):
                sampler = getattr(owner, "sampler", None)
                if isinstance(sampler, EmphasisSampler) and sampler.bias is self.bias:
                    return loader, sampler
        raise RuntimeError(
            "The training loader does not follow this bias: give it `sampler=bias.sampler(batch_size=…)`. "
            "(With `overfit_batches` Lightning replaces the sampler.)"
        )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the epoch."""
        self.bias.set_epoch(trainer.current_epoch)
        if _averages_batch_norm(trainer):
            self._before_pass = self.bias.state_dict()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the validation error to the bias."""
        if self.validation_error is None or trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self.validation_error not in trainer.callback_metrics:
            raise RuntimeError(
                f"The module logged no {self.validation_error!r} in validation: log it there, as the share "
                "of wrong examples, or give ActiveBiasCallback another `validation_error`."
            )
        self.bias.report_validation_error(float(trainer.callback_metrics[self.validation_error]))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics. They are equal on all ranks, so an average over the ranks does not change them."""
        if self._before_pass is not None:
            self.bias.load_state_dict(self._before_pass)
            self._before_pass = None
        if self.log_metrics:
            metrics = {f"{self.prefix}{name}": value for name, value in self.bias.metrics().items()}
            pl_module.log_dict(metrics, sync_dist=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the bias's state."""
        return self.bias.state_dict()

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note whether the checkpoint was written at the end of its epoch; refuse one without the bias."""
        self._trains = trainer.state.fn == "fit"
        if not self._trains:
            return
        if self.state_key not in checkpoint.get("callbacks", {}):
            raise ValueError(
                f"The checkpoint holds no bias {self.state_key!r}: it was written without "
                "ActiveBiasCallback, or with another prefix. To begin with the checkpoint's weights and an "
                "empty history, load the weights into the module, and call `fit` without `ckpt_path`."
            )
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        self._epoch_was_over = progress["is_last_batch"]
        # Before 2.5 Lightning would train once more the batch that the checkpoint was written after. Later
        # releases count that batch: counted here too, an epoch that was over would get one more batch.
        for count in (progress["current"], progress["total"]) if VERSION < (2, 5) else ():
            count["completed"] = max(count["completed"], count["processed"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the bias's state; after a finished epoch, a new loader must draw for the next epoch."""
        if not self._trains:
            return
        self.bias.load_state_dict(state_dict)
        self._resumes = self.bias.epoch is not None
        if self._epoch_was_over and self.bias.epoch is not None:
            self.bias.set_epoch(self.bias.epoch + 1)


def _refuse_cycling(trainer: Trainer, loader: DataLoader[Any]) -> None:
    """Raise if Lightning would begin the bias's loader again within an epoch, beside a longer loader."""
    combined = getattr(trainer.fit_loop, "_combined_loader", None)
    if getattr(combined, "_mode", None) == "max_size_cycle" and trainer.num_training_batches > len(loader):
        raise ValueError(
            f"The loader of the bias has {len(loader)} batches, but the longest loader "
            f"{trainer.num_training_batches}. Lightning would begin the loader of the bias again within the "
            "epoch, which is one pass over it for the bias. Return `CombinedLoader(loaders, 'min_size')`, "
            "which ends the epoch with the shortest loader, or 'max_size', which gives None in place of the "
            "batches of a loader that has ended."
        )


def _averages_batch_norm(trainer: Trainer) -> bool:
    """Return whether this epoch only averages batch norm, for the weights of StochasticWeightAveraging.

    It passes over the training set once more, by the `training_step`, but trains nothing.
    """
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    averaging = [each for each in callbacks if isinstance(each, StochasticWeightAveraging)]
    return any(trainer.current_epoch == each.swa_end + 1 for each in averaging)


def _accumulated_batches(trainer: Trainer) -> int:
    """Return the batches of one optimiser step, which a scheduler must not change."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    schedulers = [each for each in callbacks if isinstance(each, GradientAccumulationScheduler)]
    if not schedulers:
        return trainer.accumulate_grad_batches
    factors = {schedulers[0].get_accumulate_grad_batches(epoch) for epoch in (0, *schedulers[0].scheduling)}
    if len(factors) > 1:
        raise ValueError(
            "GradientAccumulationScheduler changes the number of instances in a step during training, which "
            "`bias.sampler(batch_size=…)` cannot follow: use one number for all epochs, "
            "`Trainer(accumulate_grad_batches=…)`."
        )
    return factors.pop()
