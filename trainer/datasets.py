"""A dataset: named examples with labels, read as encoded images; and its split. Sources: see sources.py."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.errors import InvalidData

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Examples in one fixed order (sorted by name) on every replica.

    `labels[i]` indexes `classes`; `read(i)` gives the encoded image (PNG, JPEG, GIF, BMP). `digest` is the sha256
    (hex) of names and checksums. `validation` lists the examples that the source itself set apart, if it did.
    """

    uri: str
    classes: tuple[str, ...]
    names: Sequence[str]
    labels: npt.NDArray[np.int32]
    read: Callable[[int], bytes]
    digest: str
    validation: Indices | None = None

    def __len__(self) -> int:
        return len(self.names)

    def without(self, bad: Sequence[int]) -> "Dataset":
        """The same dataset with some examples left out."""
        keep = np.setdiff1d(np.arange(len(self)), np.asarray(bad, np.int64))
        inner = self.read
        return Dataset(
            self.uri,
            self.classes,
            [self.names[index] for index in keep],
            self.labels[keep],
            lambda index: inner(int(keep[index])),
            self.digest,
            None if self.validation is None else np.flatnonzero(np.isin(keep, self.validation)),
        )


def split(dataset: Dataset, fraction: float, seed: int) -> tuple[Indices, Indices]:
    """(training, validation) indices, disjoint and together everything.

    Taken per class, so that a rare class is in both; the same on every replica and for every later evaluation of
    the same dataset, fraction and seed. A split that the source brings (TFDS, TFRecord file names) wins.
    """
    everything = np.arange(len(dataset))
    if not fraction:
        return everything, np.empty(0, np.int64)
    if dataset.validation is not None:
        return np.setdiff1d(everything, dataset.validation), dataset.validation
    random = np.random.default_rng(seed)
    held_out = []
    for label in range(len(dataset.classes)):
        members = random.permutation(np.flatnonzero(dataset.labels == label))
        held_out.append(members[: round(fraction * len(members))])
    validation = np.sort(np.concatenate(held_out))
    return np.setdiff1d(everything, validation), validation


def check(dataset: Dataset) -> None:
    """Refuses what cannot be trained on: nothing at all, or one class."""
    if not len(dataset):
        raise InvalidData(f"{dataset.uri} has no images; expected <class>/<file>.jpg|png|gif|bmp below it")
    if len(dataset.classes) < 2:
        raise InvalidData(f"{dataset.uri} has one class, {dataset.classes[0]!r}; a classifier needs at least two")


def find_bad_images(dataset: Dataset) -> list[int]:
    """Examples that are no whole image by their first and last bytes.

    A decode of everything at start would cost as much as an epoch; this finds what uploads break in practice
    (empty, truncated, or another format under an image's name). What it misses is found when it is decoded.
    """
    return [index for index in range(len(dataset)) if not looks_whole(dataset.read(index))]


def looks_whole(content: bytes) -> bool:
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return b"IEND" in content[-32:]
    if content.startswith(b"\xff\xd8\xff"):
        return b"\xff\xd9" in content[-1024:]
    return content.startswith((b"GIF8", b"BM")) and len(content) > 32


def digest_of(entries: Sequence[tuple[str, str]]) -> str:
    """sha256 (hex) of (name, checksum) pairs, in any order."""
    return hashlib.sha256("".join(f"{name}\0{mark}\n" for name, mark in sorted(entries)).encode()).hexdigest()
