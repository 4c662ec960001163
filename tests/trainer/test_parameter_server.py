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
