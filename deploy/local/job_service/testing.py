"""A pytest fixture of the emulator: ``pytest_plugins = ["deploy.local.job_service.testing"]``.

``job_service`` is a running emulator, one a test; ``job_service.url`` is what clients need. Override the
fixture ``job_service_options`` for quotas, images and the rest.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer


@pytest.fixture
def job_service_options(tmp_path: Path) -> Options:
    return Options(state=tmp_path / "job-service")


@pytest.fixture
def job_service(job_service_options: Options) -> Iterator[JobServiceServer]:
    with JobServiceServer(job_service_options) as server:
        yield server
