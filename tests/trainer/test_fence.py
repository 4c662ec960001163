"""One job of a run trains, whatever races there were before."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.trainer.conftest import Launch
from trainer.fence import fence_uri, wins


def test_the_fence_stands_beside_the_model() -> None:
    environ = {"AIP_MODEL_DIR": "gs://b/runs/7/model/", "CLOUD_ML_JOB_ID": "11"}
    assert fence_uri(environ) == "gs://b/runs/7/winner"
    assert fence_uri({"AIP_MODEL_DIR": "gs://b/runs/7/model/"}) is None
    assert fence_uri({"CLOUD_ML_JOB_ID": "11"}) is None


def test_one_of_many_wins_in_cloud_storage(gcs_client: Any) -> None:
    gcs_client.create_bucket("fences")
    with ThreadPoolExecutor(8) as pool:
        jobs = [str(number) for number in range(8)]
        outcomes = list(pool.map(lambda job: wins("gs://fences/run/winner", job, primary=True), jobs))
    assert sum(outcomes) == 1
    winner = jobs[outcomes.index(True)]
    assert wins("gs://fences/run/winner", winner, primary=True), "a restart of the same job goes on"
    assert wins("gs://fences/run/winner", winner, primary=False)
    assert not wins("gs://fences/run/winner", "another", primary=False)
    assert wins("gs://fences/new/winner", "any", primary=False), "a worker that asks before its primary goes on"


def test_a_duplicate_ends_well_and_touches_nothing(tmp_path: Path, digits: Path, launch: Launch) -> None:
    (tmp_path / "winner").write_text("1")
    env = {"AIP_MODEL_DIR": f"{tmp_path}/model/", "CLOUD_ML_JOB_ID": "2"}
    (replica,) = launch(["--model=digits", f"--data={digits}"], env=env)
    assert replica.wait(30) == 0
    assert replica.text.startswith("duplicate: ")
    assert [path.name for path in tmp_path.iterdir()] == ["winner"]
