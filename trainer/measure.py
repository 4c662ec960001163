"""Measures one model in one process, over the validation examples in their order."""

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.images import ImageCache
from trainer.inputs import Inputs

_BATCH = 64


def measure(model: Any, inputs: Inputs, cache: ImageCache) -> tuple[dict[str, float], npt.NDArray[np.int64]]:
    """({val_loss, val_accuracy}, confusion matrix true x predicted); nothing where nothing is held out."""
    classes = len(inputs.dataset.classes)
    confusion = np.zeros((classes, classes), np.int64)
    loss = 0.0
    for start in range(0, len(inputs.validation), _BATCH):
        indices = inputs.validation[start : start + _BATCH]
        labels = inputs.dataset.labels[indices]
        probabilities = model(tf.cast(cache.images(indices), tf.float32), training=False).numpy()
        loss -= float(np.sum(np.log(np.maximum(probabilities[np.arange(len(indices)), labels], 1e-7))))
        np.add.at(confusion, (labels, probabilities.argmax(axis=1)), 1)
    if not len(inputs.validation):
        return {}, confusion
    count = len(inputs.validation)
    return {"val_loss": loss / count, "val_accuracy": float(np.trace(confusion) / count)}, confusion
