"""ParameterServerStrategy on tf_keras: chief, worker, parameter server and evaluator as processes."""

import json
from pathlib import Path

import pytest

from tests.trainer.conftest import Launch

pytestmark = pytest.mark.timeout(400)  # several TensorFlow processes, on whatever cores there are


def test_parameter_servers_train_and_the_evaluator_measures(digits: Path, tmp_path: Path, launch: Launch) -> None:
    arguments = ["--model=digits", f"--data={digits}", f"--output={tmp_path}/model", "--epochs=4", "--peer-timeout=90"]
    chief, worker, ps, evaluator = launch(arguments, workers=1, ps=1, evaluators=1)
    assert chief.wait(150) == 0, chief.text
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert metrics["steps"] == 40, "320 training images in batches of 32, four times: no update is lost"
    assert metrics["loss"] < metrics["history"][0]["loss"]
    assert (tmp_path / "model" / "saved_model.pb").exists()
    assert evaluator.wait(60) == 0, evaluator.text
    last = json.loads((tmp_path / "evaluation" / "step-00000040.json").read_text())
    assert last["val_accuracy"] == metrics["val_accuracy"], "the evaluator measures what the chief saved"
    assert [worker.wait(30), ps.wait(30)] == [0, 0], "they end by themselves when the chief has gone"


def test_every_option_that_has_a_meaning_is_honoured(digits: Path, tmp_path: Path, launch: Launch) -> None:
    """Early stopping, so that the best epoch is not the last one, and all the others at once."""
    arguments = [
        *("--model=digits", f"--data={digits}", f"--output={tmp_path}/model", "--epochs=50", "--peer-timeout=90"),
        *("--learning-rate=0.05", "--early-stopping=2", "--class-weights", "--augment", "--precision=bfloat16"),
        *("--checkpoint-steps=4", "--keep-checkpoints=2", "--profile", f"--log-dir={tmp_path}/logs"),
    ]
    chief, worker, ps, evaluator = launch(arguments, workers=1, ps=1, evaluators=1)
    assert chief.wait(200) == 0, chief.text
    assert evaluator.wait(60) == 0, "it sees the early stop in the checkpoint: " + evaluator.text
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    losses = [entry["val_loss"] for entry in metrics["history"]]
    assert metrics["exported_epoch"] == losses.index(min(losses)) + 1 == len(losses) - 2
    assert metrics["val_loss"] == min(losses)
    measured = [json.loads(path.read_text()) for path in (tmp_path / "evaluation").iterdir()]
    assert any(entry["step"] % 10 for entry in measured) or len(measured) > len(losses), "between epochs too"
    assert list((tmp_path / "logs").rglob("*.xplane.pb")), "the coordinator's profile"
    assert [worker.wait(30), ps.wait(30)] == [0, 0]


def test_what_has_no_meaning_is_refused_before_anything_starts(digits: Path, tmp_path: Path, launch: Launch) -> None:
    wrong = ["--scale-learning-rate", "--sync-batch-norm", "--model=MobileNetV2"]
    arguments = [*wrong, f"--data={digits}", f"--output={tmp_path}/model", "--strategy=auto"]
    for replica in launch(arguments, workers=1, ps=1):
        assert replica.wait(60) == 2
        assert "--scale-learning-rate has no meaning" in replica.text and "--sync-batch-norm has no" in replica.text
