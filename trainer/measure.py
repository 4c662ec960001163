"""Measures one model in one process, over the validation examples in their order."""

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.errors import InvalidData
from trainer.images import ImageCache
from trainer.inputs import Inputs

_BATCH = 64


def measure(model: Any, inputs: Inputs, cache: ImageCache) -> tuple[dict[str, float], npt.NDArray[np.int64]]:
    """({val_loss, val_accuracy}, confusion matrix true x predicted); nothing where nothing is held out.

    Images that cannot be decoded are left out, as in training.
    """
    classes = len(inputs.dataset.classes)
    confusion = np.zeros((classes, classes), np.int64)
    loss = 0.0
    for start in range(0, len(inputs.validation), _BATCH):
        indices = inputs.validation[start : start + _BATCH]
        images = cache.images(indices)
        readable = cache.weights(indices) > 0
        if not readable.any():
            continue
        labels = inputs.dataset.labels[indices[readable]]
        probabilities = model(tf.cast(images[readable], tf.float32), training=False).numpy()
        loss -= float(np.sum(np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-7))))
        np.add.at(confusion, (labels, probabilities.argmax(axis=1)), 1)
    if not len(inputs.validation):
        return {}, confusion
    count = int(confusion.sum())
    if not count:
        raise InvalidData("none of the held-out images can be decoded")
    return {"val_loss": loss / count, "val_accuracy": float(np.trace(confusion) / count)}, confusion
