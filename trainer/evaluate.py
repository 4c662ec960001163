"""`python -m trainer.evaluate --model DIR|gs://… --data …`: loads a trained model and measures it afresh.

Prints one JSON line {"accuracy": …, "loss": …, "examples": …}, over the same validation examples as the run that
made the model (metrics.json beside it says which), through the serving signature, from encoded images.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trainer.datasets import Dataset, Indices, check, find_bad_images, split
from trainer.errors import InvalidData, TrainerError
from trainer.progress import warn
from trainer.sources import open_dataset
from trainer.storage import join, list_files, read

_BATCH = 64
Predict = Callable[[list[bytes]], Any]
"""Encoded images -> probabilities (n, classes); None where one of them cannot be decoded."""


def evaluate(model_uri: str, data: str, directory: Path) -> dict[str, Any]:
    """Accuracy and mean loss over the validation examples (all examples, if the run held none out)."""
    try:
        made_of = json.loads(read(join(model_uri, "metrics.json")))["data"]
    except FileNotFoundError:
        raise InvalidData(
            f"--model is {model_uri}, which holds no metrics.json: it is no model of this trainer"
        ) from None
    dataset = open_dataset(data or made_of["uri"], directory / "data", warn)
    if made_of["skip_bad_images"]:
        dataset = dataset.without(find_bad_images(dataset))
    check(dataset)
    if list(dataset.classes) != made_of["classes"]:
        raise InvalidData(f"{dataset.uri} has classes {list(dataset.classes)}; the model knows {made_of['classes']}")
    training, validation = split(dataset, made_of["validation_split"], made_of["seed"])
    chosen = validation if len(validation) else training
    predict = _load(model_uri, directory / "model")
    correct, loss, examples = 0, 0.0, 0
    for start in range(0, len(chosen), _BATCH):
        batch = chosen[start : start + _BATCH]
        indices, probabilities = _measure(dataset, batch, predict, skip_bad=made_of["skip_bad_images"])
        labels = dataset.labels[indices]
        correct += int(np.sum(np.argmax(probabilities, axis=1) == labels))
        loss += float(-np.sum(np.log(np.maximum(probabilities[np.arange(len(indices)), labels], 1e-7))))
        examples += len(indices)
    if not examples:
        raise InvalidData(f"{dataset.uri} has no image that can be decoded")
    return {"accuracy": correct / examples, "loss": loss / examples, "examples": examples}


def _measure(dataset: Dataset, indices: Indices, predict: Predict, *, skip_bad: bool) -> tuple[Indices, Any]:
    """(indices, probabilities) of the images that can be decoded: all of them, unless broken ones are to be skipped."""
    contents = [dataset.read(int(index)) for index in indices]
    probabilities = predict(contents)
    if probabilities is not None:
        return indices, probabilities
    alone = [predict([content]) for content in contents]  # the ends of a file do not show everything: find out which
    whole = np.array([each is not None for each in alone])
    if not skip_bad:
        raise InvalidData(f"{dataset.names[indices[np.argmin(whole)]]} cannot be decoded")
    classes = len(dataset.classes)
    return indices[whole], np.concatenate([np.empty((0, classes)), *(each for each in alone if each is not None)])


def _load(model_uri: str, directory: Path) -> Predict:
    """The serving signature."""
    import tensorflow as tf

    for file in list_files(model_uri):
        path = directory / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(read(file.uri))
    loaded = tf.saved_model.load(str(directory))
    serve = loaded.signatures["serving_default"]

    def predict(contents: list[bytes]) -> Any:
        try:
            return serve(image_bytes=tf.constant(contents, tf.string))["probabilities"].numpy()
        except tf.errors.InvalidArgumentError:
            return None

    return predict


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.evaluate", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--model", required=True, help="the model directory: gs://… or local")
    parser.add_argument("--data", default="", help="the dataset (default: the one it was trained on)")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        with tempfile.TemporaryDirectory(prefix="kickoff-evaluate-") as directory:
            result = evaluate(arguments.model, arguments.data, Path(directory))
    except TrainerError as error:
        warn(f"evaluate: {error}")
        return error.exit_status
    except FileNotFoundError as error:
        warn(f"evaluate: {error}")
        return InvalidData.exit_status
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
