"""Datasets from every place and form, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.datasets import check, find_bad_images, split
from trainer.errors import AccessDenied, InvalidData
from trainer.sources import label_by_folder, open_dataset
from trainer.storage import StoredFile, explained
from trainer.tfrecords import write_records

Upload = Callable[[Path, str], None]
Copy = Callable[[Path], Path]


def names(*paths: str) -> list[StoredFile]:
    return [StoredFile(path, f"gs://b/{path}", 1) for path in paths]


@pytest.mark.parametrize(
    ("paths", "classes"),
    [
        (["daisy/1.jpg", "roses/2.PNG"], ["daisy", "roses"]),
        (["flower_photos/daisy/1.jpg", "flower_photos/roses/2.jpg"], ["daisy", "roses"]),
        (["daisy/2024/a/1.jpg", "roses/2.jpg"], ["daisy", "roses"]),
        (["daisy/1.jpg", "_SUCCESS", "LICENSE.txt", "roses/Thumbs.db"], ["daisy"]),
        ([], []),
    ],
)
def test_the_class_is_the_folder_in_which_names_differ(paths: list[str], classes: list[str]) -> None:
    assert [label for _, label in label_by_folder(names(*paths))] == classes


def test_an_image_outside_every_class_folder_is_refused() -> None:
    with pytest.raises(InvalidData, match=r"'stray\.jpg' lies in no class folder"):
        label_by_folder(names("daisy/1.jpg", "stray.jpg"))


def test_local_and_gs_give_the_same_dataset(digits: Path, upload: Upload, tmp_path: Path) -> None:
    upload(digits, "gs://digits-data/datasets/digits")
    lines: list[str] = []
    local = open_dataset(str(digits), tmp_path / "a")
    remote = open_dataset("gs://digits-data/datasets/digits/", tmp_path / "b", lines.append)
    assert (remote.names, remote.classes) == (local.names, local.classes)
    assert np.array_equal(remote.labels, local.labels)
    assert [remote.read(index) for index in range(400)] == [local.read(index) for index in range(400)]
    assert lines[-1].startswith("fetched 400/400 files")


def snapshot_of(client: Any, bucket: str, prefix: str) -> dict[str, Any]:
    members = [
        {"name": blob.name, "generation": str(blob.generation), "crc32c": blob.crc32c, "size": blob.size}
        for blob in client.list_blobs(bucket, prefix=prefix)
    ]
    return {
        "schema": "kickoff.dataset-snapshot.v1",
        "uri": f"gs://{bucket}/{prefix}",
        "digest": "ab" * 32,
        "members": members,
    }


def test_a_snapshot_is_read_by_generation_and_verified(
    digits: Path, upload: Upload, gcs_client: Any, tmp_path: Path
) -> None:
    upload(digits, "gs://snapshots/root/digits")
    document = snapshot_of(gcs_client, "snapshots", "root/digits/")
    gcs_client.bucket("snapshots").blob("root/digits/3/later.png").upload_from_string(b"uploaded after acceptance")
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(document))
    dataset = open_dataset(str(path), tmp_path / "data", lambda _: None)
    assert (len(dataset), dataset.digest, len(dataset.classes)) == (400, "ab" * 32, 10)
    assert "3/later.png" not in dataset.names

    changed = next(member for member in document["members"] if member["name"].endswith(".png"))
    changed["crc32c"] = "AAAAAA=="
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidData, match="its listing says AAAAAA=="):
        open_dataset(str(path), tmp_path / "again", lambda _: None)
    changed["name"] = "root/digits/3/never.png"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidData, match=r"never\.png does not exist"):
        open_dataset(str(path), tmp_path / "more", lambda _: None)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "vertex"])
def test_a_manifest_lists_images_and_labels(digits: Path, tmp_path: Path, copy_of: Copy, kind: str) -> None:
    root = copy_of(digits)
    chosen = [next((root / label).iterdir()) for label in ("3", "7")]
    entries = [(path.relative_to(root).as_posix(), f"digit-{path.parent.name}") for path in chosen]
    if kind == "csv":
        manifest = root / "m.csv"
        manifest.write_text("".join(f"training,{name},{label}\n" for name, label in entries))
    else:
        manifest = root / "m.jsonl"
        rows = [
            {"image": name, "label": label}
            if kind == "jsonl"
            else {"imageGcsUri": str(root / name), "classificationAnnotation": {"displayName": label}}
            for name, label in entries
        ]
        manifest.write_text("\n".join(map(json.dumps, rows)))
    dataset = open_dataset(str(manifest), tmp_path / "data")
    assert (dataset.classes, len(dataset)) == (("digit-3", "digit-7"), 2)
    assert dataset.read(0) == chosen[0].read_bytes()


def test_a_manifest_may_lie_where_one_stands_and_have_a_header(
    digits: Path, tmp_path: Path, copy_of: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_of(digits)
    monkeypatch.chdir(root)
    first, second = (sorted(Path(label).iterdir())[0] for label in ("3", "7"))
    Path("list.csv").write_text(f"image,label\n./{first},a\n3/../{second},b\n")
    dataset = open_dataset("list.csv", tmp_path / "data")
    assert (len(dataset), dataset.classes) == (2, ("a", "b"))
    assert {dataset.read(0), dataset.read(1)} == {first.read_bytes(), second.read_bytes()}


def test_a_manifest_entry_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("nowhere.png,a\n")
    with pytest.raises(InvalidData, match=r"nowhere\.png is in the manifest and does not exist"):
        open_dataset(str(tmp_path / "m.csv"), tmp_path / "data")


def test_tfrecords_hold_every_example_once(digits: Path, tmp_path: Path) -> None:
    images = open_dataset(str(digits), tmp_path / "a")
    write_records(images, tmp_path / "records", shards=3)
    records = open_dataset(str(tmp_path / "records"), tmp_path / "b")
    assert (len(records), records.classes) == (400, images.classes)
    expected = sorted((images.read(index), int(images.labels[index])) for index in range(400))
    assert sorted((records.read(index), int(records.labels[index])) for index in range(400)) == expected


def test_a_directory_that_tfds_prepared_brings_its_own_split(digits: Path, tmp_path: Path) -> None:
    images = open_dataset(str(digits), tmp_path / "a")
    for part, indices in (("train", range(300)), ("validation", range(300, 400))):
        write_tfds(tmp_path / "cassava" / "0.1.0" / f"cassava-{part}.tfrecord-00000-of-00001", images, indices)
    (tmp_path / "cassava" / "0.1.0" / "label.labels.txt").write_text("\n".join(f"kind {i}" for i in range(10)))
    dataset = open_dataset(str(tmp_path / "cassava" / "0.1.0"), tmp_path / "b")
    training, validation = split(dataset, 0.2, 1)
    assert (len(training), len(validation), dataset.classes[3]) == (300, 100, "kind 3")
    assert sorted(dataset.read(int(index)) for index in validation) == sorted(map(images.read, range(300, 400)))


def write_tfds(path: Path, images: Any, indices: range) -> None:
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for index in indices:
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[images.read(index)])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(images.labels[index])])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def test_the_split_is_disjoint_stratified_and_repeatable(digits: Path, tmp_path: Path) -> None:
    dataset = open_dataset(str(digits), tmp_path)
    training, validation = split(dataset, 0.2, 5)
    assert sorted([*training, *validation]) == list(range(400))
    assert set(dataset.labels[validation].tolist()) == set(range(10))
    assert np.array_equal(validation, split(dataset, 0.2, 5)[1])
    assert not np.array_equal(validation, split(dataset, 0.2, 6)[1])


def test_nothing_and_one_class_are_refused(tmp_path: Path, digits: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidData, match="has no images"):
        check(open_dataset(str(tmp_path / "empty"), tmp_path))
    with pytest.raises(InvalidData, match="has one class"):
        check(one_class(tmp_path, digits))


def one_class(tmp_path: Path, digits: Path) -> Any:
    (tmp_path / "one" / "3").mkdir(parents=True)
    source = next((digits / "3").iterdir())
    (tmp_path / "one" / "3" / "a.png").write_bytes(source.read_bytes())
    return open_dataset(str(tmp_path / "one"), tmp_path)


def test_broken_images_are_found_by_their_ends(digits: Path, copy_of: Copy, tmp_path: Path) -> None:
    root = copy_of(digits)
    first, second, third = sorted((root / "0").iterdir())[:3]
    first.write_bytes(first.read_bytes()[:60])
    second.write_bytes(b"")
    third.write_text("<html>404</html>")
    dataset = open_dataset(str(root), tmp_path)
    bad = find_bad_images(dataset)
    assert [dataset.names[index] for index in bad] == [
        path.relative_to(root).as_posix() for path in (first, second, third)
    ]
    rest = dataset.without(bad)
    assert len(rest) == 397 and find_bad_images(rest) == []


def test_a_denied_bucket_is_one_line() -> None:
    from google.api_core.exceptions import Forbidden

    words = r"cannot read gs://b/o: the service account is denied access \(403"
    with pytest.raises(AccessDenied, match=words), explained("read", "gs://b/o"):
        raise Forbidden("the caller does not have storage.objects.get access")
