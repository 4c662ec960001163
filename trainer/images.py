"""Decoding: the one way from an encoded image to what the model sees, in training and in serving alike."""

import contextlib
import functools
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.datasets import Dataset, Indices
from trainer.errors import InvalidData


def decode(content: Any, size: int) -> Any:
    """uint8 (size, size, 3) from one encoded PNG, JPEG, GIF or BMP (a string scalar). Traceable."""
    image = tf.cond(
        tf.io.is_jpeg(content),
        lambda: _decode_jpeg(content, size),
        lambda: tf.io.decode_image(content, channels=3, expand_animations=False),
    )
    image.set_shape((None, None, 3))
    return tf.cast(tf.round(tf.image.resize(image, (size, size))), tf.uint8)


def _decode_jpeg(content: Any, size: int) -> Any:
    """JPEG can be decoded at a half, a quarter or an eighth, for less work and less aliasing; never below `size`."""
    side = tf.reduce_min(tf.io.extract_jpeg_shape(content)[:2])
    halvings = tf.reduce_sum(tf.cast(side >= [2 * size, 4 * size, 8 * size], tf.int32))
    return tf.switch_case(
        halvings, [functools.partial(tf.io.decode_jpeg, content, channels=3, ratio=ratio) for ratio in (1, 2, 4, 8)]
    )


class ImageCache:
    """Decoded images of one dataset, as uint8, kept in an unnamed file.

    Each image is decoded once in a process, when it is first asked for, on all cores. A file and not memory:
    the kernel keeps as much of it as there is room for, and gives it up before anything is killed. When the disk
    is full, images are decoded again instead of kept.
    """

    def __init__(self, dataset: Dataset, size: int, *, skip_bad: bool = False, directory: Path | None = None) -> None:
        self._dataset, self.size, self._skip_bad = dataset, size, skip_bad
        self.labels = dataset.labels
        self._bytes = size * size * 3
        self._kept = np.zeros(len(dataset), bool)
        self.bad: set[int] = set()
        self.error: InvalidData | None = None
        """Set when a batch failed over an image; TensorFlow wraps what is raised in a pipeline beyond recognition."""
        self._closed = False
        self._file = tempfile.TemporaryFile(dir=directory, prefix="kickoff-cache-")  # noqa: SIM115
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode")
        self._decode = tf.function(
            lambda content: decode(content, size), input_signature=[tf.TensorSpec((), tf.string)], autograph=False
        )

    def images(self, indices: Indices) -> npt.NDArray[np.uint8]:
        """uint8 (len(indices), size, size, 3)."""
        out = np.empty((len(indices), self.size, self.size, 3), np.uint8)
        missing: list[tuple[int, int]] = []
        if self._closed:
            return out
        for row, index in enumerate(indices):
            if self._kept[index]:
                os.preadv(self._file.fileno(), [memoryview(out[row]).cast("B")], int(index) * self._bytes)
            else:
                missing.append((row, int(index)))
        for (row, index), image in zip(
            missing, self._pool.map(self._load, [index for _, index in missing]), strict=True
        ):
            out[row] = image
            self._keep(index, image)
        return out

    def _load(self, index: int) -> npt.NDArray[np.uint8]:
        try:
            with tf.device("CPU:0"):
                image: npt.NDArray[np.uint8] = self._decode(self._dataset.read(index)).numpy()
        except tf.errors.InvalidArgumentError as error:
            if not self._skip_bad:
                words = error.message.rpartition("}} ")[2].splitlines()[0]
                self.error = InvalidData(f"{self._dataset.names[index]} cannot be decoded: {words}")
                raise self.error from error
            self.bad.add(index)
            return np.zeros((self.size, self.size, 3), np.uint8)
        return image

    def _keep(self, index: int, image: npt.NDArray[np.uint8]) -> None:
        with contextlib.suppress(OSError):  # no room: the image is simply decoded again next time
            if os.pwrite(self._file.fileno(), image.tobytes(), index * self._bytes) == self._bytes:
                self._kept[index] = True

    def weights(self, indices: Indices) -> npt.NDArray[np.float32]:
        """1 for every image that could be decoded, 0 for the others; asked after `images`."""
        return np.array([index not in self.bad for index in indices], np.float32)

    def close(self) -> None:
        """Batches that are still being read ahead come out empty; the file goes with the last reference to it."""
        self._closed = True
        self._pool.shutdown(wait=False)


def class_weights(labels: npt.NDArray[np.int32], classes: Sequence[str]) -> npt.NDArray[np.float32]:
    """Inverse frequencies with mean 1 over the examples; a class without examples gets 0."""
    counts = np.bincount(labels, minlength=len(classes))
    present = np.maximum(counts, 1)
    return np.where(counts > 0, len(labels) / (np.count_nonzero(counts) * present), 0).astype(np.float32)
