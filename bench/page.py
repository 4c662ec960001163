"""The page over 1,000 and 100,000 runs, and what the larger number costs.

    python -m bench.page [--runs 1000 100000] [--repeat 30]

In this process, through Flask as the functions framework calls it, over SQLite; prints a table of
medians, the page's size, and the ratio of the last column to the first, both measured in this run.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import flask
from flask.testing import FlaskClient
from kickoff.clients import Clients
from kickoff.dashboard import respond
from kickoff.ledger.records import encode_run, index_fields
from kickoff.progress import EPOCHS
from kickoff.runs import Change, DatasetRecord, JobRecord, Run, State, Trigger
from kickoff.settings import Settings

from tests.kickoff.making import NOW, make_run

RECIPES = ("flowers", "cassava", "digits", "nightly")
EPOCHS_EACH = 50
_BATCH = 5000


@dataclass(frozen=True)
class Figure:
    milliseconds: float
    kilobytes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--repeat", type=int, default=30)
    given = parser.parse_args()
    columns = []
    for count in given.runs:
        with tempfile.TemporaryDirectory(prefix="kickoff-page-") as folder:
            columns.append(measure(Path(folder), count, given.repeat))
    print_table(given.runs, columns)


def measure(folder: Path, count: int, repeat: int) -> dict[str, Figure]:
    values = {"KICKOFF_PROJECT": "kickoff-local", "KICKOFF_LEDGER": f"sqlite://{folder}/runs.db"}
    clients = Clients(Settings.from_environ(values))
    fill(clients, count)
    client = make_client(clients)
    middle, newest = make(count // 2).run_id, make(count - 1).run_id
    paths = {
        "the list": "/",
        "of one recipe": "/?recipe=flowers",
        "of one state": "/?state=FAILED",
        "of recipe and state": "/?recipe=flowers&state=FAILED",
        "a page in the middle": f"/?after={middle}",
        "a run's id as text": f"/?text={middle}",
        "a job's id as text": f"/?text={count // 2 + 1}",
        "a label that a tenth has": "/?label=team%3Dt3",
        "a text that none has": "/?text=nowhere",
        "the page of a run": f"/runs/{newest}",
        "its record as JSON": f"/runs/{newest}.json",
    }
    return {name: time_path(client, path, repeat) for name, path in paths.items()}


def time_path(client: FlaskClient, path: str, repeat: int) -> Figure:
    times, size = [], 0
    for _ in range(repeat + 1):
        began = time.perf_counter()
        answer = client.get(path)
        times.append(time.perf_counter() - began)
        assert answer.status_code == 200, (path, answer.status_code)
        size = len(answer.data)
    return Figure(1000 * statistics.median(times[1:]), size / 1000)


def make(n: int) -> Run:
    """The n-th run, with what a real record holds."""
    created = NOW + timedelta(seconds=10 * n)
    states = (
        State.QUEUED,
        State.SUBMITTING,
        State.SUBMITTED,
        State.RUNNING,
        State.FAILED if n % 7 == 0 else State.SUCCEEDED,
    )
    return make_run(
        f"m-{n}",
        recipe=RECIPES[n % len(RECIPES)],
        created=created,
        state=states[-1],
        history=tuple(Change(state=state, time=created + timedelta(seconds=i)) for i, state in enumerate(states)),
        trigger=Trigger(kind="upload", event_id=str(n), source=f"gs://kickoff-local-data/set-{n}/_SUCCESS#1"),
        labels={"team": f"t{n % 10}"},
        dataset=DatasetRecord(uri=f"gs://kickoff-local-data/set-{n}/", digest="0" * 64, objects=3670, bytes=10**8),
        job=JobRecord(name=f"projects/kickoff-local/locations/us-central1/customJobs/{n + 1}", state="JOB_STATE_ENDED"),
        metrics={"loss": 0.1, "accuracy": 0.97, "val_loss": 0.2, "val_accuracy": 0.93},
        finished_published=True,
    )


def fill(clients: Clients, count: int) -> None:
    """Write the runs in few transactions; each one's own would take minutes."""
    import sqlite3

    ledger = clients.ledger
    newest = ledger.create_run(make(count - 1))
    for epoch in range(1, EPOCHS_EACH + 1):
        metrics = {name: value / epoch for name, value in newest.metrics.items()}
        data = {"epoch": epoch, "epochs": EPOCHS_EACH, "metrics": metrics, "images_per_second": 99.0, "time": None}
        ledger.create_document(EPOCHS, f"{newest.run_id}/{epoch:06d}", data)
    columns = ("run_id", "version", "record", *index_fields(newest))
    sql = f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    with sqlite3.connect(clients.settings.ledger.removeprefix("sqlite://")) as db:
        for begin in range(0, count - 1, _BATCH):
            runs = map(make, range(begin, min(begin + _BATCH, count - 1)))
            db.executemany(sql, [(run.run_id, 1, encode_run(run), *index_fields(run).values()) for run in runs])


def make_client(clients: Clients) -> FlaskClient:
    app = flask.Flask("page", static_folder=None)

    def answer(path: str) -> Any:
        return respond(flask.request, clients, lambda: NOW)

    app.add_url_rule("/", "root", answer, defaults={"path": ""})
    app.add_url_rule("/<path:path>", "path", answer)
    return app.test_client()


def print_table(counts: list[int], columns: list[dict[str, Figure]]) -> None:
    heads = "".join(f"{f'{count:,} runs':>16}" for count in counts)
    print(f"{'':28}{heads}{'ratio':>8}{'size':>10}")
    for name, first in columns[0].items():
        found = [column[name] for column in columns]
        times = "".join(f"{figure.milliseconds:>13.1f} ms" for figure in found)
        ratio = found[-1].milliseconds / first.milliseconds
        print(f"{name:28}{times}{ratio:>8.2f}{found[-1].kilobytes:>7.1f} kB")


if __name__ == "__main__":
    main()
