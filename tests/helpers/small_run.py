"""A run folder of four instances with a history that can be checked by hand."""

import numpy as np
import torch

import activebias as ab
from activebias.runs.contents import Inputs, Instances, Predictions, RunInfo
from activebias.runs.folder import write_run

CLASSES = ("cat", "<b>dog</b>", "-1")
# p(y|x) of four instances at three visits: right, wrong, in between, never visited.
HISTORY = np.float32([[0.8, 0.9, 0.95], [0.1, 0.05, 0.2], [0.4, 0.6, 0.5], [0, 0, 0]])


def write(path, inputs, kind="images", **more):
    bias = ab.ActiveBias("wtc", num_instances=4, num_classes=3, window=more.pop("window", None))
    for epoch in range(3):
        bias.set_epoch(epoch)
        bias.record([0, 1, 2], HISTORY[:3, epoch])
    info = RunInfo(
        kind=kind,
        title="pets",
        method="wtc",
        seed=0,
        epochs=3,
        burn_in=1,
        window=None,
        class_names=CLASSES,
        num_instances=4,
        source="pets",
        curves={},
    )
    instances = Instances(
        label=np.array([0, 1, 2, 0]),
        believed=np.array([0, 0, 2, 0]),
        believed_prob=np.float32([0.88, 0.8, 0.5, 0.4]),
        label_prob=np.float32([0.88, 0.1, 0.5, 0.4]),
        weight=np.ones(4, np.float32),
        position=np.array([10, 11, 12, 13]),
        **more,
    )
    validation = Predictions(
        position=np.array([0]),
        label=np.array([0]),
        predicted=np.array([0]),
        probability=np.float32([0.5]),
    )
    model = {"weight": torch.ones(1)}
    return write_run(
        path, info, bias=bias, model=model, instances=instances, inputs=inputs, validation=validation
    )


def images():
    names = ("a.png", "=HYPERLINK(1).png", "c.png", "\x1b[31md.png")
    return Inputs(images=np.zeros((4, 2, 2), np.uint8), names=names)
