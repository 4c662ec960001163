"""The pure parts of `kickoff demo`: what it says of a failure, and when it calls a model a failure."""

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kickoff.errors import ConfigurationError
from kickoff.request import parse_request
from kickoff.runs import Change, JobRecord, Run, State

from deploy.commands.local import demo, keep_logs
from deploy.demo import DemoFailed, describe_change, describe_replicas, failure_lines, verify
from deploy.demo_data import BUCKET, SCENES
from deploy.digits import COUNT, digit_files
from deploy.photos import COUNT as PHOTOS
from deploy.photos import photo_files
from deploy.sample_images import write_images
from tests.kickoff.making import make_run
from tests.kickoff.requests_at_hand import RECIPES

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ERROR = "The replica workerpool1-0 exited with a non-zero status of 1.\nTraceback (most recent call last):"


def failed() -> Run:
    return make_run().model_copy(update={"state": State.FAILED, "job": JobRecord(name="jobs/1", error=ERROR)})


def test_a_failure_is_told_once_and_without_the_native_log() -> None:
    noise = "I0000 00:00:1796079705.020008   15720 cudart_stub.cc:31] Could not find cuda drivers"
    tails = [("service", ["Job failed."]), ("workerpool1-0", [noise, "trainer: 1 unreadable image: 2/0700.png"])]
    run = failed()
    assert list(failure_lines(run, tails)) == [
        f"run {run.run_id} ended FAILED",
        "The replica workerpool1-0 exited with a non-zero status of 1.",
        "--- workerpool1-0",
        "trainer: 1 unreadable image: 2/0700.png",
    ]


def test_a_note_keeps_its_brackets_and_its_first_line_only() -> None:
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    change = Change(state=State.FAILED, time=NOW, note="[/device:CPU:0] broke\nmore")
    Console(file=out, width=200).print(describe_change(change, NOW))
    assert out.getvalue() == "   0.0 s  FAILED  [/device:CPU:0] broke\n"


@pytest.mark.parametrize(
    ("metrics", "jobs", "again", "said"),
    [
        ({"val_accuracy": 0.98}, 1, 0.90, r"reaches 0\.9000, the record says 0\.9800"),
        ({"val_accuracy": 0.98}, 1, math.nan, "reaches nan, the record says"),
        ({"val_accuracy": 0.5}, 1, 0.5, r"0\.93 is the least"),
        ({"val_accuracy": 0.98}, 2, 0.98, "has 2 jobs"),
        ({}, 1, 0.0, "holds no validation accuracy"),
    ],
)
def test_what_the_demo_promises_is_checked(metrics: dict[str, float], jobs: int, again: float, said: str) -> None:
    with pytest.raises(DemoFailed, match=said):
        verify(make_run().model_copy(update={"metrics": metrics}), jobs, {"accuracy": again}, [], 0.93)


def test_an_evaluator_must_have_measured() -> None:
    pools = [{"replicaCount": count} for count in (1, 2, 1, 1)]
    fields = {"metrics": {"val_accuracy": 1.0}, "custom_job": {"jobSpec": {"workerPoolSpecs": pools}}}
    run = make_run().model_copy(update=fields)
    assert describe_replicas(run) == "1 primary + 2 workers + 1 parameter server + 1 evaluator"
    with pytest.raises(DemoFailed, match="the evaluator of run"):
        verify(run, 1, {"accuracy": 1.0}, [], 0.7)
    verify(run, 1, {"accuracy": 1.0}, [{"step": 1, "val_accuracy": 1.0}], 0.7)


def test_logs_outlive_the_stack(tmp_path: Path) -> None:
    (tmp_path / "state/logs").mkdir(parents=True)
    (tmp_path / "state/logs/storage.log").write_text("out of memory")
    for _ in range(2):  # the second time over the first
        kept = keep_logs(tmp_path / "state", tmp_path / "keep")
    assert (kept / "logs/storage.log").read_text() == "out of memory"


def test_digits_lie_in_class_folders(tmp_path: Path) -> None:
    assert write_images(tmp_path, digit_files()) == COUNT
    assert sorted(path.name for path in tmp_path.iterdir()) == list("0123456789")
    assert len(list(tmp_path.rglob("*.png"))) == COUNT


def test_every_shipped_recipe_has_a_demo_that_asks_for_what_the_recipe_allows() -> None:
    assert set(SCENES) == {recipe.name for recipe in RECIPES}
    for recipe in RECIPES:
        scene = SCENES[recipe.name]
        if scene.starts_by_upload:
            assert recipe.when.upload and recipe.when.upload.root == scene.root
        else:
            parse_request(scene.request(recipe.name), RECIPES)  # raises where something is not allowed
            assert not RECIPES.match_upload(BUCKET, f"{scene.root}0.jpg")


def test_an_unknown_recipe_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="--recipe is roses; it must be one of digits, flowers-multi-gpu"):
        demo(recipe="roses")


def test_the_photographs_are_the_same_each_time_and_whole(tmp_path: Path) -> None:
    files = dict(photo_files())
    assert files == dict(photo_files())
    assert len(files) == PHOTOS == write_images(tmp_path, photo_files())
    assert {name.partition("/")[0] for name in files} == {"temple", "flower"}
    assert all(jpeg.startswith(b"\xff\xd8") and jpeg.endswith(b"\xff\xd9") for jpeg in files.values())
