"""Every real spec of tests/cases/specs.jsonl sent to the emulator: taken or refused as the service does it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.job_service.images import Image
from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.job_service.calls import PARENT, Caller

Json = dict[str, Any]
CASES: list[Json] = [
    json.loads(line) for line in (Path(__file__).parents[1] / "cases" / "specs.jsonl").read_text().splitlines()
]
SENT = [case for case in CASES if case["input"]["kind"] in ("jobspec", "job")]

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("S01", "S10", "S12", "S31", "S56"), 'Accelerator "NVIDIA_TESLA_K80" is not supported for machine type'
    ),
    "S03": "oneof field 'task' is already set",
    "S04": "a repeated field must be a list",
    "S06": "null is not allowed in a list",
    "S08": "Both or none of `machine_spec` and `replica_count` should be specified.",
    "S09": "Both `accelerator_type` and `accelerator_count` should be specified or none.",
    "S11": 'The allowed numbers of accelerator "NVIDIA_L4" to use with machine type "g2-standard-8" are: [1].',
    "S19": "There are 0 package URIs; there must be from 1 to 100.",
    "S24": 'replica_count\' (TYPE_INT64), "REPLICA_COUNT"',
    "S25": "a repeated field must be a list",
    "S33": 'Strategy), "AUTOMATIC"',
    "S35": "a repeated field must be a list",
    "S36": "Invalid value at 'custom_job.job_spec.worker_pool_specs[0]'",
    "S39": "AcceleratorType)",
    "S42": "is in location `us`. It must be in the same regional location as the service location `us-central1`.",
    "S43": "There can be no more than 64 labels attached to a single resource.",
    "S44": "You do not have permission to act as service_account: nobody@acme-ml.iam.gserviceaccount.com.",
    "S45": "custom_job.job_spec.service_account must be specified when uploading to TensorBoard",
    "S51": "a repeated field must be a list",
    "S52": "(TYPE_STRING), 5",
    **dict.fromkeys(("S54b", "S54d", "S54e"), "duration must end with 's'"),
    "S54h": "must not be negative",
    "S55": 'AcceleratorType), "nvidia-tesla-t4"',
    "S57": "At least one worker pool spec is required.",
    "S62": "a repeated field must be a list",
    "S63": "Field 'replicaCount' is given again as 'replica_count'",
}
"""Case to words of the refusal; every other case is taken."""

DIFFERENT: dict[str, str] = {
    **dict.fromkeys(("S01", "S31", "S56"), "K80s were still offered when this was taken; they are retired now (S10)"),
    **dict.fromkeys(("S04", "S35"), "gcloud folds the scalar into a list before it sends it; REST does not take it"),
    "S25": "the SDK splits the string into letters; as JSON it does not parse",
}
"""Cases that the report says were taken, and why the emulator refuses them."""


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    options = Options(
        state=tmp_path_factory.mktemp("specs"),
        images={"*": Image(instant=0)},
        unusable_service_accounts=("nobody@acme-ml.iam.gserviceaccount.com",),
        bucket_locations={"acme-us-multi": "US"},
    )
    with JobServiceServer(options) as server:
        yield Caller(server.url)


@pytest.mark.parametrize("case", SENT, ids=[case["id"] for case in SENT])
def test_a_real_spec(caller: Caller, case: Json) -> None:
    value = case["input"]["value"]
    body = {"displayName": "j", "jobSpec": value} if case["input"]["kind"] == "jobspec" else value
    status, answer = caller.post(f"{PARENT}/customJobs", body)
    words = REFUSED.get(case["id"])
    if words is None:
        assert status == 200, answer
        assert answer["jobSpec"]["workerPoolSpecs"]
    else:
        assert status == 400
        assert words in answer["error"]["message"]
    reported = case["vertex"].get("vertex", "")
    if reported.startswith(("accepted", "rejected")) and case["id"] not in DIFFERENT:
        assert reported.startswith("rejected" if words else "accepted")


def test_every_refusal_names_a_case_that_was_sent() -> None:
    assert {*REFUSED, *DIFFERENT} <= {case["id"] for case in SENT}
    assert len(SENT) >= 45


def test_a_machine_that_boots_from_hyperdisk_alone(caller: Caller) -> None:
    spec = next(case for case in CASES if case["id"] == "S02")["input"]["value"]
    for pool in spec["workerPoolSpecs"]:
        pool["diskSpec"]["bootDiskType"] = "pd-ssd"
    error = caller.refused({"displayName": "j", "jobSpec": spec})
    assert "needs boot disk type hyperdisk-balanced" in error["message"]
