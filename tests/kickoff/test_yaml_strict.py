"""YAML without YAML 1.1's surprises."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kickoff.errors import ConfigurationError
from kickoff.yaml_strict import MAX_CHARACTERS, load_yaml


def faults(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_yaml(text, "f.yaml")
    return str(caught.value)


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "on: yes\nno: off\na: 1:30\nb: [1, -2, 2.5, 1e-4, 010, 0x1F, ~, null, true, 2026-01-01]\nc: <<\n"

    assert load_yaml(text, "f.yaml").value == {
        "on": "yes",
        "no": "off",
        "a": "1:30",
        "b": [1, -2, 2.5, 0.0001, "010", "0x1F", None, None, True, "2026-01-01"],
        "c": "<<",
    }


def test_every_key_has_its_line() -> None:
    document = load_yaml("a: 1\nb:\n  c:\n    - x\n    - y: 2\n", "f.yaml")

    assert [document.line(path) for path in ((("a",)), ("b", "c"), ("b", "c", 1, "y"), ("b", "c", 9))] == [1, 3, 5, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: a is given twice; it stands on line 1 already"),
        ("a: &x [1]\nb: *x", "f.yaml:1: has an anchor or alias"),
        ("a: 1\n<<: {b: 2}\n1: x", "f.yaml:3: has the key '1', which is not text"),
        ("? [a]\n: b", "which is not text"),
        ("a: !!python/object/apply:os.system [ls]", "f.yaml:1: has a tag"),
        ("a: [1", "is not valid YAML"),
        ("a: 1\n---\nb: 2", "is not valid YAML"),
        ("a:\tb\n\tc: d", "is not valid YAML"),
        ("a: \x07", "cannot be read"),
        ("[" * 40 + "]" * 40, "nests more than 20 deep"),
        ("[" * 20000, "nest"),
        ("{a: " * 20000, "nest"),
        ("a" * (MAX_CHARACTERS + 1), f"at most {MAX_CHARACTERS} are allowed"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    assert words in faults(text)


def test_all_duplicates_are_named_at_once() -> None:
    assert len(faults("a: 1\na: 2\nb: {c: 1, c: 2}").splitlines()) == 2


_PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.text("abc é:-#'\"", max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


class NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


@given(_PLAIN)
def test_what_is_written_is_read_again(value: object) -> None:
    assert load_yaml(yaml.dump(value, Dumper=NoAliases, allow_unicode=True), "f.yaml").value == value


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        load_yaml(text, "f.yaml")
    except ConfigurationError as error:
        assert all(fault.message.startswith("f.yaml:") for fault in error.faults)
