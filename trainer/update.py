"""One update of a model, the same under every strategy: loss, gradients, and what of the options goes into them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.arguments import Options
from trainer.images import class_weights
from trainer.inputs import Inputs
from trainer.models import head_variables


@dataclass(frozen=True)
class Update:
    """One update of a model, within a replica's share of a step.

    `trainable`: what is trained (default: everything that can be); `class_weights` (classes,) weigh the loss.
    """

    keras: Any
    model: Any
    optimizer: Any
    trainable: Sequence[Any] | None = None
    class_weights: npt.NDArray[np.float32] | None = None
    augment: bool = False

    def __call__(self, images: Any, labels: Any, weights: Any, count: Any, seeds: Any) -> Any:
        """[summed loss, correct, examples] of this share; the gradient is of the loss / `count`."""
        pixels = tf.cast(images, tf.float32)
        if self.augment:
            pixels = augment(pixels, seeds)
        trainable = list(self.model.trainable_variables if self.trainable is None else self.trainable)
        with tf.GradientTape() as tape:
            probabilities = self.model(pixels, training=True)
            losses = self.keras.losses.sparse_categorical_crossentropy(labels, probabilities)
            loss = tf.reduce_sum(losses * self._example_weights(labels, weights))
            # Divided by the examples of the whole global batch, so that the sum over replicas is its mean.
            objective = loss / count
        gradients = tape.gradient(objective, trainable)
        self.optimizer.apply_gradients(zip(gradients, trainable, strict=True))
        return tf.stack([loss, tf.reduce_sum(hits(labels, probabilities) * weights), tf.reduce_sum(weights)])

    def _example_weights(self, labels: Any, weights: Any) -> Any:
        return weights if self.class_weights is None else weights * tf.gather(tf.constant(self.class_weights), labels)


def build_update(options: Options, inputs: Inputs, model: Any, optimizer: Any, epoch: int) -> Update:
    """What an epoch (0-based) does with each batch."""
    dataset = inputs.dataset
    return Update(
        tf.keras,
        model,
        optimizer,
        head_variables(model) if epoch < options.freeze_epochs else None,
        class_weights(dataset.labels[inputs.training], dataset.classes) if options.class_weights else None,
        options.augment,
    )


def hits(labels: Any, probabilities: Any) -> Any:
    return tf.cast(tf.equal(tf.argmax(probabilities, axis=-1, output_type=tf.int32), labels), tf.float32)


def augment(pixels: Any, seeds: Any) -> Any:
    """Random flips and brightness; each example's follow from its own seed, not from the replica that draws them."""

    def one(values: tuple[Any, Any]) -> Any:
        image, seed = values
        flipped = tf.image.stateless_random_flip_left_right(image, seed)
        return tf.clip_by_value(tf.image.stateless_random_brightness(flipped, 25.0, seed), 0.0, 255.0)

    return tf.map_fn(one, (pixels, seeds), fn_output_signature=tf.float32)
