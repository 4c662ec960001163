"""Settling at full size: 3,670 files (as the flowers have) by 16 parallel clients in each mode, 100,000 in one look.

    python -m bench.settling [--files 3670] [--large 100000] [--seed 7]

Against fake-gcs-server and SQLite on this machine; prints a table. Uploads go through the
official client in one Python process, which is what limits them.
"""

import argparse
import random
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from kickoff.completeness import decide
from kickoff.datasets import Complete, Mode, Rule, build_snapshot
from kickoff.errors import StorageUnavailable
from kickoff.event_types import Upload
from kickoff.storage import Storage

from tests.kickoff.uploading import BUCKET, World, build_manifest, make_world, storage_server, upload_in_parallel

FINAL = {"marker": "_SUCCESS", "manifest": "manifest.json"}


class Timed(World):
    """Notes how long each delivery took, in seconds."""

    def deliver(self, upload: Upload):  # type: ignore[no-untyped-def]
        begun = time.perf_counter()
        outcomes = super().deliver(upload)
        TOOK.append(time.perf_counter() - begun)
        return outcomes


TOOK: list[float] = []


def main(argv: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Settling at full size.")
    parser.add_argument("--files", type=int, default=3670)
    parser.add_argument("--large", type=int, default=100_000, help="objects of the one large listing; 0: none")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(None if argv is None else list(argv))
    print(f"seed {options.seed}\n")
    print("| mode | files | events | runs | uploads/s | event, median | event, p99 | last event to run |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for mode in ("quiet", "marker", "manifest"):  # a server each: an upload costs it time for each object it holds
        with storage_server(), tempfile.TemporaryDirectory() as folder:
            print(run_mode(Path(folder), mode, options.files, random.Random(options.seed)), flush=True)
    if options.large:
        print(f"\n{run_large(options.large)}")


def run_mode(folder: Path, mode: str, count: int, chance: random.Random) -> str:
    """One row. Raises AssertionError unless exactly one run holds every file."""
    TOOK.clear()
    world = make_world(folder, "bench", mode)
    world = Timed(world.recipes, world.ledger, world.storage, world.client)
    files = {f"{chance.choice('abcde')}/{i}.jpg": b"%d" % i for i in range(count)}
    whole = {f"bench/{mode}/{name}": data for name, data in files.items()}
    if mode in FINAL:
        whole[f"bench/{mode}/{FINAL[mode]}"] = build_manifest(files, pinned=True) if mode == "manifest" else b""
    begun = time.perf_counter()
    wrong = upload_in_parallel(world, whole, chance)
    assert not wrong, wrong
    uploaded = time.perf_counter()
    world.skew = timedelta(minutes=10)
    world.settle_all(60)
    settled = time.perf_counter() - uploaded
    (members,) = world.members(mode)
    assert len(members) == count
    median, p99 = statistics.median(TOOK), statistics.quantiles(TOOK, n=100)[98]
    rate = len(whole) / (uploaded - begun)
    return (
        f"| {mode} | {count:,} | {len(TOOK):,} | {len(world.runs)} | {rate:.0f} | "
        f"{median * 1e3:.1f} ms | {p99 * 1e3:.1f} ms | {settled:.1f} s |"
    )


def run_large(count: int) -> str:
    """One look at a bucket that the server loaded at its start."""
    with tempfile.TemporaryDirectory() as data:
        for i in range(count):
            path = Path(data) / BUCKET / "large" / f"{i % 100:02}" / f"{i:06}.jpg"
            if i < 100:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"%d" % i)
        with storage_server("-data", data):
            wait_until_loaded(Storage("acme"), count)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            begun = time.perf_counter()
            listing = Storage("acme").list(BUCKET, "large/")
            listed = time.perf_counter()
            rule = Rule("large", BUCKET, "large/", Mode.QUIET, timedelta(0), matches=lambda name: name.endswith(".jpg"))
            complete = decide(rule, listing)
            assert isinstance(complete, Complete), complete
            decided = time.perf_counter()
            size = len(build_snapshot(rule, complete)) / 2**20
            built = time.perf_counter()
            memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return (
        f"{len(complete.members):,} objects: listed in {listed - begun:.1f} s, decided in {decided - listed:.2f} s, "
        f"snapshot of {size:.1f} MiB built in {built - decided:.2f} s, {memory:.0f} MiB more memory"
    )


def wait_until_loaded(storage: Storage, count: int) -> None:
    """The server listens before it has read its files, and answers no listing until then."""
    for _ in range(600):
        with suppress(StorageUnavailable):
            if storage.stat(BUCKET, f"large/{(count - 1) % 100:02}/{count - 1:06}.jpg"):
                return
        time.sleep(1)
    raise TimeoutError("the server did not load its files in 10 minutes")


if __name__ == "__main__":
    threading.excepthook = lambda args: print("thread failed:", args.exc_value)
    main()
