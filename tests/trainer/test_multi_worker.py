"""Several processes that share gradients, and what becomes of them when one is stopped, killed or never there."""

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.conftest import Launch, Replica
from trainer import checkpoints
from trainer.errors import PeerAbsent, PeerLost, Terminated

COMMON = ("--model=digits", "--seed=3")

pytestmark = pytest.mark.timeout(400)  # several TensorFlow processes, on whatever cores there are


def weights_named(replica: Replica) -> str:
    found = re.search(r"weights (\w+) after step \d+", replica.text)
    assert found, replica.text
    return found[1]


def weights(output: Path) -> list[Any]:
    state = checkpoints.load_newest(str(output / "checkpoints"))
    assert state is not None
    return list(state.values)


def distance(a: list[Any], b: list[Any]) -> float:
    assert len(a) == len(b)
    return max(float(np.max(np.abs(x.astype(np.float64) - y))) for x, y in zip(a, b, strict=True))


def arguments(digits: Path, output: Path, per_replica: int, *more: str) -> list[str]:
    return [*COMMON, f"--data={digits}", f"--output={output}/model", f"--batch-size={per_replica}", *more]


STEPS = 7
"""An epoch of 320 images in global batches of 48."""


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> Path:
    """One process: three epochs with a global batch of 48. 320 training images: the last batch of an epoch has 32."""
    from trainer.arguments import parse_arguments
    from trainer.cluster import Cluster
    from trainer.training import train

    output = tmp_path_factory.mktemp("single")
    options = arguments(digits, output, 48, "--epochs=3", "--checkpoint-steps=1", "--keep-checkpoints=99")
    train(parse_arguments(options, {}), Cluster(), {})
    return output


def test_three_replicas_agree_and_end_where_one_process_does(
    digits: Path, tmp_path: Path, launch: Launch, single: Path
) -> None:
    """The last global batch of 48 has 32 images: the third replica's part of it is empty, and nothing hangs."""
    job = launch(arguments(digits, tmp_path, 16, "--epochs=3"), workers=2)
    assert [replica.wait() for replica in job] == [0, 0, 0], job[0].text
    assert len({weights_named(replica) for replica in job}) == 1, "all replicas hold the same bits"
    assert distance(weights(tmp_path), weights(single)) < 1e-4
    metrics, expected = (json.loads((output / "model" / "metrics.json").read_text()) for output in (tmp_path, single))
    assert metrics["val_accuracy"] == expected["val_accuracy"]
    assert metrics["loss"] == pytest.approx(expected["loss"], rel=1e-3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "model"], "no worker's files are left"
    assert [len(re.findall("^epoch", replica.text, re.M)) for replica in job] == [3, 0, 0], "the primary alone reports"


def test_batch_norm_agrees_over_processes_on_the_mean_of_what_each_saw(launch: Launch) -> None:
    job = launch([], workers=1, module="tests.trainer.agreeing_replica")
    assert [replica.wait() for replica in job] == [0, 0], job[0].text
    told = [json.loads(next(line for line in replica.lines if line.startswith("{"))) for replica in job]
    assert [one["before"] for one in told] == [[5.0] * 3, [25.0] * 3], "each saw its own images"
    assert [one["after"] for one in told] == [[15.0] * 3] * 2


def test_after_a_restart_all_replicas_stop_early_at_the_same_epoch(
    digits: Path, tmp_path: Path, launch: Launch
) -> None:
    """The second start has the whole history in its checkpoint, which only the primary reads."""
    options = arguments(digits, tmp_path, 24, "--learning-rate=0.02", "--early-stopping=2")
    first = launch([*options, "--epochs=2"], workers=1)
    assert [replica.wait() for replica in first] == [0, 0], first[0].text
    second = launch([*options, "--epochs=40"], workers=1)
    assert [replica.wait() for replica in second] == [0, 0], second[0].text
    assert all("stopping early" in replica.text for replica in second)
    assert len({weights_named(replica) for replica in second}) == 1, "both hold the best epoch's weights"
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert metrics["exported_epoch"] == metrics["epochs"] - 2
    assert metrics["val_loss"] == min(entry["val_loss"] for entry in metrics["history"])


def test_a_killed_worker_ends_the_others_and_a_restart_ends_where_an_undisturbed_run_does(
    digits: Path, tmp_path: Path, launch: Launch, single: Path
) -> None:
    slow = arguments(digits, tmp_path, 24, "--epochs=60", "--checkpoint-steps=2")
    chief, worker = launch(slow, workers=1)
    chief.wait_for("epoch 1/60")
    worker.process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    assert chief.wait(30) == PeerLost.exit_status, chief.text
    assert time.monotonic() - killed < 30
    assert "lost a peer" in chief.text
    state = checkpoints.load_newest(str(tmp_path / "checkpoints"))
    assert state is not None and state.step > 0
    # Vertex AI starts both again, and they go on from a checkpoint: here from one in mid-epoch, so that the run
    # that nobody disturbed is known.
    again = tmp_path / "again"
    name, step = next(
        (path.name, step)
        for path in sorted((single / "checkpoints").iterdir(), reverse=True)
        if (step := int(path.stem.rpartition("-")[2])) % STEPS  # a busy disk skips some, never all
    )
    (again / "checkpoints").mkdir(parents=True)
    (again / "checkpoints" / name).write_bytes((single / "checkpoints" / name).read_bytes())
    job = launch(arguments(digits, again, 24, "--epochs=3"), workers=1)
    assert [replica.wait() for replica in job] == [0, 0], job[0].text
    position = f"epoch {step // STEPS + 1}, {step % STEPS * 48} images into it"
    assert f"resuming at step {step}: {position}" in job[1].text
    assert distance(weights(again), weights(single)) < 1e-4


def test_sigterm_to_one_replica_stops_all_at_the_same_step_with_a_checkpoint(
    digits: Path, tmp_path: Path, launch: Launch
) -> None:
    chief, worker = launch(arguments(digits, tmp_path, 24, "--epochs=500"), workers=1)
    chief.wait_for("epoch 1/500")
    worker.process.send_signal(signal.SIGTERM)
    assert [chief.wait(30), worker.wait(30)] == [Terminated.exit_status] * 2, chief.text
    steps = [re.search(r"SIGTERM: stopped after step (\d+)", replica.text) for replica in (chief, worker)]
    assert steps[0] and steps[1] and steps[0][1] == steps[1][1]
    state = checkpoints.load_newest(str(tmp_path / "checkpoints"))
    assert state is not None and state.step == int(steps[0][1]), "no step is lost"
    assert not (tmp_path / "model").exists()


def test_a_peer_that_never_comes_is_named(digits: Path, tmp_path: Path, launch: Launch) -> None:
    chief, worker = launch(arguments(digits, tmp_path, 24, "--peer-timeout=4"), workers=1)
    worker.kill()
    assert chief.wait(60) == PeerAbsent.exit_status
    assert re.search(r"worker 0 \(127\.0\.0\.1:\d+\) did not answer within 4 s", chief.text)
