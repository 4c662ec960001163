"""A small chaos run: see bench/chaos.py. `make chaos` runs it with 10,000 requests."""

import os
import random
from pathlib import Path

import pytest

from bench.chaos import run_chaos
from tests.chaos.world import Services


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_doubled(services: Services, tmp_path: Path) -> None:
    seed = int(os.environ.get("KICKOFF_SEED", random.randrange(10**6)))
    print(f"seed {seed}: repeat with KICKOFF_SEED={seed}")
    tally, wrong = run_chaos(services, tmp_path, requests=60, seed=seed, seconds=240)
    assert wrong == [], f"seed {seed}"
    assert tally["run records"] == 60
    assert tally["deliveries"] > 60
