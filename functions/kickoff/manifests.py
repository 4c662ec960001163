"""The manifest of a dataset: the JSON file by which an uploader says what belongs to it. Pure.

``{"files": ["a.jpg", {"name": "b.jpg", "crc32c": "yZRlqg==", "size": 9, "generation": "171"}]}``, or the list alone.
Names are relative to the root, or whole ``gs://`` URIs below it. Only `name` is needed; what else is said is verified.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_BYTES = 64 * 2**20
MAX_FAULTS = 10

_FIELDS = {"name", "generation", "crc32c", "size"}


@dataclass(frozen=True)
class Entry:
    """One file that must be there."""

    name: str
    """Relative to the root."""
    generation: int | None = None
    crc32c: str = ""
    """Base64 of 4 bytes, as ``gcloud storage hash`` prints it."""
    size: int | None = None
    """Bytes."""

    @property
    def pinned(self) -> bool:
        """Whether it says which bytes are meant."""
        return self.generation is not None or bool(self.crc32c)


@dataclass(frozen=True)
class Manifest:
    """The entries, or why there are none to go by: a wrong manifest holds its dataset, saying so."""

    entries: tuple[Entry, ...] = ()
    faults: tuple[str, ...] = ()


def parse_manifest(data: bytes, root_uri: str) -> Manifest:
    """Read a manifest for the dataset at `root_uri` (``gs://bucket/root/``). Never raises; lists every fault."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        return Manifest(faults=(f"it is not JSON ({str(error)[:120]})",))
    files = document.get("files") if isinstance(document, dict) else document
    if not isinstance(files, list):
        return Manifest(faults=('it must be a list, or an object whose "files" is a list',))
    if not files:
        return Manifest(faults=("files is empty; it must name at least one file",))
    faults: list[str] = []
    entries: dict[str, Entry] = {}
    for index, item in enumerate(files):
        entry = _parse_entry(item, f"files[{index}]", root_uri, faults)
        if entry and entries.setdefault(entry.name, entry) is not entry:
            faults.append(f"files[{index}].name {entry.name!r} is named twice")
    if faults:
        rest = [f"and {len(faults) - MAX_FAULTS} more"] if len(faults) > MAX_FAULTS else []
        return Manifest(faults=(*faults[:MAX_FAULTS], *rest))
    return Manifest(tuple(entries.values()))


def _parse_entry(item: Any, path: str, root_uri: str, faults: list[str]) -> Entry | None:
    fields: Mapping[str, Any] = {"name": item} if isinstance(item, str) else item
    if not isinstance(fields, dict):
        faults.append(f"{path} is {item!r:.60}; it must be a name, or an object with a name")
        return None
    before = len(faults)
    faults += [
        f"{path} has {key!a:.60}, which is not known; known are {', '.join(sorted(_FIELDS))}"
        for key in fields.keys() - _FIELDS
    ]
    entry = Entry(
        name=_name(fields.get("name"), path, root_uri, faults),
        generation=_whole(fields, "generation", path, faults),
        crc32c=_crc32c(fields.get("crc32c", ""), path, faults),
        size=_whole(fields, "size", path, faults),
    )
    return entry if len(faults) == before else None


def _name(name: Any, path: str, root_uri: str, faults: list[str]) -> str:
    if not isinstance(name, str) or not name:
        faults.append(f"{path}.name is {name!r:.60}; it must be an object's name relative to {root_uri}")
        return ""
    if not _is_utf8(name):
        faults.append(f"{path}.name is {name!a:.60}; it must be UTF-8 text")
        return ""
    if not name.startswith("gs://"):
        return name
    if not name.startswith(root_uri) or name == root_uri:
        faults.append(f"{path}.name is {name!r}; it must lie below {root_uri}")
    return name.removeprefix(root_uri)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(fields: Mapping[str, Any], key: str, path: str, faults: list[str]) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    text = str(value)
    if isinstance(value, bool | float) or not (text.isascii() and text.isdigit() and len(text) <= 19):
        faults.append(f"{path}.{key} is {value!r:.60}; it must be a whole number of at least 0")
        return None
    return int(text)


def _crc32c(value: Any, path: str, faults: list[str]) -> str:
    if value in ("", None):
        return ""
    try:
        if len(base64.b64decode(value, validate=True)) == 4:
            return str(value)
    except (binascii.Error, TypeError, ValueError):
        pass
    faults.append(f"{path}.crc32c is {value!r:.60}; it must be 4 bytes in base64, as `gcloud storage hash` prints it")
    return ""
