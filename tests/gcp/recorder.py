"""A local server that stands where Google's REST APIs stand: it keeps every call that the real gcloud makes.

It has just enough memory for `describe || create` to mean something: what was created is found afterwards,
what was not answers 404 in Google's error JSON, long-running operations are done at once, and IAM policies
are read and written. It judges nothing: the tests assert the calls.
"""

import base64
import gzip
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PROJECT_NUMBER = "123456789012"
DIGEST = "sha256:" + "ab" * 32

APIS = {
    "artifactregistry": "",
    "cloudbilling": "",
    "cloudbuild": "",
    "cloudfunctions": "",
    "cloudquotas": "",
    "cloudresourcemanager": "",
    "cloudscheduler": "",
    "compute": "compute/v1/",
    "containeranalysis": "",
    "firestore": "",
    "iam": "",
    "logging": "",
    "monitoring": "",
    "pubsub": "",
    "run": "",
    "serviceusage": "",
    "storage": "storage/v1/",
}
"""API: the path that gcloud's endpoint override must end in."""

_ITEMS = {"b": "items", "tags": "tags", "accounts": "accounts", "roles": "roles"}


@dataclass(frozen=True)
class Call:
    """One request. `path` is below the API's root, decoded; `body` is its JSON, or the media of an upload."""

    api: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.api}:{self.path}"


