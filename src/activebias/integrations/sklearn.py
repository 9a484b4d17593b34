"""Active Bias as a scikit-learn classifier, built on skorch."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.utils.data import Subset

from activebias import ActiveBias, Method, with_index

try:
    from skorch import NeuralNetClassifier
    from skorch.dataset import unpack_data
    from skorch.utils import to_numpy
except ImportError as error:
    raise ImportError(
        "activebias.integrations.sklearn needs skorch and scikit-learn: pip install 'activebias[sklearn]'"
    ) from error


# The criteria that the bias computes itself. A subclass with another constructor has the same `forward`.
FORWARDS = (nn.CrossEntropyLoss.forward, nn.NLLLoss.forward, nn.BCEWithLogitsLoss.forward)


class ActiveBiasClassifier(NeuralNetClassifier):  # type: ignore[misc]
    """skorch's NeuralNetClassifier that emphasises instances by the network's earlier predictions.

    `method`, `burn_in`, `window`, `remove_outliers` and `seed` are the parameters of `ActiveBias`. A search
    can vary them like any other parameter. `burn_in="auto"` follows skorch's `valid_acc`; the method
    "auto" learns from the validation split (`train_split`) after every epoch. All other
    parameters are skorch's. As usual in skorch, the module returns logits for CrossEntropyLoss (the default
    criterion), probabilities for NLLLoss, or one logit for two classes and BCEWithLogitsLoss.

    Labels of any kind are encoded in the order of `classes_`, and `predict` returns them. If a training set
    may lack a class, and labels are not 0 … C-1, pass `classes=…`. A Dataset as X holds 0 … C-1.

    `criterion__weight` are class weights. Sample weights come in X, `{"x": …, "sample_weight": …}`; the
    module sees the other entries. Both multiply the weights of the method.

    After `fit`, `bias_` is the trained bias. It is stored with the criterion: `save_params(f_criterion=…)`,
    `load_params` and skorch's Checkpoint hold it.
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

    @property
    def bias_(self) -> ActiveBias | None:
        """The trained bias, None before `fit`."""
        return _memory_of(self).bias

    def initialize(self) -> "ActiveBiasClassifier":
        """Start again, without a bias."""
        super().initialize()
        self.criterion_.active_bias = BiasMemory()
        self._num_classes: int | None = None
        self._decodes = True
        return self

    def initialize_criterion(self) -> "ActiveBiasClassifier":
        """Make the criterion, which holds the bias: a new criterion takes it over."""
        memory = _memory_of(self) if hasattr(self, "criterion_") else BiasMemory()
        super().initialize_criterion()
        self.criterion_.active_bias = memory
        return self

    def fit_loop(self, X: Any, y: Any = None, epochs: int | None = None, **fit_params: Any) -> Any:
        """Train on encoded labels; callbacks see these too."""
        if "sample_weight" in fit_params:
            raise TypeError(
                "`fit` hands its keywords to the module: pass sample weights in X, "
                '`{"x": inputs, "sample_weight": weights}`.'
            )
        if y is not None:
            y = self._encoded(X, y, fit_params)
        self._decodes = False
        self._forward_params = _for_forward(fit_params)
        try:
            return super().fit_loop(X, y, epochs, **fit_params)
        finally:
            self._decodes, self._forward_params = True, {}

    def check_data(self, X: Any, y: Any) -> None:
        """Check the data as skorch does, but keep the classes as they were before the encoding."""
        classes = getattr(self, "classes_inferred_", None)
        super().check_data(X, y)
        if y is not None and classes is not None:
            self.classes_inferred_ = classes

    def _encoded(self, X: Any, y: Any, fit_params: dict[str, Any]) -> np.ndarray:
        labels = np.asarray(to_numpy(y) if isinstance(y, torch.Tensor) else y)
        if self._num_classes is None:
            self._num_classes = self._count_outputs(X, fit_params)
            if self.classes is None:
                self.classes_inferred_ = _classes_of(labels, self._num_classes)
        classes = self.classes_
        if len(classes) != self._num_classes:
            raise ValueError(
                f"The module has outputs for {self._num_classes} classes, but y has {len(classes)}: change "
                "the module's outputs, or pass all classes, `classes=[…]`."
            )
        order = np.argsort(classes)
        place = np.searchsorted(classes, labels, sorter=order).clip(max=len(classes) - 1)
        codes: np.ndarray = order[place].astype(np.int64)
        if not (wrong := classes[codes] != labels).any():
            return codes
        raise ValueError(
            f"Expected labels in y to be among {classes.tolist()}, but got {labels[wrong][0].item()!r}."
        )

    def _count_outputs(self, X: Any, fit_params: dict[str, Any]) -> int:
        """Return the number of classes that the module has outputs for, seen on the first example."""
        first = next(iter(super().get_iterator(Subset(self.get_dataset(X), [0]), training=False)))
        self._set_training(False)
        with torch.no_grad():
            outputs = self.infer(unpack_data(first)[0], **_for_forward(fit_params))
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        if logits.dim() == 1:
            return 2
        if logits.shape[-1] == 1:
            raise ValueError(
                "The module returns one logit an example, for two classes: pass "
                "`criterion=torch.nn.BCEWithLogitsLoss`."
            )
        return int(logits.shape[-1])

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Return the module's outputs; one logit an example comes as (B,). It never sees sample weights."""
        if isinstance(x, dict):
            x = {name: value for name, value in x.items() if name != "sample_weight"}
        outputs = super().infer(x, **fit_params)
        if not isinstance(_criterion_of(self), nn.BCEWithLogitsLoss):
            return outputs
        if isinstance(outputs, tuple):
            return (outputs[0].flatten(), *outputs[1:])
        return outputs.flatten()

    def predict(self, X: Any) -> np.ndarray:
        """Return the labels of X."""
        codes: np.ndarray = super().predict(X)
        if not self._decodes or (self.classes is None and not hasattr(self, "classes_inferred_")):
            return codes
        labels: np.ndarray = self.classes_[codes]
        return labels

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
        settings = {
            name: getattr(self, name) for name in ("method", "burn_in", "window", "remove_outliers", "seed")
        }
        memory = _memory_of(self)
        if memory.bias is None:
            num_classes = self._num_classes or len(self.classes_)
            bias = ActiveBias(num_instances=len(dataset), num_classes=num_classes, **settings)
            memory.begin(bias, settings)
            return bias
        if memory.bias.num_instances != len(dataset):
            raise ValueError(
                f"The bias has {memory.bias.num_instances} training instances, but got {len(dataset)}: "
                "`partial_fit` needs the same training set; `fit` starts again."
            )
        for name, value in settings.items():
            if value != memory.settings[name]:
                raise ValueError(
                    f"`{name}` is {value!r} now, but the bias was made with {memory.settings[name]!r}: after "
                    "`set_params`, `fit` starts again (without `warm_start`), and so does `initialize`."
                )
        return memory.bias

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Begin an epoch; in `partial_fit` skorch's history continues to count.

        The bias counts on by itself where its state was loaded without skorch's history.
        """
        super().on_epoch_begin(net, **kwargs)
        if self.bias_ is None:
            return
        # skorch computes the scores of an epoch before the next epoch begins.
        if self.bias_.epoch is not None and len(self.history) > 1 and "valid_acc" in self.history[-2]:
            self.bias_.report_validation_error(1 - self.history[-2]["valid_acc"])
        following = 0 if self.bias_.epoch is None else self.bias_.epoch + 1
        self.bias_.set_epoch(max(len(self.history) - 1, following))

    def on_epoch_end(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Let the method `auto` learn from the validation split; skorch's Checkpoint comes later."""
        super().on_epoch_end(net, dataset_train=dataset_train, dataset_valid=dataset_valid, **kwargs)
        bias = self.bias_
        if bias is None or not bias.method.learns or dataset_valid is None:
            return
        # In the order of predictions, not in the bias's.
        parts = [
            super(ActiveBiasClassifier, self).get_iterator(part) for part in (dataset_train, dataset_valid)
        ]

        def forward(module: nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
            inputs, targets = unpack_data(batch)
            return self._logits(self.infer(inputs, **self._forward_params)), targets

        bias.learn(self.module_, *parts, forward=forward)

    def _logits(self, outputs: Any) -> torch.Tensor:
        """Return the logits of the module's outputs; with NLLLoss the outputs are probabilities."""
        logits: torch.Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
        if isinstance(_criterion_of(self), nn.NLLLoss):
            return (logits + torch.finfo(logits.dtype).eps).log()
        return logits

    def get_loss(
        self, y_pred: Any, y_true: torch.Tensor, X: Any = None, training: bool = False
    ) -> torch.Tensor:
        """Return the weighted loss in training, otherwise skorch's loss."""
        criterion = _criterion_of(self)
        if not training:
            if isinstance(criterion, nn.BCEWithLogitsLoss):
                y_true = y_true.float()
            return torch.as_tensor(super().get_loss(y_pred, y_true, X=X, training=False))
        logits = self._logits(y_pred)
        if type(criterion).forward not in FORWARDS:
            raise ValueError(
                "Expected `criterion` to be CrossEntropyLoss, NLLLoss or BCEWithLogitsLoss, but got "
                f"{type(criterion).__name__}, whose `forward` would not be called."
            )
        binary = isinstance(criterion, nn.BCEWithLogitsLoss)
        if binary and (criterion.weight is not None or criterion.pos_weight is not None):
            raise ValueError(
                "`criterion__weight` and `criterion__pos_weight` of BCEWithLogitsLoss cannot be combined "
                "with the bias's weights: give two logits to CrossEntropyLoss, with `criterion__weight`."
            )
        assert self.bias_ is not None
        return self.bias_.loss(
            logits,
            y_true.to(logits.device),
            self.index_,
            ignore_index=getattr(criterion, "ignore_index", -100),
            label_smoothing=getattr(criterion, "label_smoothing", 0.0),
            class_weight=criterion.weight,
            sample_weight=X.get("sample_weight") if isinstance(X, dict) else None,
            reduction=criterion.reduction,
        )


class BiasMemory(nn.Module):
    """Holds the bias within the criterion, whose `state_dict` skorch saves and loads."""

    def __init__(self) -> None:
        """Begin without a bias."""
        super().__init__()
        self.bias: ActiveBias | None = None
        self.settings: dict[str, Any] = {}
        self._loaded: dict[str, Any] | None = None  # the state of a bias that is yet to be made

    def begin(self, bias: ActiveBias, settings: dict[str, Any]) -> None:
        """Keep a new bias; it goes on where a loaded state stood."""
        if self._loaded is not None:
            bias.load_state_dict(self._loaded)
        self.bias, self.settings, self._loaded = bias, settings, None

    def get_extra_state(self) -> dict[str, Any]:
        """Return the bias's state."""
        return {"bias": self._loaded if self.bias is None else self.bias.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load the bias's state, or keep it for the bias that `fit` will make."""
        if self.bias is None or state["bias"] is None:
            self.bias, self._loaded = None, state["bias"]
        else:
            self.bias.load_state_dict(state["bias"])


def _for_forward(fit_params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of `fit` for the module; skorch passes private ones on to its own methods."""
    return {name: value for name, value in fit_params.items() if not name.startswith("_")}


def _criterion_of(net: ActiveBiasClassifier) -> Any:
    return getattr(net.criterion_, "_orig_mod", net.criterion_)  # inside torch.compile's


def _memory_of(net: ActiveBiasClassifier) -> BiasMemory:
    memory: BiasMemory = _criterion_of(net).active_bias
    return memory


def _classes_of(labels: np.ndarray, num_outputs: int) -> np.ndarray:
    """Return the classes in the order of the module's outputs; integers from 0 on stand for themselves."""
    classes: np.ndarray = np.unique(labels)
    if classes.dtype.kind in "iu" and classes[0] >= 0 and classes[-1] < num_outputs:
        return np.arange(num_outputs)
    return classes


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
