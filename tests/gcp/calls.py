"""A call of a Google REST API, and the shapes that the answers of all of them share."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROJECT_NUMBER = "123456789012"
DIGEST = "sha256:" + "ab" * 32


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


_LONG_RUNNING = {"artifactregistry", "cloudfunctions", "firestore"}
_VERSION = re.compile(r"^(v\d\w*|storage/v1|compute/v1)/")


def key(api: str, path: str) -> str:
    return f"{api}:{_VERSION.sub('', path)}"


def resource_name(path: str) -> str:
    return _VERSION.sub("", path)


def is_collection(path: str) -> bool:
    """Google's paths alternate collection and id, so an odd number of segments ends in a collection."""
    return len(_VERSION.sub("", path).split("/")) % 2 == 1


def new_name(call: Call, body: Mapping[str, Any]) -> str | None:
    for key, value in call.query.items():
        if key.endswith(("Id", "_id")):
            return value
    for key in ("accountId", "roleId"):
        if key in body:
            return str(body[key])
    name = str(body.get("name", ""))
    return name.rpartition("/")[2] or None


def operation(call: Call, resource: Any) -> Any:
    if call.api not in _LONG_RUNNING:
        return resource
    place = "/".join(_VERSION.sub("", call.path).split("/")[:4])
    return done(f"{place}/operations/op-1", resource)


def done(name: str, response: Mapping[str, Any]) -> Any:
    """An operation that has ended; gcloud's clients fail on one without typed metadata and response."""
    kind = {"@type": "type.googleapis.com/google.protobuf.Struct"}
    return {"name": name, "done": True, "metadata": kind, "response": {**kind, **response}}


def error(code: int, status: str, message: str) -> Any:
    return {"error": {"code": code, "status": status, "message": message}}
