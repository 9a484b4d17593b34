"""scikit-learn: a classifier in a pipeline. With `--search`, GridSearchCV chooses the method."""

import argparse

import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import digits
from activebias.integrations.sklearn import ActiveBiasClassifier


def main(search: bool) -> float:
    torch.set_num_threads(1)
    images, labels = (digits.IMAGES * 16).numpy(), digits.LABELS.numpy()
    classifier = ActiveBiasClassifier(
        digits.make_model(),
        method="wtc",
        burn_in=digits.BURN_IN,
        max_epochs=digits.EPOCHS,
        batch_size=digits.BATCH_SIZE,
        lr=digits.LEARNING_RATE,
        optimizer__momentum=0.9,
        train_split=None,
        verbose=0,
    )
    model = make_pipeline(MinMaxScaler(), classifier)
    if search:
        model = GridSearchCV(
            model,
            {"activebiasclassifier__method": ["scan", "wtc"], "activebiasclassifier__burn_in": [2]},
            cv=2,
        )
    model.fit(images[digits.TRAIN], labels[digits.TRAIN])
    if search:
        print(f"chosen: {model.best_params_}")
    return model.score(images[digits.TEST], labels[digits.TEST])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--search", action="store_true", help="choose the method by cross-validation")
    digits.report(main(parser.parse_args().search))
