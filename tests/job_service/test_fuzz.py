"""No request ends the emulator, and none makes it answer 500."""

import http.client
import json
import socket
import urllib.parse
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.job_service.calls import PARENT, call, job, pool

PATHS = st.sampled_from(
    [
        f"{PARENT}/customJobs", f"{PARENT}/customJobs/7", f"{PARENT}/customJobs/7:cancel",
        f"{PARENT}/trainingPipelines", f"{PARENT}/models/7", "/v2/entries:list", "/admin/faults", "/admin/instant",
        "/admin/clock", "/admin/jobs/7:kill", "/web/7/service", "/logs/viewer", "/", "//", "/%",
        "/v1/projects/%00/locations/%2f/customJobs",
    ]
)  # fmt: skip
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8))
KEYS = st.sampled_from(
    [
        "displayName", "jobSpec", "workerPoolSpecs", "replicaCount", "labels", "scheduling", "trainingTaskInputs",
        "filter", "pageSize", "kind", "method", "times", "seconds", "status", "rate", "speed", "enabled",
        "modelToUpload", "machineSpec",
    ]
)  # fmt: skip
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
BODIES = NESTED.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30)
VERBS = st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD"])


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServiceServer]:
    with JobServiceServer(Options(state=tmp_path_factory.mktemp("fuzzed"))) as server:
        yield server


def connect(server: JobServiceServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port(server), timeout=10)


def port(server: JobServiceServer) -> int:
    return int(server.url.rpartition(":")[2])


@settings(max_examples=250, deadline=None)
@given(VERBS, PATHS, st.text(max_size=12), BODIES)
def test_any_request(fuzzed: JobServiceServer, verb: str, path: str, query: str, body: bytes) -> None:
    connection = connect(fuzzed)
    values = urllib.parse.urlencode({"filter": query, "pageSize": query, "pageToken": query})
    connection.request(verb, f"{path}?{values}", body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    fuzzed.services.faults.clear()
    assert answer.status < 500 or b"asked to answer" in content, content


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v2/entries:list HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v2/entries:list HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n",
        b"POST /v2/entries:list HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v2/entries:list HTTP/1.1\r\nContent-Length: 10\r\n\r\n{",
        b"\x00\xff" * 100,
    ],
)
def test_any_bytes(server: JobServiceServer, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port(server)), timeout=10) as raw:
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        answer = raw.recv(65536)
    assert b" 500 " not in answer.partition(b"\r\n")[0]
    assert call(f"{server.url}/admin/jobs")[0] == 200


def test_a_chunked_body_is_read(server: JobServiceServer) -> None:
    connection = connect(server)
    body = json.dumps(job(pool("", image="instant"))).encode()
    headers = {"Transfer-Encoding": "chunked"}
    connection.request("POST", f"{PARENT}/customJobs", iter([body[:10], body[10:]]), headers, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
