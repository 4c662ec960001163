"""What the codelab's flowers trainer does, step for step, on the legacy Keras that it needs: the yardstick.

It decodes to float32, caches that, then shuffles 1,000 batches; Flatten feeds a Dense(128); it fits and saves.
"""

import os
import sys
import time
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

SIZE, BATCH = 180, 32


def datasets(directory: str) -> tuple[Any, Any]:
    common = {"validation_split": 0.2, "seed": 123, "image_size": (SIZE, SIZE), "batch_size": BATCH}
    training = tf.keras.utils.image_dataset_from_directory(directory, subset="training", **common)
    validation = tf.keras.utils.image_dataset_from_directory(directory, subset="validation", **common)
    training = training.cache().shuffle(1000).prefetch(tf.data.AUTOTUNE)
    return training, validation.cache().prefetch(tf.data.AUTOTUNE)


def model(classes: int) -> Any:
    layers = tf.keras.layers
    network = tf.keras.Sequential(
        [layers.Rescaling(1.0 / 255, input_shape=(SIZE, SIZE, 3))]
        + [
            layer
            for filters in (16, 32, 64)
            for layer in (layers.Conv2D(filters, 3, padding="same", activation="relu"), layers.MaxPooling2D())
        ]
        + [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(classes, activation="softmax")]
    )
    network.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return network


class Rate(tf.keras.callbacks.Callback):
    """Training images a second in each epoch, without its validation."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self._images, self._seconds = images, 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began, self._seconds = time.perf_counter(), 0.0

    def on_test_begin(self, logs: Any = None) -> None:
        self._seconds = self._seconds or time.perf_counter() - self._began

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        print(f"epoch {epoch + 1} {self._images / self._seconds:.1f} images/s", flush=True)


def main() -> None:
    directory, epochs, output = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    training, validation = datasets(directory)
    images = int(sys.argv[4])
    model(5).fit(training, validation_data=validation, epochs=epochs, verbose=0, callbacks=[Rate(images)])
    tf.saved_model.save(tf.Module(), output)


if __name__ == "__main__":
    main()
