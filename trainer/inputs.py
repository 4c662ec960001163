"""The examples of a run, checked and split."""

from dataclasses import dataclass
from pathlib import Path

from trainer.arguments import Options
from trainer.datasets import Dataset, Indices, check, find_bad_images, split
from trainer.errors import InvalidData
from trainer.progress import say, warn
from trainer.sources import open_dataset


@dataclass(frozen=True)
class Inputs:
    """`training` and `validation` index `dataset`."""

    dataset: Dataset
    training: Indices
    validation: Indices


def open_inputs(options: Options, directory: Path) -> Inputs:
    """The same on every replica. Raises InvalidData for what cannot be trained on."""
    dataset = _without_bad_images(open_dataset(options.data, directory, say), options)
    check(dataset)
    training, validation = split(dataset, options.validation_split, options.seed)
    if not len(training):
        raise InvalidData(f"{options.data}: --validation-split {options.validation_split} leaves no training images")
    parts = f"{len(training)} train, {len(validation)} validate"
    say(f"{len(dataset)} images of {len(dataset.classes)} classes: {parts}")
    return Inputs(dataset, training, validation)


def _without_bad_images(dataset: Dataset, options: Options) -> Dataset:
    bad = find_bad_images(dataset)
    if not bad:
        return dataset
    count = "1 unreadable image" if len(bad) == 1 else f"{len(bad)} unreadable images"
    names = ", ".join(dataset.names[index] for index in bad[:10]) + (" …" if len(bad) > 10 else "")
    if not options.skip_bad_images:
        raise InvalidData(f"{count}: {names}; mend what is broken, or give --skip-bad-images")
    warn(f"warning: left out {count}: {names}")
    return dataset.without(bad)
