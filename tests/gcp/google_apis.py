"""What single Google APIs answer where the recorder's general rules are not enough for gcloud."""

import base64
import hashlib
import re
from typing import Any

from tests.gcp.calls import DIGEST, PROJECT_NUMBER, Call, done, error, key, resource_name
from tests.gcp.recorder import Recorder


def answer_special(recorder: Recorder, call: Call) -> tuple[int, Any] | None:
    """The first rule's answer that has one; None: the general rules apply."""
    for api, pattern, rule in RULES:
        if api in (call.api, "*") and re.search(pattern, f"{call.method} {call.path}"):
            answer: tuple[int, Any] | None = rule(recorder, call)
            if answer is not None:
                return answer
    return None


def _policy(recorder: Recorder, call: Call) -> tuple[int, Any]:
    resource = key(call.api, re.sub(r"(:[gs]etIamPolicy|/iam)$", "", call.path))
    if call.method == "PUT" or call.path.endswith(":setIamPolicy"):
        body = call.body or {}
        recorder.policies[resource] = body.get("policy", body)
    return 200, recorder.policies.get(resource, {"version": 1, "etag": "BwX="})


def _operation_done(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, done(resource_name(call.path), {})


def _project(recorder: Recorder, call: Call) -> tuple[int, Any]:
    project = call.path.rpartition("/")[2]
    return 200, {"projectId": project, "projectNumber": PROJECT_NUMBER, "lifecycleState": "ACTIVE"}


def _function(recorder: Recorder, call: Call) -> tuple[int, Any] | None:
    if call.path.endswith("/runtimes"):
        return 200, {"runtimes": [{"name": "python312", "environment": "GEN_2", "stage": "GA"}]}
    if ":generateUploadUrl" in call.path:
        where = {"bucket": "gcf-v2-sources", "object": "source.zip"}
        return 200, {"uploadUrl": f"{recorder.url}/upload/source.zip", "storageSource": where}
    found = recorder.resources.get(key(call.api, call.path))
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
    recorder.resources[key("iam", account["name"])] = account
    return 200, account


def _schedule(recorder: Recorder, call: Call) -> tuple[int, Any] | None:
    path, _, verb = call.path.partition(":")
    job = recorder.resources.get(key("cloudscheduler", path))
    if call.method == "POST" and not verb:
        call.body["state"] = "ENABLED"
    if job and verb in ("pause", "resume"):
        job["state"] = {"pause": "PAUSED", "resume": "ENABLED"}[verb]
        return 200, job
    return None


def _service(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {"metadata": {"name": call.path.rpartition("/")[2]}, "spec": {}, "status": {}}


def _notification(recorder: Recorder, call: Call) -> tuple[int, Any]:
    found = recorder.resources.setdefault(key("storage", call.path), {"items": []})["items"]
    if call.method == "GET":
        return 200, {"items": found}
    found.append({**call.body, "id": str(len(found) + 1), "topic": f"//pubsub.googleapis.com/{call.body['topic']}"})
    return 200, found[-1]


def _index(recorder: Recorder, call: Call) -> tuple[int, Any]:
    group = call.path.replace("/collectionGroups/-/", "/collectionGroups/")
    if call.method == "GET":
        database = key("firestore", call.path.partition("/collectionGroups/")[0])
        found = {k: r for k, r in recorder.resources.items() if k.startswith(f"{database}/collectionGroups/")}
        kind = call.path.rpartition("/")[2]
        return 200, {kind: [r for k, r in found.items() if f"/{kind}/" in k]}
    number = sum("/indexes/" in key for key in recorder.resources) + 1
    name = f"{resource_name(group)}/{number}"
    recorder.resources[f"firestore:{name}"] = {**call.body, "name": name, "state": "READY"}
    return 200, done(f"{name.partition('/collectionGroups')[0]}/operations/op-1", {})


def _build(recorder: Recorder, call: Call) -> tuple[int, Any]:
    image = {"name": "trainer", "digest": DIGEST}
    place = resource_name(call.path).split("/builds")[0]
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
    recorder.resources[key(call.api, f"{call.path}/{sink['name']}")] = sink
    return 200, sink


def _storage_agent(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {"email_address": f"service-{PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"}


def _nothing(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {}


def _published(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {"messageIds": ["1"] * len(call.body["messages"])}


def _object(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 404, error(404, "NOT_FOUND", f"{call.path} was not found")


def _enable(recorder: Recorder, call: Call) -> tuple[int, Any]:
    return 200, {"name": "operations/acf.1", "done": True, "response": {}}


def _upload(recorder: Recorder, call: Call) -> tuple[int, Any]:
    name = call.query.get("name", "x")
    md5 = base64.b64encode(hashlib.md5(call.body).digest()).decode()
    place = {"bucket": call.path.split("/")[3], "name": name, "generation": "1"}
    return 200, {**place, "size": str(len(call.body)), "md5Hash": md5}


RULES: tuple[tuple[str, str, Any], ...] = (
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
