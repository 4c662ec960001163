"""The fixture for other people's tests, used as they would."""

from dataclasses import replace

import pytest

from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from deploy.local.job_service.testing import job_service as job_service
from deploy.local.job_service.testing import job_service_options as default_options  # noqa: F401
from tests.job_service.calls import IMAGES, Caller, pool


@pytest.fixture
def job_service_options(default_options: Options) -> Options:  # noqa: F811
    return replace(default_options, images=IMAGES)


def test_the_fixture_is_a_running_emulator_with_the_options_that_a_test_gives(job_service: JobServiceServer) -> None:
    caller = Caller(job_service.url)
    job_id = caller.create(pool("print('hello')"))
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert caller.log(job_id, "workerpool0-0") == "hello\n"
