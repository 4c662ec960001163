"""The customJobs methods over HTTP: answers, refusals, lists."""

import string
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.job_service.errors import ApiError
from deploy.local.job_service.filters import parse_filter
from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.job_service.calls import PARENT, Caller, call, job, pool

Json = dict[str, Any]
INSTANT = pool("", image="instant")


def test_create_answers_what_it_stored(caller: Caller) -> None:
    body = job({**INSTANT, "replicaCount": 1}, {}, labels={"team": "ml"}, name="my job")
    body["state"], body["name"] = "JOB_STATE_FAILED", "ignored"
    status, answer = caller.post(f"{PARENT}/customJobs", body)
    assert status == 200
    prefix, _, job_id = answer["name"].rpartition("/")
    assert prefix == "projects/p/locations/us-central1/customJobs"
    assert job_id.isdigit()
    assert answer["state"] == "JOB_STATE_PENDING"
    assert answer["labels"] == {"team": "ml"}
    first, second = answer["jobSpec"]["workerPoolSpecs"]
    assert first["replicaCount"] == "1"
    assert first["diskSpec"] == {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}
    assert second == {}
    assert caller.finished(job_id)["displayName"] == "my job"


def test_v1beta1_is_the_same_service(caller: Caller) -> None:
    job_id = caller.create(INSTANT)
    assert call(f"{caller.url}{PARENT.replace('v1', 'v1beta1')}/customJobs/{job_id}")[1]["displayName"] == "a job"


def test_a_job_is_found_in_its_own_project_and_region_alone(caller: Caller) -> None:
    job_id = caller.create(INSTANT)
    for path in ("projects/other/locations/us-central1", "projects/p/locations/europe-west4"):
        status, answer = call(f"{caller.url}/v1/{path}/customJobs/{job_id}")
        assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")


def test_answers_can_name_projects_by_number(options: Options) -> None:
    with JobServiceServer(replace(options, numeric_projects=True)) as server:
        _, answer = call(f"{server.url}{PARENT}/customJobs", "POST", job(INSTANT))
        number = answer["name"].split("/")[1]
        assert number.isdigit()
        assert call(f"{server.url}/v1/{answer['name']}")[1]["name"] == answer["name"]
        assert call(f"{server.url}{PARENT}/customJobs/{answer['name'].split('/')[-1]}")[0] == 200
    with JobServiceServer(replace(options, numeric_projects=True)) as again:
        assert call(f"{again.url}/v1/{answer['name']}")[1]["name"] == answer["name"]


def test_all_faults_of_a_spec_are_answered_at_once(caller: Caller) -> None:
    one = pool("", acceleratorType="NVIDIA_TESLA_T4")
    two = {"machineSpec": {"machineType": "n1-standard-4"}, "containerSpec": {"imageUri": "i"}}
    error = caller.refused(job(one, two, name="x" * 129, network="default"))
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    fields = [row["field"] for row in error["details"][0]["fieldViolations"]]
    assert fields == [
        "display_name",
        "job_spec.worker_pool_specs[0].machine_spec.accelerator_type",
        "job_spec.worker_pool_specs[1]",
        "job_spec.network",
    ]
    assert error["message"].startswith("List of found errors:\t1.Field: display_name; Message: ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"serviceAccount": "nobody@p.iam.gserviceaccount.com"},
            "You do not have permission to act as service_account: nobody@",
        ),
        (
            {"tensorboard": "projects/1/locations/us-central1/tensorboards/1"},
            "service_account must be specified when uploading to",
        ),
        ({"baseOutputDirectory": {"outputUriPrefix": "/tmp/out"}}, "'/tmp/out' is not valid"),
        (
            {"baseOutputDirectory": {"outputUriPrefix": "gs://us-bucket/out"}},
            "is in location `us`. It must be in the same",
        ),
        ({"scheduling": {"strategy": "FLEX_START"}}, "FLEX_START needs accelerators"),
        ({"scheduling": {"timeout": "-5s"}}, "must not be negative"),
    ],
)
def test_rules_of_the_job_spec(options: Options, change: Json, words: str) -> None:
    limits = replace(
        options,
        unusable_service_accounts=("nobody@p.iam.gserviceaccount.com",),
        bucket_locations={"us-bucket": "US", "here": "us-central1"},
    )
    with JobServiceServer(limits) as server:
        error = Caller(server.url).refused(job(INSTANT, **change))
        assert error["code"] == 400
        assert words in error["message"]
        assert error["status"] == ("FAILED_PRECONDITION" if "us-bucket" in str(change) else "INVALID_ARGUMENT")
        Caller(server.url).create(INSTANT, baseOutputDirectory={"outputUriPrefix": "gs://here/out"})


def test_a_project_that_cannot_be_is_forbidden(caller: Caller) -> None:
    status, answer = caller.post("/v1/projects/My%20First%20Project/locations/us-central1/customJobs", job(INSTANT))
    assert status == 403
    assert answer["error"]["message"] == "Permission denied on resource project My First Project. (CONSUMER_INVALID)"


