"""Where datasets come from: class folders, a snapshot, a manifest, TFRecords, TFDS."""

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer import tfrecords
from trainer.datasets import Dataset, digest_of
from trainer.errors import InvalidData
from trainer.fetch import fetch
from trainer.storage import StoredFile, explained, is_gs, join, list_files, read

IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp")
SNAPSHOT = "kickoff.dataset-snapshot.v1"


def open_dataset(uri: str, directory: Path, report: Callable[[str], None] = print) -> Dataset:
    """The dataset at `uri`; gs:// objects are brought into `directory` first.

    Raises InvalidData (what is wrong with it), AccessDenied, StorageFailed.
    """
    try:
        if uri.startswith("tfds:"):
            return tfrecords.open_records(uri, list_files(_prepare_tfds(uri)), directory, report)
        if uri.endswith((".json", ".jsonl", ".csv")):
            return _open_listed(uri, directory, report)
        files = list_files(uri)
        if any(tfrecords.is_record_file(file.name) for file in files):
            return tfrecords.open_records(uri, files, directory, report)
        return _open_images(uri, label_by_folder(files), directory, report)
    except FileNotFoundError as error:
        raise InvalidData(f"--data: {error}") from error


def label_by_folder(files: Sequence[StoredFile]) -> list[tuple[StoredFile, str]]:
    """(file, class) for every image: the class is the first folder in which the names differ.

    So `flower_photos/daisy/1.jpg` beside `flower_photos/roses/1.jpg` is a daisy, whatever folders are above.
    Markers such as `_SUCCESS` and anything that is no image by its name are not members.
    """
    images = [file for file in files if file.name.lower().endswith(IMAGES)]
    parts = [file.name.split("/") for file in images]
    depth = 0
    while parts and all(len(part) > depth + 2 for part in parts) and len({part[depth] for part in parts}) == 1:
        depth += 1
    loose = [file.name for file, part in zip(images, parts, strict=True) if len(part) < depth + 2]
    if loose:
        raise InvalidData(
            f"{loose[0]!r} lies in no class folder, and {len(loose)} images in all; expected <class>/<file>"
        )
    return [(file, part[depth]) for file, part in zip(images, parts, strict=True)]


def _open_images(
    uri: str,
    labelled: Sequence[tuple[StoredFile, str]],
    directory: Path,
    report: Callable[[str], None],
    digest: str = "",
) -> Dataset:
    classes = tuple(sorted({label for _, label in labelled}))
    number = {label: index for index, label in enumerate(classes)}
    files = [file for file, _ in labelled]
    paths = fetch(files, directory, report)

    def read_one(index: int) -> bytes:
        with explained("read", str(paths[index])):
            return paths[index].read_bytes()

    return Dataset(
        uri=uri,
        classes=classes,
        names=[file.name for file in files],
        labels=np.array([number[label] for _, label in labelled], np.int32),
        read=read_one,
        digest=digest or digest_of([(file.name, file.crc32c or str(file.size)) for file in files]),
    )


def _open_listed(uri: str, directory: Path, report: Callable[[str], None]) -> Dataset:
    """A Kickoff snapshot, or a manifest: CSV lines `image,label`, or JSON lines with these keys (or Vertex AI's)."""
    text = read(uri).decode("utf-8-sig")
    try:
        if uri.endswith(".json"):
            document = json.loads(text)
            if isinstance(document, dict) and document.get("schema") == SNAPSHOT:
                return _open_images(uri, label_by_folder(_snapshot(document)), directory, report, document["digest"])
            rows = document if isinstance(document, list) else document["images"]
        elif uri.endswith(".jsonl"):
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            rows = [row for row in csv.reader(io.StringIO(text)) if row]
            if rows and [cell.strip().lower() for cell in rows[0]] == ["image", "label"]:
                rows = rows[1:]  # a header
        labelled = [_manifest_entry(uri, row) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InvalidData(f"--data: {uri} is neither a snapshot nor a manifest: {error!r}") from error
    sizes = {file.uri: file for file in _stat([file for file, _ in labelled])}
    labelled = [(sizes[file.uri], label) for file, label in labelled if file.name.lower().endswith(IMAGES)]
    return _open_images(uri, sorted(labelled), directory, report)


def _snapshot(document: dict[str, Any]) -> list[StoredFile]:
    return [
        StoredFile(
            # Members carry whole object names; the class is in the part after the dataset's root.
            member["name"].removeprefix(document["uri"].removeprefix("gs://").partition("/")[2]),
            f"gs://{document['uri'].removeprefix('gs://').partition('/')[0]}/{member['name']}",
            int(member["size"]),
            int(member["generation"]),
            member.get("crc32c"),
        )
        for member in document["members"]
    ]


def _manifest_entry(uri: str, row: Any) -> tuple[StoredFile, str]:
    if isinstance(row, dict):
        image = row.get("image") or row["imageGcsUri"]
        label = row["label"] if "label" in row else row["classificationAnnotation"]["displayName"]
    else:
        image, label = row[-2:]  # Vertex AI's import CSV may begin with an ml_use column
    whole = image if is_gs(image) or image.startswith("/") else join(uri.rpartition("/")[0] or ".", image)
    # A listing names local files without `.` and `..`; in Cloud Storage both are names like any other.
    return StoredFile(image, whole if is_gs(whole) else os.path.normpath(whole), 0), str(label)


def _stat(files: Sequence[StoredFile]) -> list[StoredFile]:
    """The same files with size (and generation, crc32c): one listing for each folder, not one request for each file."""
    folders = {file.uri.rpartition("/")[0] for file in files}
    found = {entry.uri: entry for folder in folders for entry in list_files(folder)}
    missing = [file.uri for file in files if file.uri not in found]
    if missing:
        raise InvalidData(f"{missing[0]} is in the manifest and does not exist ({len(missing)} such entries)")
    return [
        StoredFile(file.name, file.uri, found[file.uri].size, found[file.uri].generation, found[file.uri].crc32c)
        for file in files
    ]


def _prepare_tfds(uri: str) -> str:
    """The directory of TFRecords that TensorFlow Datasets prepares for a name such as `tfds:cassava`."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise InvalidData(
            f"--data is {uri} and tensorflow_datasets is not installed; install it, or give the directory it prepared"
        ) from error
    builder = tfds.builder(uri.removeprefix("tfds:"))
    builder.download_and_prepare()
    return str(builder.data_dir)
