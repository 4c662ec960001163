"""Labels: ours are made valid, the user's are judged."""

from hypothesis import given
from hypothesis import strategies as st
from kickoff.labels import derive_label, label_faults


def test_a_derived_label_is_readable() -> None:
    assert derive_label("Raw Data/Årsrapport 2024.CSV") == "raw-data-rsrapport-2024-csv"
    assert derive_label("x" * 62 + "--y") == "x" * 62
    assert derive_label("///") == ""


@given(st.text())
def test_any_text_becomes_a_valid_label(text: str) -> None:
    assert list(label_faults({"k": derive_label(text)})) == []


_ALLOWED = set("abcdefghijklmnopqrstuvwxyz0123456789_-")
_TEXT = st.text("aZ09_-é", max_size=4) | st.text("a", min_size=60, max_size=66)


@given(st.dictionaries(_TEXT, _TEXT | st.none() | st.integers(), max_size=3))
def test_a_label_is_valid_or_named(labels: dict[str, object]) -> None:
    found = {fault.path for fault in label_faults(labels)}

    for key, value in labels.items():
        key_fits = 1 <= len(key) <= 63 and set(key) <= _ALLOWED and key[0] not in "_-"
        value_fits = isinstance(value, str) and len(value) <= 63 and set(value) <= _ALLOWED
        assert (f"labels.{key}" in found) is not (key_fits and value_fits)
