"""Globs over object names, against a slow matcher that is plainly right."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kickoff.globs import MAX_ALTERNATIVES, glob_fault, match_glob


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("**/*.jpg", "a.jpg", True),
        ("**/*.jpg", "roses/a/b.jpg", True),
        ("*.jpg", "roses/a.jpg", False),
        ("**", "any/thing", True),
        ("a/**", "a/b/c", True),
        ("a/**", "ab", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("{a,b}/*.{png,jpg}", "b/x.jpg", True),
        ("{a,b{1,2}}.x", "b2.x", True),
        ("{,x}y", "y", True),
        ("[ab].c", "[ab].c", True),
        ("[ab].c", "a.c", False),
        ("**/\u00e9*", "x/\u00e91", True),
        ("**/\u00e9*", "x/e\u03011", False),
        ("*", "a\nb", True),
        ("*.JPG", "a.jpg", False),
    ],
)
def test_what_a_glob_matches(pattern: str, name: str, matches: bool) -> None:
    assert match_glob(pattern, name) is matches


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{a", "never closed"),
        ("a}", "no opening one"),
        ("{a}}", "no opening one"),
        ("", "1 to 1024"),
        ("a" * 1025, "1025 characters"),
        ("{a,b}" * 7, f"at most {MAX_ALTERNATIVES}"),
        ("{a,b}" * 200, f"at most {MAX_ALTERNATIVES}"),
        ("{" * 600 + "}" * 600, "1200 characters"),
    ],
)
def test_a_glob_that_is_refused(pattern: str, words: str) -> None:
    started = time.monotonic()
    assert words in glob_fault(pattern)
    assert time.monotonic() - started < 5
    with pytest.raises(ValueError):
        match_glob(pattern, "a")


def plainly(pattern: str, name: str) -> bool:
    """Exponential, and right by its form."""
    if not pattern:
        return not name
    if pattern.startswith("**/"):
        folders = [index + 1 for index, character in enumerate(name) if character == "/"]
        return any(plainly(pattern[3:], name[start:]) for start in (0, *folders))
    if pattern.startswith("**"):
        return any(plainly(pattern[2:], name[start:]) for start in range(len(name) + 1))
    if pattern.startswith("*"):
        end = name.find("/") if "/" in name else len(name)
        return any(plainly(pattern[1:], name[start:]) for start in range(end + 1))
    head = name[:1]
    return bool(head) and (head == pattern[0] or (pattern[0] == "?" and head != "/")) and plainly(pattern[1:], name[1:])


@given(st.text("ab/*?", min_size=1, max_size=9).filter(lambda text: "***" not in text), st.text("ab/", max_size=9))
def test_the_fast_matcher_agrees_with_the_plain_one(pattern: str, name: str) -> None:
    assert match_glob(pattern, name) is plainly(pattern, name)


def test_a_hostile_name_is_matched_quickly() -> None:
    started = time.monotonic()
    for pattern in ("**/" + "*a" * 30 + "b", "**a" * 30 + "b", "*a?" * 40 + "b"):
        assert not match_glob(pattern, "a" * 1024)
    assert time.monotonic() - started < 5
