"""One emulator for the tests that need no options of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.job_service.calls import IMAGES, Caller


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServiceServer]:
    state = tmp_path_factory.mktemp("job-service")
    with JobServiceServer(Options(state=state, images=IMAGES, grace=0.5, restart_delay=0.01)) as running:
        yield running


@pytest.fixture
def caller(server: JobServiceServer) -> Iterator[Caller]:
    """The shared emulator, with no fault left standing afterwards."""
    yield Caller(server.url)
    server.services.faults.clear()


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Options of an emulator that a test starts for itself."""
    return Options(state=tmp_path / "state", images=IMAGES, grace=0.5, restart_delay=0.01)
