"""YAML as recipes and policy use it: one document, no surprises. Pure.

PyYAML reads YAML 1.1 (``on`` is a boolean, ``1:30`` a number), keeps the last of two equal keys and expands
anchors without bound. Here scalars follow YAML 1.2's core schema, and the rest is refused with its line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from kickoff.errors import ConfigurationError, Fault
from kickoff.faults import KeyPath, dotted

MAX_CHARACTERS = 256 * 1024
MAX_DEPTH = 20


if TYPE_CHECKING:
    _SafeLoader = yaml.SafeLoader
else:  # libyaml is some ten times as fast, where PyYAML was built with it
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):
    """SafeLoader with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  as in PyYAML


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
):
    _firsts: list[str | None] = ["" if character == "\0" else character for character in _first]
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _firsts)


@dataclass(frozen=True)
class Document:
    """A YAML file's value, and where each of its keys stands."""

    file: str
    value: Any
    lines: dict[KeyPath, int]

    def line(self, path: KeyPath) -> int:
        """The line of the deepest part of `path` that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def located(self, found: Fault) -> Fault:
        """The fault with ``file:line:`` before its sentence."""
        line = self.line(_parse(found.path))
        return Fault(f"{self.file}:{found.path}", f"{self.file}:{line}: {found.message}")


def load_yaml(text: str, file: str) -> Document:
    """Read one YAML document. Raises ConfigurationError with every fault, each with file and line."""
    if len(text) > MAX_CHARACTERS:
        raise _error(file, 1, f"has {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    try:
        return _load(text, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _error(file, line, f"is not valid YAML: {error.problem or error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _error(file, 1, f"cannot be read: {error}") from None


def _load(text: str, file: str) -> Document:
    _check_events(text, file)
    node = yaml.compose(text, Loader=_Loader)
    lines: dict[KeyPath, int] = {}
    faults = list(_walk(node, (), lines, file)) if node else []
    if faults:
        raise ConfigurationError.from_faults(faults)
    loader = _Loader("")
    try:
        value = loader.construct_document(node) if node else None
    finally:
        loader.dispose()
    return Document(file, value, lines)


def _check_events(text: str, file: str) -> None:
    """Refuse what would be costly to compose, as soon as it shows: PyYAML is quadratic in the depth."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _error(file, line, f"nests more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _error(file, line, "has an anchor or alias; write the value out")
        if tag := getattr(event, "tag", None):
            raise _error(file, line, f"has a tag {tag!r}; plain values only")


def _walk(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], file: str) -> Iterator[Fault]:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, (*path, index), lines, file)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _entry(key, value, path, lines, file)


def _entry(key: yaml.Node, value: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], file: str) -> Iterator[Fault]:
    line = key.start_mark.line + 1
    if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
        yield _fault(file, line, f"has the key {getattr(key, 'value', '?')!r}, which is not text; put it in quotes")
        return
    inner = (*path, str(key.value))
    if inner in lines:
        yield _fault(file, line, f"{dotted(inner)} is given twice; it stands on line {lines[inner]} already")
        return
    yield from _walk(value, inner, lines, file)
    lines[inner] = line


def _fault(file: str, line: int, rest: str) -> Fault:
    return Fault(f"{file}:{line}", f"{file}:{line}: {rest}")


def _error(file: str, line: int, rest: str) -> ConfigurationError:
    return ConfigurationError.from_faults([_fault(file, line, rest)])


def _parse(path: str) -> KeyPath:
    """``a.b[0].c`` -> ``("a", "b", 0, "c")``."""
    parts: list[str | int] = []
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        parts.append(name or int(index))
    return tuple(parts)
