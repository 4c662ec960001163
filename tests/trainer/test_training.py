"""Whole runs in this process: one device, and two logical ones under MirroredStrategy."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from trainer import checkpoints
from trainer.arguments import parse_arguments
from trainer.cluster import Cluster
from trainer.errors import Diverged, InvalidArguments, InvalidData
from trainer.evaluate import evaluate
from trainer.milestones import Milestones
from trainer.schedule import Position
from trainer.training import train

Copy = Callable[[Path], Path]


def run(output: Path, data: Path, *arguments: str) -> dict[str, Any]:
    """Trains digits into `output`/model; gives metrics.json."""
    fixed = ["--model=digits", f"--data={data}", f"--output={output}/model", "--batch-size=32"]
    train(parse_arguments([*fixed, *arguments], {}), Cluster(), {"KICKOFF_CPU_DEVICES": "2"})
    metrics: dict[str, Any] = json.loads((output / "model" / "metrics.json").read_text())
    return metrics


def weights(output: Path) -> list[Any]:
    state = checkpoints.load_newest(str(output / "checkpoints"))
    assert state is not None
    return list(state.values)


def distance(a: list[Any], b: list[Any]) -> float:
    assert len(a) == len(b)
    return max(float(np.max(np.abs(x.astype(np.float64) - y))) for x, y in zip(a, b, strict=True))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> tuple[Path, dict[str, Any]]:
    """Three epochs on one device."""
    output = tmp_path_factory.mktemp("undisturbed")
    return output, run(output, digits, "--epochs=3", "--strategy=none", f"--log-dir={output}/logs", "--profile")


def test_the_saved_model_reproduces_the_reported_accuracy(
    undisturbed: tuple[Path, dict[str, Any]], digits: Path, tmp_path: Path
) -> None:
    output, metrics = undisturbed
    assert metrics["loss"] < metrics["history"][0]["loss"] and metrics["val_accuracy"] > 0.5
    again = evaluate(f"{output}/model", str(digits), tmp_path)
    assert again["examples"] == metrics["examples"]["validation"] == 80
    assert again["accuracy"] == pytest.approx(metrics["val_accuracy"], abs=1e-6)
    assert again["loss"] == pytest.approx(metrics["val_loss"], rel=1e-4)


def test_the_model_directory_is_whole(undisturbed: tuple[Path, dict[str, Any]]) -> None:
    model = undisturbed[0] / "model"
    expected = {
        "saved_model.pb",
        "model.keras",
        "labels.txt",
        "metrics.json",
        "model_card.json",
        "confusion_matrix.png",
    }
    assert expected <= {path.name for path in model.iterdir()}
    assert (model / "labels.txt").read_text().split() == list("0123456789")
    assert not [path for path in undisturbed[0].rglob("*") if path.name.startswith(".")]
    card = json.loads((model / "model_card.json").read_text())
    assert np.sum(card["confusion_matrix"]) == 80, "every validation image is counted once"
    assert re.fullmatch(r"\d+\.\d+\.\d+\+[0-9a-f]{12}", card["code_version"])
    assert card["dataset"]["digest"] and card["per_class"]["3"]["examples"] == sum(card["confusion_matrix"][3])
    with Image.open(model / "confusion_matrix.png") as picture:
        picture.verify()
    keras = tf.keras.models.load_model(model / "model.keras")
    assert keras.predict(np.zeros((1, 8, 8, 3)), verbose=0).shape == (1, 10)


def test_tensorboard_finds_a_scalar_for_every_epoch(undisturbed: tuple[Path, dict[str, Any]]) -> None:
    (path,) = (undisturbed[0] / "logs").glob("events.out.*")
    assert list((undisturbed[0] / "logs").rglob("*.xplane.pb")), "a profile of ten steps"
    found: dict[str, list[int]] = {}
    graphs = 0
    for record in tf.data.TFRecordDataset(str(path)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        graphs += bool(event.graph_def)
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            found.setdefault(value.tag, []).append(event.step)
    assert graphs == 1
    assert found["loss"] == found["val_accuracy"] == found["images_per_second"] == [1, 2, 3]


def test_two_devices_end_where_one_does(undisturbed: tuple[Path, dict[str, Any]], digits: Path, tmp_path: Path) -> None:
    output, metrics = undisturbed
    mirrored = run(tmp_path, digits, "--epochs=3", "--strategy=mirrored", "--batch-size=16")
    assert distance(weights(tmp_path), weights(output)) < 1e-4
    assert mirrored["val_accuracy"] == metrics["val_accuracy"]


def test_the_same_seed_gives_the_same_bits(
    undisturbed: tuple[Path, dict[str, Any]], digits: Path, tmp_path: Path
) -> None:
    run(tmp_path, digits, "--epochs=3", "--strategy=none")
    assert distance(weights(tmp_path), weights(undisturbed[0])) == 0


def test_resumes_inside_an_epoch_on_another_number_of_replicas(
    undisturbed: tuple[Path, dict[str, Any]], digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, metrics = undisturbed
    # 320 training images in batches of 32: 10 steps an epoch. Keep the checkpoint in the middle of the second.
    run(tmp_path, digits, "--epochs=3", "--strategy=none", "--checkpoint-steps=4", "--keep-checkpoints=99")
    steps = {int(path.stem.rpartition("-")[2]): path for path in (tmp_path / "checkpoints").iterdir()}
    step = max(step for step in steps if step < 20)
    for newer in (path for number, path in steps.items() if number > step):
        newer.unlink()
    capsys.readouterr()
    resumed = run(tmp_path, digits, "--epochs=3", "--strategy=mirrored", "--batch-size=16")
    assert 10 < step < 20
    assert f"resuming at step {step}: epoch 2, {(step - 10) * 32} images into it" in capsys.readouterr().out
    assert distance(weights(tmp_path), weights(output)) < 1e-4
    assert [round(entry["loss"], 4) for entry in resumed["history"]] == [
        round(entry["loss"], 4) for entry in metrics["history"]
    ]


def test_another_runs_checkpoints_are_refused(undisturbed: tuple[Path, dict[str, Any]], digits: Path) -> None:
    with pytest.raises(InvalidArguments, match="seed 123 there, 5 here"):
        run(undisturbed[0], digits, "--seed=5")


def test_a_loss_that_is_no_number_stops_with_step_and_files(
    undisturbed: tuple[Path, dict[str, Any]], digits: Path, tmp_path: Path
) -> None:
    state = checkpoints.load_newest(str(undisturbed[0] / "checkpoints"))
    assert state is not None
    state.values[7][:] = np.nan  # the bias before the softmax
    checkpoints.Writer(str(tmp_path / "checkpoints"), 1).write(state, wait=True)
    with pytest.raises(Diverged, match=r"the loss is nan at step 31; its batch: \d/\d{4}\.png, ") as caught:
        run(tmp_path, digits, "--epochs=4", "--strategy=none")
    assert str(caught.value).count(".png") == 32
    assert not (tmp_path / "model").exists()


def test_a_lost_weight_stops_though_the_loss_looks_well(
    undisturbed: tuple[Path, dict[str, Any]], digits: Path, tmp_path: Path
) -> None:
    state = checkpoints.load_newest(str(undisturbed[0] / "checkpoints"))
    assert state is not None
    state.values[0][..., 0] = np.nan  # one filter of the first convolution, which ReLU then hides
    checkpoints.Writer(str(tmp_path / "checkpoints"), 1).write(state, wait=True)
    with pytest.raises(Diverged):
        run(tmp_path, digits, "--epochs=4", "--strategy=none")


def test_early_stopping_waits_as_long_as_it_was_told() -> None:
    reached = Milestones()
    assert not reached.stops_early(1)
    for epoch, loss in enumerate((3.0, 1.0, 2.0, 1.5), start=1):
        reached.step, reached.position = 10 * epoch, Position(epoch, 0)
        assert reached.end_epoch({"val_loss": loss}) is (epoch < 3)
    assert reached.stops_early(2) and not reached.stops_early(3) and not reached.stops_early(0)
    assert reached.best == checkpoints.Best(epoch=2, step=20, loss=1.0)
    assert (reached.chosen_epoch(2), reached.chosen_epoch(0)) == (2, 4)


def test_early_stopping_exports_the_best_epoch_also_after_a_restart(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--epochs=30", "--early-stopping=2", "--learning-rate=0.02", "--keep-checkpoints=1", "--strategy=none"]
    metrics = run(tmp_path, digits, *arguments)
    losses = [entry["val_loss"] for entry in metrics["history"]]
    best = int(np.argmin(losses))
    assert len(losses) == best + 3 < 30, "two epochs more than the best"
    assert metrics["exported_epoch"] == best + 1 and metrics["val_loss"] == losses[best]
    again = evaluate(f"{tmp_path}/model", str(digits), tmp_path / "first")
    assert again["loss"] == pytest.approx(losses[best], rel=1e-4)
    # As after a kill between the last epoch and the export: nothing is trained again, and the same model comes out.
    shutil.rmtree(tmp_path / "model")
    capsys.readouterr()
    assert run(tmp_path, digits, *arguments) == metrics
    assert "epoch " not in capsys.readouterr().out.replace(": epoch ", "").replace("exporting epoch ", "")
    card = json.loads((tmp_path / "model" / "model_card.json").read_text())
    assert card["epoch"] == best + 1 and np.trace(card["confusion_matrix"]) / 80 == pytest.approx(again["accuracy"])


def test_bad_images_are_refused_or_left_out(digits: Path, tmp_path: Path, copy_of: Copy) -> None:
    root = copy_of(digits)
    empty = sorted((root / "0").iterdir())[0]
    empty.write_bytes(b"")
    broken = sorted((root / "1").iterdir())[:12]
    for path in broken:
        content = bytearray(path.read_bytes())
        content[40:60] = b"\0" * 20  # whole by its ends: only decoding can tell
        path.write_bytes(content)
    with pytest.raises(InvalidData, match=r"1 unreadable image: 0/"):
        run(tmp_path, root, "--epochs=1", "--strategy=none")
    metrics = run(tmp_path, root, "--epochs=1", "--strategy=mirrored", "--skip-bad-images")
    assert metrics["undecodable"] == [path.relative_to(root).as_posix() for path in broken], "whichever replica met it"
    counted = metrics["examples"]
    assert counted["training"] + counted["validation"] == 400 - 1 - 12
    card = json.loads((tmp_path / "model" / "model_card.json").read_text())
    assert np.sum(card["confusion_matrix"]) == counted["validation"] < 80
    again = evaluate(f"{tmp_path}/model", str(root), tmp_path / "evaluation")
    assert again["examples"] == counted["validation"]
    assert again["accuracy"] == pytest.approx(metrics["val_accuracy"], abs=1e-6)
    empty.unlink()
    with pytest.raises(InvalidData, match=r"1/\d{4}\.png cannot be decoded"):
        run(tmp_path / "again", root, "--epochs=1", "--strategy=none")


def test_options_of_training(digits: Path, tmp_path: Path) -> None:
    """Augmentation, class weights, scaled rate and bfloat16 together, on two devices."""
    options = ["--augment", "--class-weights", "--scale-learning-rate", "--precision=bfloat16"]
    try:
        metrics = run(tmp_path, digits, "--epochs=2", "--strategy=mirrored", *options)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    assert metrics["loss"] < metrics["history"][0]["loss"]


def test_a_log_directory_that_cannot_be_written_costs_only_the_curves(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    options = ["--epochs=1", "--strategy=none", f"--log-dir={tmp_path}/file/logs"]
    assert run(tmp_path, digits, *options)["epochs"] == 1
    assert "warning: no more TensorBoard events in" in capsys.readouterr().err


def test_images_too_small_for_the_model_are_the_options_fault(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArguments, match="--model flowers with --image-size 4: "):
        run(tmp_path, digits, "--model=flowers", "--image-size=4", "--strategy=none")


def test_nothing_that_can_be_decoded_is_no_success(tmp_path: Path) -> None:
    for name in ("a/1.gif", "a/2.gif", "b/1.gif", "b/2.gif"):  # whole by their first bytes
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"GIF89a" + bytes(60))
    with pytest.raises(InvalidData, match="none of the training images can be decoded"):
        run(tmp_path, tmp_path / "data", "--epochs=1", "--strategy=none", "--skip-bad-images")


def test_a_dataset_whose_classes_were_renamed_is_another_run(digits: Path, tmp_path: Path, copy_of: Copy) -> None:
    run(tmp_path, digits, "--epochs=1", "--strategy=none")
    renamed = copy_of(digits)
    (renamed / "0").rename(renamed / "zero")
    with pytest.raises(InvalidArguments, match="of another run: dataset "):
        run(tmp_path, renamed, "--epochs=2", "--strategy=none")
