"""Started once for all histories: the zygote of the functions, the JobService, Cloud Storage and Pub/Sub emulators."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.job_service.images import parse_images
from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.chaos.world import Services, World, Zygote, pubsub_server
from tests.kickoff.uploading import storage_server


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("chaos")
    images = parse_images('{"*/kickoff/trainer:*": "instant", "*/kickoff/long:*": "idle"}', "tests")
    options = Options(state=folder / "vertex", images=images)
    with (folder / "functions.log").open("wb") as log, storage_server() as storage, pubsub_server() as pubsub:
        zygote = Zygote(log)
        try:
            os.environ["PUBSUB_EMULATOR_HOST"] = pubsub  # for what tests do in this process
            with JobServiceServer(options) as vertex:
                yield Services(zygote, vertex, storage, pubsub)
        finally:
            del os.environ["PUBSUB_EMULATOR_HOST"]
            zygote.stop()


@pytest.fixture
def world(services: Services, tmp_path: Path) -> Iterator[World]:
    world = World(services, tmp_path)
    world.prepare()
    yield world
    services.vertex.services.faults.clear()
    world.close()
