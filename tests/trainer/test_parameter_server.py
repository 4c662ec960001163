"""ParameterServerStrategy on tf_keras: chief, worker, parameter server and evaluator as processes."""

import json
from pathlib import Path

import pytest

from tests.trainer.conftest import Launch
from trainer.evaluate import evaluate

pytestmark = pytest.mark.timeout(400)  # several TensorFlow processes, on whatever cores there are


def test_parameter_servers_train_with_every_option_and_the_evaluator_measures(
    digits: Path, tmp_path: Path, launch: Launch
) -> None:
    arguments = [
        *("--model=digits", f"--data={digits}", f"--output={tmp_path}/model", "--epochs=50", "--peer-timeout=90"),
        *("--learning-rate=0.02", "--early-stopping=2", "--class-weights", "--augment", "--precision=bfloat16"),
        *("--checkpoint-steps=4", "--keep-checkpoints=2", "--profile", f"--log-dir={tmp_path}/logs"),
    ]
    chief, worker, ps, evaluator = launch(arguments, workers=1, ps=1, evaluators=1)
    assert chief.wait(200) == 0, chief.text
    assert evaluator.wait(60) == 0, "it sees the early stop in the checkpoint: " + evaluator.text
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    history = metrics["history"]
    assert metrics["steps"] == 10 * len(history), "320 training images in batches of 32: no update is lost"
    losses = [entry["val_loss"] for entry in history]
    assert metrics["exported_epoch"] == losses.index(min(losses)) + 1 == len(losses) - 2
    assert metrics["val_loss"] == min(losses)
    assert min(entry["loss"] for entry in history) < history[0]["loss"]
    measured = {path.name: json.loads(path.read_text()) for path in (tmp_path / "evaluation").iterdir()}
    last = measured[f"step-{metrics['steps']:08d}.json"]
    assert last["val_accuracy"] == history[-1]["val_accuracy"], "the evaluator measures what the chief saved"
    assert any(each["step"] % 10 for each in measured.values()) or len(measured) > len(losses), "between epochs too"
    assert list((tmp_path / "logs").rglob("*.xplane.pb")), "the coordinator's profile"
    again = evaluate(f"{tmp_path}/model", str(digits), tmp_path / "loaded")
    assert again["accuracy"] == pytest.approx(metrics["val_accuracy"], abs=0.02), "what tf_keras saved can be loaded"
    assert [worker.wait(30), ps.wait(30)] == [75, 75], "a chief that was lost would need them again: never 0"


def test_what_has_no_meaning_is_refused_before_anything_starts(digits: Path, tmp_path: Path, launch: Launch) -> None:
    wrong = ["--scale-learning-rate", "--sync-batch-norm", "--model=MobileNetV2"]
    arguments = [*wrong, f"--data={digits}", f"--output={tmp_path}/model", "--strategy=auto"]
    for replica in launch(arguments, workers=1, ps=1):
        assert replica.wait(60) == 2
        assert "--scale-learning-rate has no meaning" in replica.text and "--sync-batch-norm has no" in replica.text


def test_a_chief_that_never_comes_is_named(digits: Path, tmp_path: Path, launch: Launch) -> None:
    arguments = ["--model=digits", f"--data={digits}", f"--output={tmp_path}/model", "--peer-timeout=1"]
    chief, worker, _ = launch(arguments, workers=1, ps=1)
    chief.kill()
    assert worker.wait(60) == 76
    assert "chief 0 (127.0.0.1:" in worker.text and "did not answer within 1 s" in worker.text
