"""Objects of the Cloud Storage emulator as files, and back. The emulator's own disk is never touched.

Cloud Storage's JSON API with the standard library; https://cloud.google.com/storage/docs/json_api.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

Json = dict[str, Any]
Stamp = tuple[int, int]
"""(mtime in ns, size) of a file: another one means that it was written."""
LIMIT = 2 * 2**30
"""Bytes that one job's ``/gcs`` may bring to this machine."""


class BucketError(Exception):
    """An object or a bucket could not be read or written; the text says which."""


def fetch_object(uri: str, target: Path) -> None:
    """Write the object of a ``gs://`` URI to a file."""
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    _download(bucket, name, target)


def fetch_bucket(bucket: str, folder: Path) -> dict[str, Stamp]:
    """Write every object below `folder`, and return what each file then looks like, by object name."""
    found = list(_list_objects(bucket))
    size = sum(int(item.get("size", 0)) for item in found)
    if size > LIMIT:
        raise BucketError(f"gs://{bucket} holds {size} bytes; the emulator brings at most {LIMIT} to /gcs/{bucket}")
    folder.mkdir(parents=True, exist_ok=True)
    names = [str(item["name"]) for item in found]
    for name in names:
        target = _target(folder, name)
        if name.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        else:
            _download(bucket, name, target)
    return scan(folder)


def scan(folder: Path) -> dict[str, Stamp]:
    """Every file below `folder`, by its object name."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def store_changes(bucket: str, folder: Path, before: dict[str, Stamp]) -> int:
    """Write back what is new or changed since `before`; deleted files' objects stay. Returns how many."""
    changed = [name for name, stamp in scan(folder).items() if before.get(name) != stamp]
    for name in sorted(changed):
        query = urlencode({"uploadType": "media", "name": name})
        _request("POST", f"/upload/storage/v1/b/{quote(bucket, '')}/o?{query}", (folder / name).read_bytes())
    return len(changed)


def _list_objects(bucket: str) -> Iterator[Json]:
    token = ""
    while True:
        query = urlencode({"maxResults": 1000, "fields": "items(name,size),nextPageToken", "pageToken": token})
        page = json.loads(_request("GET", f"/storage/v1/b/{quote(bucket, '')}/o?{query}"))
        yield from page.get("items", [])
        token = page.get("nextPageToken", "")
        if not token:
            return


def _download(bucket: str, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_request("GET", f"/storage/v1/b/{quote(bucket, '')}/o/{quote(name, '')}?alt=media"))


def _target(folder: Path, name: str) -> Path:
    """Where the object goes. An object may be named ``../x``; such a one is not brought."""
    target = folder / name
    if not target.resolve().is_relative_to(folder.resolve()):
        raise BucketError(f"object {name!r} would lie outside its bucket's folder")
    return target


def _request(verb: str, path: str, body: bytes | None = None) -> bytes:
    host = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if not host:
        raise BucketError("STORAGE_EMULATOR_HOST is not set; the emulator reads Cloud Storage from an emulator alone")
    base = host if "://" in host else f"http://{host}"
    request = urllib.request.Request(f"{base}{path}", body, {"Content-Type": "application/octet-stream"}, method=verb)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        raise BucketError(f"{verb} {base}{path.partition('?')[0]}: {error}") from None
