"""TFRecord files as a dataset with random access, and the converter that writes sharded ones.

    python -m trainer.tfrecords --data DIR|gs://… --output DIR --shards 8

Feature names: `image/encoded` and `image/class/label` (TF-Slim's), or `image` and `label` (TFDS's).
"""

import json
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.datasets import Dataset, digest_of
from trainer.errors import InvalidData
from trainer.fetch import fetch
from trainer.storage import StoredFile, explained

_RECORD_FILE = re.compile(r"\.tfrecords?(-\d+-of-\d+)?$")
_HELD_OUT = re.compile(r"(^|[-_./])(validation|valid|val|test|dev)[-_./]")
_LABELS = re.compile(r"(^|\.)labels\.txt$")  # ours: labels.txt; TFDS: label.labels.txt


@dataclass(frozen=True)
class _Record:
    file: int
    offset: int
    length: int
    label: int
    held_out: bool


def is_record_file(name: str) -> bool:
    return _RECORD_FILE.search(name) is not None


def open_records(uri: str, files: Sequence[StoredFile], directory: Path, report: Callable[[str], None]) -> Dataset:
    """A dataset over every record of the files; `labels.txt` beside them names the classes.

    Files are indexed by one pass over their framing; images are read on demand by offset.
    """
    wanted = [file for file in files if is_record_file(file.name) or _LABELS.search(file.name)]
    paths = fetch(wanted, directory, report)
    shards = [(file, path) for file, path in zip(wanted, paths, strict=True) if is_record_file(file.name)]
    records = [record for number, (file, path) in enumerate(shards) for record in _index(number, file, path)]
    descriptors = [os.open(path, os.O_RDONLY) for _, path in shards]

    def read_one(index: int) -> bytes:
        record = records[index]
        with explained("read", str(shards[record.file][1])):
            return _image(_example(os.pread(descriptors[record.file], record.length, record.offset)))

    # TFDS's test and validation files often carry no labels that can be trusted; only the named split is taken.
    held_out = np.flatnonzero([record.held_out for record in records])
    return Dataset(
        uri=uri,
        classes=_classes(wanted, paths, records),
        names=[f"{shards[record.file][0].name}@{record.offset}" for record in records],
        labels=np.array([record.label for record in records], np.int32),
        read=read_one,
        digest=digest_of([(file.name, file.crc32c or str(file.size)) for file in wanted]),
        validation=held_out if 0 < len(held_out) < len(records) else None,
    )


def _classes(files: Sequence[StoredFile], paths: Sequence[Path], records: Sequence[_Record]) -> tuple[str, ...]:
    count = max((record.label for record in records), default=-1) + 1
    for file, path in zip(files, paths, strict=True):
        if _LABELS.search(file.name):
            classes = tuple(path.read_text().splitlines())
            if len(classes) < count:
                raise InvalidData(f"{file.uri} names {len(classes)} classes; the records hold label {count - 1}")
            return classes
    return tuple(str(label) for label in range(count))


def _index(number: int, file: StoredFile, path: Path) -> Iterator[_Record]:
    held_out = _HELD_OUT.search(file.name) is not None
    for offset, content in _frames(path):
        try:
            label = _label(_example(content))
        except (KeyError, IndexError) as error:
            raise InvalidData(f"{file.uri}, record at byte {offset}: no feature {error} ") from error
        yield _Record(number, offset, len(content), label, held_out)


def _frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """(offset, content) of each record: length (8 bytes), its crc (4), content, its crc (4)."""
    with path.open("rb") as file:
        while header := file.read(12):
            (length,) = struct.unpack("<Q", header[:8]) if len(header) == 12 else (0,)
            offset, content = file.tell(), file.read(length)
            if len(content) != length or len(file.read(4)) != 4:
                raise InvalidData(f"{path} ends inside a record at byte {offset}")
            yield offset, content


def _example(content: bytes) -> Any:
    import tensorflow as tf

    return tf.train.Example.FromString(content).features.feature


def _image(features: Any) -> bytes:
    name = "image/encoded" if "image/encoded" in features else "image"
    return bytes(features[name].bytes_list.value[0])


def _label(features: Any) -> int:
    name = "image/class/label" if "image/class/label" in features else "label"
    if name not in features:
        raise KeyError(name)
    return int(features[name].int64_list.value[0])


def write_records(dataset: Dataset, directory: Path, shards: int, seed: int = 0) -> None:
    """Writes the dataset as `data.tfrecord-00000-of-0000N` and labels.txt, shuffled so that shards are alike."""
    import tensorflow as tf

    directory.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(seed).permutation(len(dataset))
    for shard in range(shards):
        path = directory / f"data.tfrecord-{shard:05d}-of-{shards:05d}"
        with explained("write", str(path)), tf.io.TFRecordWriter(str(path)) as writer:
            for index in order[shard::shards]:
                writer.write(_encode(tf, dataset, int(index)))
    (directory / "labels.txt").write_text("".join(f"{name}\n" for name in dataset.classes))


def _encode(tf: Any, dataset: Dataset, index: int) -> bytes:
    label = int(dataset.labels[index])
    values = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[dataset.read(index)])),
        "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[dataset.names[index].encode()])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "image/class/text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[dataset.classes[label].encode()])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())


def main() -> None:
    import argparse
    import tempfile

    from trainer.datasets import check
    from trainer.sources import open_dataset

    parser = argparse.ArgumentParser(prog="python -m trainer.tfrecords", description="Converts a dataset to TFRecords.")
    parser.add_argument("--data", required=True)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--shards", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kickoff-data-") as directory:
        dataset = open_dataset(arguments.data, Path(directory))
        check(dataset)
        write_records(dataset, arguments.output, arguments.shards)
    print(json.dumps({"examples": len(dataset), "classes": len(dataset.classes), "shards": arguments.shards}))


if __name__ == "__main__":
    main()
