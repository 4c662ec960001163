"""The pure parts of `kickoff demo`: what it says of a failure, and when it calls a model a failure."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from kickoff.runs import Change, JobRecord, Run, State

from deploy.commands.local import keep_logs
from deploy.demo import DemoFailed, describe_change, failure_lines, verify
from deploy.digits import COUNT, write_digits
from tests.kickoff.making import make_run

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ERROR = "The replica workerpool1-0 exited with a non-zero status of 1.\nTraceback (most recent call last):"


def failed() -> Run:
    return make_run().model_copy(update={"state": State.FAILED, "job": JobRecord(name="jobs/1", error=ERROR)})


def test_a_failure_is_told_once_and_without_the_native_log() -> None:
    noise = "I0000 00:00:1796079705.020008   15720 cudart_stub.cc:31] Could not find cuda drivers"
    tails = [("service", ["Job failed."]), ("workerpool1-0", [noise, "trainer: 1 unreadable images: 2/0700.png"])]
    run = failed()
    assert list(failure_lines(run, tails)) == [
        f"run {run.run_id} ended FAILED",
        "The replica workerpool1-0 exited with a non-zero status of 1.",
        "--- workerpool1-0",
        "trainer: 1 unreadable images: 2/0700.png",
    ]


def test_a_note_keeps_its_brackets_and_its_first_line_only() -> None:
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    change = Change(state=State.FAILED, time=NOW, note="[/device:CPU:0] broke\nmore")
    Console(file=out, width=200).print(describe_change(change, NOW))
    assert out.getvalue() == "   0.0 s  FAILED  [/device:CPU:0] broke\n"


@pytest.mark.parametrize(
    ("recorded", "again", "said"),
    [(0.98, 0.90, r"reaches 0\.9000, the record says 0\.9800"), (0.5, 0.5, r"0\.93 is the least")],
)
def test_a_model_that_differs_or_learnt_nothing_fails(recorded: float, again: float, said: str) -> None:
    with pytest.raises(DemoFailed, match=said):
        verify(make_run().model_copy(update={"metrics": {"val_accuracy": recorded}}), {"accuracy": again})


def test_logs_outlive_the_stack(tmp_path: Path) -> None:
    (tmp_path / "state/logs").mkdir(parents=True)
    (tmp_path / "state/logs/storage.log").write_text("out of memory")
    for _ in range(2):  # the second time over the first
        kept = keep_logs(tmp_path / "state", tmp_path / "keep")
    assert (kept / "logs/storage.log").read_text() == "out of memory"


def test_digits_lie_in_class_folders(tmp_path: Path) -> None:
    assert write_digits(tmp_path) == COUNT
    assert sorted(path.name for path in tmp_path.iterdir()) == list("0123456789")
    assert len(list(tmp_path.rglob("*.png"))) == COUNT
