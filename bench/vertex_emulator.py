"""Figures of the Vertex AI emulator: ``python -m bench.vertex_emulator``. Under a minute; nothing stays behind."""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PARENT = "/v1/projects/p/locations/us-central1/customJobs"
_CODE = "import time; print(time.time())"
_TRIES = 20
_INSTANT_JOBS = 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, emulator(Path(folder)) as (url, seconds, process):
        print(f"start to URL                          {seconds:6.2f} s")
        print(f"resident memory when idle             {resident(process.pid):6.1f} MB")
        served = [first_line(url, Path(folder)) for _ in range(_TRIES)]
        by_hand = [start_by_hand() for _ in range(_TRIES)]
        print(f"create to first line of the replica   {statistics.median(served) * 1000:6.0f} ms (median of {_TRIES})")
        print(f"the same program started by hand      {statistics.median(by_hand) * 1000:6.0f} ms")
        before = time.perf_counter()
        for _ in range(_INSTANT_JOBS):
            call(url + _PARENT, job("instant"))
        print(f"instant jobs created                  {_INSTANT_JOBS / (time.perf_counter() - before):6.0f} a second")
        before = time.perf_counter()
        page = call(f"{url}{_PARENT}?pageSize=1000")["customJobs"]
        print(f"list of {len(page)} jobs                     {(time.perf_counter() - before) * 1000:6.0f} ms")
        print(f"resident memory after them            {resident(process.pid):6.1f} MB")


@contextmanager
def emulator(folder: Path) -> Iterator[tuple[str, float, "subprocess.Popen[str]"]]:
    """(URL, seconds until it was printed, process)."""
    images = folder / "images.json"
    images.write_text(json.dumps({"python": [sys.executable], "instant": "instant"}))
    command = [sys.executable, "-m", "deploy.local.job_service", "--state", str(folder / "state")]
    before = time.perf_counter()
    process = subprocess.Popen([*command, "--images", str(images)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        yield url, time.perf_counter() - before, process
    finally:
        process.terminate()
        process.wait(10)


def first_line(url: str, folder: Path) -> float:
    """Seconds from the create to the first line that the replica's own code prints."""
    before = time.time()
    name = call(url + _PARENT, job("python"))["name"]
    log = folder / "state" / "jobs" / name.rpartition("/")[2] / "workerpool0-0.log"
    deadline = time.monotonic() + 30
    while not (log.exists() and log.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"no line in {log}"
        time.sleep(0.005)
    return float(log.read_text()) - before


def start_by_hand() -> float:
    before = time.time()
    return float(subprocess.check_output([sys.executable, "-c", _CODE])) - before


def job(image: str) -> dict[str, Any]:
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1}
    pool["containerSpec"] = {"imageUri": image, "args": ["-c", _CODE]}
    return {"displayName": "bench", "jobSpec": {"workerPoolSpecs": [pool]}}


def call(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as answer:
        return json.load(answer)


def resident(pid: int) -> float:
    """Megabytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+)", status)
    assert match
    return int(match[1]) / 1024


if __name__ == "__main__":
    main()
