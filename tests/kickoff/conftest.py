"""The JobService emulator, started once for all tests of this folder that ask for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.job_service.images import parse_images
from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.kickoff.lab import Lab


@pytest.fixture(scope="session")
def vertex_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServiceServer]:
    """Images `instant` and `broken` end at once, well and with status 1; `idle` runs until it is cancelled."""
    images = parse_images('{"instant": "instant", "broken": "instant:1", "idle": "idle"}', "tests")
    with JobServiceServer(Options(state=tmp_path_factory.mktemp("vertex"), images=images)) as server:
        yield server


@pytest.fixture
def lab(vertex_emulator: JobServiceServer, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, vertex_emulator)
    yield lab
    lab.clear_faults()
    for job in lab.vertex.list_active(lab.project, "us-central1"):
        lab.vertex.cancel(job.name)
    lab.ledger.close()
