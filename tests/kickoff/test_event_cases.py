"""Every envelope of tests/cases/events.jsonl gets what the case says, and docs/envelopes.md says so too."""

from typing import Any

import pytest

from tests.kickoff.event_cases import ROOT, Case, load_cases, outcome, render_table

CASES = load_cases()


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case: Case) -> None:
    got = outcome(case)
    for key, value in case["expected"].items():
        assert _agrees(key, value, got[key]), f"{key}: {got}"


def _agrees(key: str, expected: Any, got: Any) -> bool:
    if key in ("says", "reason"):
        return str(expected) in str(got)
    if key == "text":
        return str(got).startswith(str(expected))
    return bool(got == expected)


def test_the_table_in_the_docs_is_made_of_the_cases() -> None:
    assert (ROOT / "docs" / "envelopes.md").read_text() == render_table(CASES), (
        "stale: PYTHONPATH=functions python -m tests.kickoff.event_cases > docs/envelopes.md"
    )


def test_redeliveries_carry_the_same_identity() -> None:
    first, again, other_id = (outcome(case) for case in CASES if case["id"] in ("E01", "E13", "E14"))
    assert first == again == other_id


def test_every_fault_of_an_envelope_is_named() -> None:
    faults = {case["id"]: outcome(case).get("faults") for case in CASES}
    assert faults["E50"] == 3  # ce-specversion, ce-source, ce-id
    assert faults["K08"] == 3  # run_id, epoch, metrics.loss
    assert faults["K28"] == 3  # bucket, name, size
    assert faults["E48"] == 2  # bucket, name
