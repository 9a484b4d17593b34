"""Active Bias as a scikit-learn classifier, built on skorch."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import nn

from activebias import ActiveBias, Method, with_index

try:
    from skorch import NeuralNetClassifier
except ImportError as error:
    raise ImportError(
        "activebias.integrations.sklearn needs skorch and scikit-learn: pip install 'activebias[sklearn]'"
    ) from error


class ActiveBiasClassifier(NeuralNetClassifier):  # type: ignore[misc]
    """skorch's NeuralNetClassifier that emphasises instances by the network's earlier predictions.

    `method`, `burn_in`, `window`, `remove_outliers` and `seed` are the parameters of `ActiveBias`. A search
    can vary them like any other parameter. `burn_in="auto"` follows skorch's `valid_acc`. All other
    parameters are skorch's. As usual in skorch, the module returns logits for CrossEntropyLoss (the default
    criterion) or probabilities for NLLLoss. Labels are 0 … C-1.

    After `fit`, `bias_` is the trained bias.
    """

    def __init__(
        self,
        module: Any,
        *args: Any,
        method: str | Method = "wtc",
        burn_in: int | Literal["auto"] = 0,
        window: int | None = None,
        remove_outliers: bool = True,
        seed: int = 0,
        criterion: Any = nn.CrossEntropyLoss,
        **kwargs: Any,
    ) -> None:
        """Keep the parameters; `fit` makes the bias when it knows the training set."""
        super().__init__(module, *args, criterion=criterion, **kwargs)
        self.method = method
        self.burn_in = burn_in
        self.window = window
        self.remove_outliers = remove_outliers
        self.seed = seed

    def initialize(self) -> "ActiveBiasClassifier":
        """Start again, without a bias."""
        super().initialize()
        self.bias_: ActiveBias | None = None
        return self

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """Return the loader; in training, with the bias's sampler."""
        if not training:
            return super().get_iterator(dataset, training=False)
        bias = self._bias_for(dataset)
        batch_size = self.get_params_for("iterator_train").get("batch_size", self.batch_size)
        batch_size = len(dataset) if batch_size == -1 else batch_size
        keywords = {
            **self.get_params_for("iterator_train"),
            "batch_size": batch_size,
            "shuffle": False,  # the sampler draws a new order every epoch
            "sampler": bias.sampler(batch_size=batch_size),
        }
        return _IndexedBatches(self, self.iterator_train(with_index(dataset), **keywords))

    def _bias_for(self, dataset: Any) -> ActiveBias:
        if self.bias_ is None:
            self.bias_ = ActiveBias(
                self.method,
                num_instances=len(dataset),
                num_classes=len(self.classes_),
                burn_in=self.burn_in,
                window=self.window,
                remove_outliers=self.remove_outliers,
                seed=self.seed,
            )
        if self.bias_.num_instances != len(dataset):
            raise ValueError(
                f"The bias has {self.bias_.num_instances} training instances, but got {len(dataset)}: "
                "`partial_fit` needs the same training set; `fit` starts again."
            )
        return self.bias_

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Begin an epoch; in `partial_fit` skorch's history continues to count."""
        super().on_epoch_begin(net, **kwargs)
        if self.bias_ is None:
            return
        # skorch computes the scores of an epoch before the next epoch begins.
        if self.bias_.epoch is not None and len(self.history) > 1 and "valid_acc" in self.history[-2]:
            self.bias_.report_validation_error(1 - self.history[-2]["valid_acc"])
        self.bias_.set_epoch(len(self.history) - 1)

    def get_loss(
        self, y_pred: Any, y_true: torch.Tensor, X: Any = None, training: bool = False
    ) -> torch.Tensor:
        """Return the weighted loss in training, otherwise skorch's loss."""
        if not training:
            return torch.as_tensor(super().get_loss(y_pred, y_true, X=X, training=False))
        logits = y_pred[0] if isinstance(y_pred, tuple) else y_pred
        criterion = self.criterion_
        if isinstance(criterion, nn.NLLLoss):
            logits = (logits + torch.finfo(logits.dtype).eps).log()
        elif not isinstance(criterion, nn.CrossEntropyLoss):
            raise ValueError(
                f"Expected `criterion` to be CrossEntropyLoss or NLLLoss, but got {type(criterion).__name__}."
            )
        if criterion.weight is not None or criterion.reduction != "mean":
            raise ValueError(
                "`criterion__weight` and `criterion__reduction` cannot be combined with the bias's weights."
            )
        assert self.bias_ is not None
        return self.bias_.loss(
            logits,
            y_true.to(logits.device),
            self.index_,
            ignore_index=criterion.ignore_index,
            label_smoothing=getattr(criterion, "label_smoothing", 0.0),
        )


class _IndexedBatches:
    """Yields ordinary batches, as callbacks expect, and passes the index of each batch to the net."""

    def __init__(self, net: ActiveBiasClassifier, loader: Any) -> None:
        self._net, self._loader = net, loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        for index, batch in self._loader:
            self._net.index_ = index
            yield batch
