"""Glob patterns over object names: ``**``, ``*``, ``?`` and ``{a,b}``. Pure.

``*`` and ``?`` stay within one path segment, ``**`` crosses them, ``**/`` also stands for no folder at all.
Every other character, ``[`` included, means itself. Names are compared as they are: no normalising.
Object names are untrusted, so patterns become expressions that cannot backtrack exponentially: in wildcard
matching the leftmost place for all but the last piece is always as good as any other.
"""

import re
from functools import lru_cache

MAX_ALTERNATIVES = 64

_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")


def match_glob(pattern: str, name: str) -> bool:
    """Whether the whole of `name` matches. Raises ValueError for a pattern that `glob_fault` refuses."""
    return any(expression.fullmatch(name) for expression in _compile(pattern))


def glob_fault(pattern: str) -> str:
    """What is wrong with a pattern, as the rest of a sentence that begins with its path; empty: nothing."""
    try:
        _compile(pattern)
    except ValueError as error:
        return str(error)
    return ""


@lru_cache(maxsize=256)
def _compile(pattern: str) -> tuple[re.Pattern[str], ...]:
    if not pattern or len(pattern) > 1024:
        raise ValueError(f"has {len(pattern)} characters; it must have 1 to 1024")
    return tuple(re.compile(_translate(each), re.DOTALL) for each in _expand(pattern))


def _expand(pattern: str) -> list[str]:
    """All patterns that a pattern with braces stands for."""
    start = pattern.find("{")
    if start < 0:
        if "}" in pattern:
            raise ValueError(f"is {pattern!r}; a closing brace has no opening one")
        return [pattern]
    end, parts = _alternatives(pattern, start)
    heads = pattern[:start]
    if "}" in heads:
        raise ValueError(f"is {pattern!r}; a closing brace has no opening one")
    tails = _expand(pattern[end:]) if pattern[end:] else [""]
    expanded = [heads + body + tail for part in parts for body in (_expand(part) if part else [""]) for tail in tails]
    if len(expanded) > MAX_ALTERNATIVES:
        raise ValueError(f"stands for {len(expanded)} patterns; at most {MAX_ALTERNATIVES} are allowed")
    return expanded


def _alternatives(pattern: str, start: int) -> tuple[int, list[str]]:
    """The end of the brace group that opens at `start`, and its parts."""
    depth, parts, last = 0, [], start + 1
    for index in range(start, len(pattern)):
        character = pattern[index]
        if character == "{":
            depth += 1
        elif character == "," and depth == 1:
            parts.append(pattern[last:index])
            last = index + 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return index + 1, [*parts, pattern[last:index]]
    raise ValueError(f"is {pattern!r}; an opening brace is never closed")


def _translate(pattern: str) -> str:
    """One expression for a pattern without braces: a group per wildcard, all but the last of them atomic."""
    tokens = _TOKEN.findall(pattern)
    groups: list[tuple[str, str]] = [("", "")]
    for token in tokens:
        if token in ("**", "**/", "*"):
            groups.append((token, ""))
        else:
            wildcard, body = groups[-1]
            groups[-1] = (wildcard, body + ("[^/]" if token == "?" else re.escape(token)))
    return _join(groups)


def _join(groups: list[tuple[str, str]]) -> str:
    lazy = {"": "", "*": "[^/]*?", "**": ".*?", "**/": "(?:[^/]*/)*?"}
    deep = [index for index, (wildcard, _) in enumerate(groups) if wildcard.startswith("**")]
    last_deep = deep[-1] if deep else 0
    out: list[str] = []
    for index, (wildcard, body) in enumerate(groups):
        piece = lazy[wildcard] + body
        free = index in (last_deep, len(groups) - 1) or not wildcard
        out.append(piece if free else f"(?>{piece})")
    return "".join(out)