@dataclass
class Recorder:
    """The calls so far, and the resources that they made, by API and path."""

    url: str
    calls: list[Call] = field(default_factory=list)
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def environ(self, project: str) -> dict[str, str]:
        """What makes gcloud call this server and nothing else, without credentials."""
        overrides = {
            f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api.upper()}": f"{self.url}/{api}/{root}" for api, root in APIS.items()
        }
        return {
            **overrides,
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": project,
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def put(self, api: str, path: str, resource: Any) -> None:
        """Let a resource exist, as if it had been made before."""
        self.resources[_key(api, path)] = resource

    def made(self, api: str, pattern: str) -> list[Call]:
        """The calls that change something of `api`, whose path matches `pattern` from its start."""
        writes = ("POST", "PUT", "PATCH", "DELETE")
        return [c for c in self.calls if c.api == api and c.method in writes and re.match(pattern, c.path)]

    def answer(self, call: Call) -> tuple[int, Any]:
        """(HTTP status, JSON) for one call. The rules of one API each come before the general ones."""
        with self.lock:
            self.calls.append(call)
            special = _special(self, call)
            if special is not None:
                return special
            if call.method == "GET":
                return self._get(call)
            if call.method == "DELETE":
                self.resources.pop(_key(call.api, call.path), None)
                return 200, _operation(call, {})
            return self._write(call)

    def _get(self, call: Call) -> tuple[int, Any]:
        found = self.resources.get(_key(call.api, call.path))
        if found is not None:
            return 200, found
        collection = call.path.rpartition("/")[2]
        if _is_collection(call.path):
            prefix = _key(call.api, call.path) + "/"
            items = [r for k, r in self.resources.items() if k.startswith(prefix) and "/" not in k[len(prefix) :]]
            return 200, {_ITEMS.get(collection, collection): items}
        return 404, _error(404, "NOT_FOUND", f"{call.path} was not found")

    def _write(self, call: Call) -> tuple[int, Any]:
        body = dict(call.body) if isinstance(call.body, dict) else {}
        path = call.path
        if call.method == "POST":
            name = _new_name(call, body)
            path = path if name is None else f"{path}/{name}"
        known = self.resources.get(_key(call.api, path), {})
        if call.method == "POST" and known:
            return 409, _error(409, "ALREADY_EXISTS", f"{path} already exists")
        resource = {**known, **body, "name": body.get("name") or _resource_name(path)}
        self.resources[_key(call.api, path)] = resource
        return 200, _operation(call, resource)


_LONG_RUNNING = {"artifactregistry", "cloudfunctions", "firestore"}
_VERSION = re.compile(r"^(v\d\w*|storage/v1|compute/v1)/")


def _key(api: str, path: str) -> str:
    return f"{api}:{_VERSION.sub('', path)}"


def _resource_name(path: str) -> str:
    return _VERSION.sub("", path)


def _is_collection(path: str) -> bool:
    """Google's paths alternate collection and id, so an odd number of segments ends in a collection."""
    return len(_VERSION.sub("", path).split("/")) % 2 == 1


def _new_name(call: Call, body: Mapping[str, Any]) -> str | None:
    for key, value in call.query.items():
        if key.endswith(("Id", "_id")):
            return value
    for key in ("accountId", "roleId"):
        if key in body:
            return str(body[key])
    name = str(body.get("name", ""))
    return name.rpartition("/")[2] or None


def _operation(call: Call, resource: Any) -> Any:
    if call.api not in _LONG_RUNNING:
        return resource
    place = "/".join(_VERSION.sub("", call.path).split("/")[:4])
    return _done(f"{place}/operations/op-1", resource)


def _done(name: str, response: Mapping[str, Any]) -> Any:
    """An operation that has ended; gcloud's clients fail on one without typed metadata and response."""
    kind = {"@type": "type.googleapis.com/google.protobuf.Struct"}
    return {"name": name, "done": True, "metadata": kind, "response": {**kind, **response}}


def _error(code: int, status: str, message: str) -> Any:
    return {"error": {"code": code, "status": status, "message": message}}


def _special(recorder: Recorder, call: Call) -> tuple[int, Any] | None:
    for api, pattern, rule in _RULES:
        if api in (call.api, "*") and re.search(pattern, f"{call.method} {call.path}"):
            answer: tuple[int, Any] | None = rule(recorder, call)
            if answer is not None:
                return answer
    return None


def _policy(recorder: Recorder, call: Call) -> tuple[int, Any]:
    resource = _key(call.api, re.sub(r"(:[gs]etIamPolicy|/iam)$", "", call.path))
    if call.method == "PUT" or call.path.endswith(":setIamPolicy"):
        body = call.body or {}
        recorder.policies[resource] = body.get("policy", body)
    return 200, recorder.policies.get(resource, {"version": 1, "etag": "BwX="})


def _operation_done(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, _done(_resource_name(call.path), {})


def _project(recorder: Recorder, call: Call) -> tuple[int, Any]:
    project = call.path.rpartition("/")[2]
    return 200, {"projectId": project, "projectNumber": PROJECT_NUMBER, "lifecycleState": "ACTIVE"}


def _function(recorder: Recorder, call: Call) -> tuple[int, Any] | None:
    if call.path.endswith("/runtimes"):
        return 200, {"runtimes": [{"name": "python312", "environment": "GEN_2", "stage": "GA"}]}
    if ":generateUploadUrl" in call.path:
        where = {"bucket": "gcf-v2-sources", "object": "source.zip"}
        return 200, {"uploadUrl": f"{recorder.url}/upload/source.zip", "storageSource": where}
    found = recorder.resources.get(_key(call.api, call.path))
    if call.method == "GET" and found is not None:
        name = found["name"].rpartition("/")[2]
        service = {"uri": f"https://{name}-x.a.run.app", "service": found["name"].replace("/functions/", "/services/")}
        config = {**found.get("serviceConfig", {}), **service}
        return 200, {**found, "state": "ACTIVE", "environment": "GEN_2", "serviceConfig": config}
    return None


def _account(recorder: Recorder, call: Call) -> tuple[int, Any] | None:
    accounts = {k: r for k, r in recorder.resources.items() if k.startswith("iam:") and "@" in k}
    if call.method == "GET":
        found = [
            r for r in accounts.values() if call.path.endswith("/serviceAccounts") or call.path.endswith(r["email"])
        ]
        if call.path.endswith("/serviceAccounts"):
            return 200, {"accounts": found}
        return (200, found[0]) if found else None
    project = call.path.split("/")[2]
    address = f"{call.body['accountId']}@{project}.iam.gserviceaccount.com"
    account = {**call.body["serviceAccount"], "name": f"projects/{project}/serviceAccounts/{address}", "email": address}
    recorder.resources[_key("iam", account["name"])] = account
    return 200, account


def _schedule(recorder: Recorder, call: Call) -> tuple[int, Any] | None:
    path, _, verb = call.path.partition(":")
    job = recorder.resources.get(_key("cloudscheduler", path))
    if call.method == "POST" and not verb:
        call.body["state"] = "ENABLED"
    if job and verb in ("pause", "resume"):
        job["state"] = {"pause": "PAUSED", "resume": "ENABLED"}[verb]
        return 200, job
    return None


def _service(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {"metadata": {"name": call.path.rpartition("/")[2]}, "spec": {}, "status": {}}


def _notification(recorder: Recorder, call: Call) -> tuple[int, Any]:
    found = recorder.resources.setdefault(_key("storage", call.path), {"items": []})["items"]
    if call.method == "GET":
        return 200, {"items": found}
    found.append({**call.body, "id": str(len(found) + 1), "topic": f"//pubsub.googleapis.com/{call.body['topic']}"})
    return 200, found[-1]


def _index(recorder: Recorder, call: Call) -> tuple[int, Any]:
    group = call.path.replace("/collectionGroups/-/", "/collectionGroups/")
    if call.method == "GET":
        database = _key("firestore", call.path.partition("/collectionGroups/")[0])
        found = {k: r for k, r in recorder.resources.items() if k.startswith(f"{database}/collectionGroups/")}
        kind = call.path.rpartition("/")[2]
        return 200, {kind: [r for k, r in found.items() if f"/{kind}/" in k]}
    number = sum("/indexes/" in key for key in recorder.resources) + 1
    name = f"{_resource_name(group)}/{number}"
    recorder.resources[f"firestore:{name}"] = {**call.body, "name": name, "state": "READY"}
    return 200, _done(f"{name.partition('/collectionGroups')[0]}/operations/op-1", {})


def _build(recorder: Recorder, call: Call) -> tuple[int, Any]:
    image = {"name": "trainer", "digest": DIGEST}
    place = _resource_name(call.path).split("/builds")[0]
    build: dict[str, Any] = {
        "id": "build-1",
        "name": f"{place}/builds/build-1",
        "projectId": place.split("/")[1],
        "status": "SUCCESS",
    }
    build |= {
        "results": {"images": [image]},
        "logUrl": "https://console.invalid/",
        "createTime": "2026-01-01T00:00:00Z",
    }
    if call.method == "GET":
        return 200, {**build, "options": {"logging": "CLOUD_LOGGING_ONLY"}}
    substitutions = call.body.get("substitutions", {})
    for tag in (substitutions.get(image.removeprefix("$"), image) for image in call.body.get("images", [])):
        repository, _, image_tag = tag.rpartition("/")
        region, project, name = repository.replace("-docker.pkg.dev", "").split("/")
        package, _, version = image_tag.partition(":")
        path = f"projects/{project}/locations/{region}/repositories/{name}/packages/{package}"
        version_name = f"{path}/versions/{DIGEST}"
        recorder.resources[f"artifactregistry:{path}/tags/{version}"] = {
            "name": f"{path}/tags/{version}",
            "version": version_name,
        }
        recorder.resources[f"artifactregistry:{version_name}"] = {"name": version_name}
    kind = {"@type": "type.googleapis.com/google.devtools.cloudbuild.v1.BuildOperationMetadata", "build": build}
    build |= {"options": call.body.get("options", {})}
    return 200, {"name": f"{place}/operations/b", "metadata": kind}


def _sink(recorder: Recorder, call: Call) -> tuple[int, Any]:
    sink = {
        **(call.body or {}),
        "writerIdentity": f"serviceAccount:service-{PROJECT_NUMBER}@gcp-sa-logging.iam.gserviceaccount.com",
    }
    recorder.resources[_key(call.api, f"{call.path}/{sink['name']}")] = sink
    return 200, sink


def _storage_agent(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {"email_address": f"service-{PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"}


def _nothing(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {}


def _published(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {"messageIds": ["1"] * len(call.body["messages"])}


def _object(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 404, _error(404, "NOT_FOUND", f"{call.path} was not found")


def _enable(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {"name": "operations/acf.1", "done": True, "response": {}}


def _upload(recorder: Recorder, call: Call) -> tuple[int, Any]:
    name = call.query.get("name", "x")
    md5 = base64.b64encode(hashlib.md5(call.body).digest()).decode()
    place = {"bucket": call.path.split("/")[3], "name": name, "generation": "1"}
    return 200, {**place, "size": str(len(call.body)), "md5Hash": md5}


_RULES: tuple[tuple[str, str, Any], ...] = (
    ("*", r"(:[gs]etIamPolicy|/iam)$", _policy),
    ("*", r"^GET .*operations/", _operation_done),
    ("cloudresourcemanager", r"^GET v1/projects/[^/]+$", _project),
    ("cloudfunctions", r"", _function),
    ("run", r"^GET .*/services/", _service),
    ("cloudscheduler", r"", _schedule),
    ("pubsub", r":publish$", _published),
    ("storage", r"^GET b/[^/]+/o/", _object),
    ("storage", r"/serviceAccount$", _storage_agent),
    ("storage", r"/notificationConfigs$", _notification),
    ("firestore", r"(/indexes|GET .*/fields)$", _index),
    ("cloudbuild", r"/builds", _build),
    ("iam", r":queryTestablePermissions$", _nothing),
    ("iam", r"^(GET .*/serviceAccounts(/[^:]*)?|POST .*/serviceAccounts)$", _account),
    ("logging", r"^POST .*/sinks$", _sink),
    ("serviceusage", r"^POST ", _enable),
    ("upload", r"^POST ", _upload),
)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorder: Recorder

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        api, _, path = unquote(parts.path).lstrip("/").partition("/")
        path = path.removeprefix(APIS.get(api, ""))
        query = {key: values[-1] for key, values in parse_qs(parts.query).items() if key not in ("alt", "prettyPrint")}
        body = self._body()
        kind = self.headers.get("Content-Type", "")
        if "multipart/related" in kind:
            metadata, body = _parts(body, kind)
            query = {**json.loads(metadata), **query}
        elif api != "upload":
            body = _json(body)
        status, answer = self.recorder.answer(Call(api, self.command, path, query, body))
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def log_message(self, format: str, *args: object) -> None:
        pass


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data


def _parts(data: bytes, kind: str) -> tuple[bytes, bytes]:
    """Metadata and media of an upload of both (multipart/related)."""
    boundary = kind.partition("boundary=")[2].strip("'\"").encode()
    found = []
    for part in data.split(b"--" + boundary)[1:3]:
        start = re.search(rb"\r?\n\r?\n", part)
        found.append(re.sub(rb"\r?\n\Z", b"", part[start.end() :] if start else part))
    return found[0], found[1]


@contextmanager
def recording() -> Iterator[Recorder]:
    """A Recorder that serves on a free port of 127.0.0.1 until the block ends."""
    handler: Any = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    recorder = Recorder(f"http://127.0.0.1:{server.server_port}")
    handler.recorder = recorder
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