def test_delete_is_for_jobs_that_have_ended(caller: Caller) -> None:
    job_id = caller.create(pool("import time; time.sleep(60)"))
    path = f"{caller.url}{PARENT}/customJobs/{job_id}"
    caller.running(job_id)
    assert call(path, "DELETE")[1]["error"]["status"] == "FAILED_PRECONDITION"
    caller.cancel(job_id)
    caller.finished(job_id)
    status, operation = call(path, "DELETE")
    assert (status, operation["done"], operation["response"]) == (
        200,
        True,
        {"@type": "type.googleapis.com/google.protobuf.Empty"},
    )
    assert call(path)[0] == 404


@pytest.fixture(scope="module")
def listed(server: JobServiceServer) -> Caller:
    """Three jobs in a project of their own."""
    caller = Caller(server.url)
    for name, labels in (("one", {"kickoff-run": "a-1", "n": "1"}), ("two", {"kickoff-run": "b-2"}), ("three", {})):
        path = "/v1/projects/listed/locations/us-central1/customJobs"
        assert caller.post(path, job(INSTANT, name=name, labels=labels))[0] == 200
    return caller


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["three", "two", "one"]),
        ("labels.kickoff-run=a-1", ["one"]),
        ('labels.kickoff-run="a-1"', ["one"]),
        ('labels."kickoff-run"="b-2"', ["two"]),
        ("labels.kickoff-run:*", ["two", "one"]),
        ("NOT labels.kickoff-run:*", ["three"]),
        ("-labels.n=1", ["three", "two"]),
        ("labels.kickoff-run!=a-1", ["three", "two"]),
        ('display_name="two"', ["two"]),
        ('display_name:"t"', ["three", "two"]),
        ('display_name!="two" AND labels.n=1', ["one"]),
        ('display_name="one" OR display_name="two"', ["two", "one"]),
        ('(display_name="one" OR display_name="two") AND labels.n=1', ["one"]),
        ('display_name="one" OR display_name="two" labels.n=1', ["one"]),
        ('create_time>"2020-01-01T00:00:00Z"', ["three", "two", "one"]),
        ('create_time<"2020-01-01T00:00:00Z"', []),
        ('state="JOB_STATE_CANCELLED"', []),
        ('labels.x="\'; DROP TABLE resources; --"', []),
    ],
)
def test_filters(listed: Caller, text: str, names: list[str]) -> None:
    query = urllib.parse.urlencode({"filter": text})
    status, answer = call(f"{listed.url}/v1/projects/listed/locations/us-central1/customJobs?{query}")
    assert status == 200
    assert [found["displayName"] for found in answer.get("customJobs", [])] == names


@pytest.mark.parametrize(
    "query",
    [
        "filter=nonsense",
        "filter=a%3D",
        "filter=(state%3Dx",
        "filter=create_time%3Ax",
        "orderBy=x",
        "pageSize=x",
        "pageSize=-1",
        "pageToken=%C3%A4",
    ],
)
def test_a_query_that_cannot_be_understood_gets_400(caller: Caller, query: str) -> None:
    status, answer = call(f"{caller.url}{PARENT}/customJobs?{query}")
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")


@given(st.text(alphabet=string.printable, max_size=40))
def test_no_filter_raises_anything_else(text: str) -> None:
    try:
        parse_filter(text)
    except ApiError as error:
        assert error.code == 400


def test_pages_are_whole_and_in_order_while_jobs_come_in(options: Options) -> None:
    with JobServiceServer(options) as server:
        caller = Caller(server.url)
        ids = [caller.create(INSTANT) for _ in range(7)]
        seen, token = [], ""
        while True:
            query = urllib.parse.urlencode({"pageSize": 3, "pageToken": token})
            page = call(f"{server.url}{PARENT}/customJobs?{query}")[1]
            assert len(page["customJobs"]) <= 3
            seen += [row["name"].rpartition("/")[2] for row in page["customJobs"]]
            caller.create(INSTANT)
            token = page.get("nextPageToken", "")
            if not token:
                break
        assert seen == ids[::-1]
        ordered = caller.list(orderBy="create_time")
        assert [row["name"].rpartition("/")[2] for row in ordered][:7] == ids


def test_many_creates_at_once_make_as_many_jobs(options: Options) -> None:
    with JobServiceServer(options) as server, ThreadPoolExecutor(16) as threads:
        caller = Caller(server.url)
        ids = list(threads.map(lambda _: caller.create(INSTANT), range(100)))
        assert len(set(ids)) == 100
        assert {caller.finished(job_id)["state"] for job_id in ids} == {"JOB_STATE_SUCCEEDED"}
        assert len(caller.list(pageSize="1000")) == 100


def test_a_cancel_that_is_taken_is_kept_and_one_that_is_refused_changes_nothing(options: Options) -> None:
    """Whatever moment it comes at: the answer and the end agree."""
    with JobServiceServer(options) as server, ThreadPoolExecutor(8) as threads:
        caller = Caller(server.url)

        def create_and_cancel(number: int) -> tuple[int, str]:
            job_id = caller.create(INSTANT)
            time.sleep(number % 10 / 1000)
            status, _ = caller.post(f"{PARENT}/customJobs/{job_id}:cancel")
            return status, str(caller.finished(job_id)["state"])

        ends = set(threads.map(create_and_cancel, range(80)))
    assert ends <= {(200, "JOB_STATE_CANCELLED"), (400, "JOB_STATE_SUCCEEDED")}
