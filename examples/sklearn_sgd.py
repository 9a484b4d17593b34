"""Without a PyTorch model: scikit-learn's SGDClassifier, by `weight` and `record` with NumPy arrays.

Keras, JAX, or any library that takes sample weights and returns probabilities, is used the same way.
"""

import argparse

import numpy as np
from sklearn.linear_model import SGDClassifier
from torch.utils.data import BatchSampler

import activebias as ab
import digits


def main(method: str) -> float:
    images, labels = digits.IMAGES.numpy(), digits.LABELS.numpy()
    train, test = digits.TRAIN.numpy(), digits.TEST.numpy()
    x, y = images[train], labels[train]
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, average=True, random_state=0)
    bias = ab.ActiveBias(method, num_instances=len(y), num_classes=digits.NUM_CLASSES, burn_in=digits.BURN_IN)
    batches = BatchSampler(bias.sampler(batch_size=32), batch_size=32, drop_last=False)
    for epoch in range(digits.EPOCHS):
        bias.set_epoch(epoch)
        for index in batches:
            weight = bias.weight(index).numpy()
            if hasattr(model, "coef_"):  # a second forward pass: training does not return its own
                prob = model.predict_proba(x[index])[np.arange(len(index)), y[index]]
                bias.record(index, prob)
            else:
                bias.record(index, np.full(len(index), 1 / digits.NUM_CLASSES))
            model.partial_fit(x[index], y[index], classes=np.arange(digits.NUM_CLASSES), sample_weight=weight)
    return model.score(images[test], labels[test])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="wtc", help="scan is the same without Active Bias")
    digits.report(main(parser.parse_args().method))
