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
    """skorch's NeuralNetClassifier that emphasises instances by what the network has predicted for them.

    `method`, `burn_in`, `window`, `remove_outliers` and `seed` are those of `ActiveBias` and can be searched
    over like any other parameter; `burn_in="auto"` follows skorch's `valid_acc`. Everything else is skorch's.
    The module returns logits (the default criterion is CrossEntropyLoss), or probabilities with NLLLoss, as
    skorch has it; labels are 0 … C-1.

    The bias that was trained with is `bias_`.
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
        """Keep the parameters; the bias is made in `fit`, when the training set is known."""
        super().__init__(module, *args, criterion=criterion, **kwargs)
        self.method = method
        self.burn_in = burn_in
        self.window = window
        self.remove_outliers = remove_outliers
        self.seed = seed

    def initialize(self) -> "ActiveBiasClassifier":
        """Begin anew, without a bias."""
        super().initialize()
        self.bias_: ActiveBias | None = None
        return self

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """Return the loader; in training, in the order of the bias."""
        if not training:
            return super().get_iterator(dataset, training=False)
        bias = self._bias_for(dataset)
        batch_size = self.get_params_for("iterator_train").get("batch_size", self.batch_size)
        batch_size = len(dataset) if batch_size == -1 else batch_size
        keywords = {
            **self.get_params_for("iterator_train"),
            "batch_size": batch_size,
            "shuffle": False,  # the sampler's order is the method's, a new one each epoch
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
                f"The bias knows {self.bias_.num_instances} training instances, but {len(dataset)} came: "
                "`partial_fit` must go on with the same training set; `fit` begins anew."
            )
        return self.bias_

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Begin an epoch; skorch's history goes on counting in `partial_fit`."""
        super().on_epoch_begin(net, **kwargs)
        if self.bias_ is None:
            return
        # The scores of an epoch are there when the next one begins.
        if self.bias_.epoch is not None and len(self.history) > 1 and "valid_acc" in self.history[-2]:
            self.bias_.report_validation_error(1 - self.history[-2]["valid_acc"])
        self.bias_.set_epoch(len(self.history) - 1)

    def get_loss(
        self, y_pred: Any, y_true: torch.Tensor, X: Any = None, training: bool = False
    ) -> torch.Tensor:
        """Return the weighted loss in training, and skorch's own otherwise."""
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
                "`criterion__weight` and `criterion__reduction` have no place beside the bias's."
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
    """Yields ordinary batches, which callbacks expect, and tells the net the index of each."""

    def __init__(self, net: ActiveBiasClassifier, loader: Any) -> None:
        self._net, self._loader = net, loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        for index, batch in self._loader:
            self._net.index_ = index
            yield batch
