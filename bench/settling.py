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
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kickoff.completeness import decide
from kickoff.datasets import Complete, Listing, StoredObject, build_rule, build_snapshot
from kickoff.event_types import Upload

from tests.kickoff.uploading import (
    BUCKET,
    World,
    build_manifest,
    make_recipes,
    make_world,
    storage_server,
    upload_in_parallel,
)

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
    """What a function does with one large listing; the server here takes minutes to be given so many objects."""
    recipe = make_recipes("bench", "quiet").get("quiet")
    assert recipe is not None
    rule = build_rule(recipe, f"gs://{BUCKET}/bench/quiet/")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    now = datetime.now(UTC)
    created = now - timedelta(hours=1)
    names = (f"{rule.root}{i % 100:02}/{i:06}.jpg" for i in range(count))
    objects = [StoredObject(name, 10**15 + i, "AAAAAQ==", 5, created) for i, name in enumerate(names)]
    begun = time.perf_counter()
    complete = decide(rule, Listing(now, objects))
    assert isinstance(complete, Complete), complete
    decided = time.perf_counter()
    size = len(build_snapshot(rule, complete)) / 2**20
    built = time.perf_counter()
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return (
        f"{len(complete.members):,} objects: decided in {decided - begun:.2f} s, "
        f"snapshot of {size:.1f} MiB built in {built - decided:.2f} s, {memory:.0f} MiB of memory with the listing"
    )


if __name__ == "__main__":
    threading.excepthook = lambda args: print("thread failed:", args.exc_value)
    main()
