"""`kickoff tensorboard`: the event files of runs, copied to a folder, and TensorBoard over it where it is installed.

The trainer writes them to ``AIP_TENSORBOARD_LOG_DIR``: ``<base output directory>/logs/``.
https://cloud.google.com/vertex-ai/docs/training/code-requirements#environment-variables
"""

import shutil
import subprocess
import sys
from pathlib import Path

from kickoff.clients import Clients
from kickoff.errors import InvalidRequest
from kickoff.page.views import build_links
from kickoff.runs import Run
from kickoff.storage import Storage, split_uri

from deploy.console import console

_AGAIN = 15.0
"""Seconds between two copies while a run trains."""


def open_board(clients: Clients, runs: list[Run], folder: Path, port: int) -> int:
    """Copy, show, and return TensorBoard's exit status; 1 where it is not installed. Raises InvalidRequest."""
    counts = [copy_logs(clients.storage, run, folder) for run in runs]
    for run, count in zip(runs, counts, strict=True):
        console.print(f"{run.run_id}: {count} event files in {folder / run.run_id}", markup=False)
        for text, url in build_links(run):
            if text == "TensorBoard":
                console.print(f"  Vertex AI shows it at {url}", markup=False)
    if not any(counts) and all(run.terminal for run in runs):
        raise InvalidRequest("these runs left no TensorBoard logs below their output's logs/; nothing can be shown")
    program = shutil.which("tensorboard")
    if program is None:
        print(
            "kickoff: TensorBoard is not installed. `pip install tensorboard`, then run this again, "
            f"or `tensorboard --logdir {folder}` over the copies",
            file=sys.stderr,
        )
        return 1
    return _serve([program, "--logdir", str(folder), "--port", str(port)], clients, runs, folder)


def _serve(argv: list[str], clients: Clients, runs: list[Run], folder: Path) -> int:
    going = {run.run_id for run in runs if not run.terminal}
    with subprocess.Popen(argv) as board:
        while True:
            try:
                return board.wait(_AGAIN if going else None)
            except subprocess.TimeoutExpired:
                for run_id in sorted(going):
                    run = clients.ledger.get_run(run_id)
                    if run is not None:
                        copy_logs(clients.storage, run, folder)
                    if run is None or run.terminal:
                        going.discard(run_id)
            except KeyboardInterrupt:
                board.terminate()
                return 130


def copy_logs(storage: Storage, run: Run, folder: Path) -> int:
    """Bring a run's event files below ``folder/<run_id>``; how many there are. A copy of the same size is kept."""
    base = run.custom_job.get("jobSpec", {}).get("baseOutputDirectory", {}).get("outputUriPrefix", "")
    if not base:
        raise InvalidRequest(f"run {run.run_id} has no output directory, and so no TensorBoard logs")
    bucket, prefix = split_uri(f"{base.rstrip('/')}/logs/")
    home = (folder / run.run_id).resolve()
    count = 0
    for _, page in storage.pages(bucket, prefix):
        for found in page:
            path = (home / found.name.removeprefix(prefix)).resolve()
            if found.name.endswith("/") or not path.is_relative_to(home):
                continue  # an object named `../x` must not leave the folder
            count += 1
            if path.exists() and path.stat().st_size == found.size:
                continue
            data = storage.read(bucket, found.name, found.generation)
            if data is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    return count
