"""Every request of tests/cases/specs.jsonl gets what it must get, in every form named there."""

import pytest

from tests.kickoff.requests_at_hand import ROOT
from tests.kickoff.spec_cases import Case, at, document, expectations, load_cases, outcome_of

CASES = [(case, expected) for case in load_cases() for expected in expectations(case)]


@pytest.mark.parametrize(
    ("case", "expected"),
    CASES,
    ids=[f"{case['id']}-{each['as']}-{number}" for number, (case, each) in enumerate(CASES)],
)
def test_a_real_request_gets_its_outcome(case: Case, expected: Case) -> None:
    outcome, job, warnings, faults = outcome_of(case, expected)

    assert outcome == expected["outcome"], (faults, warnings)
    for path, value in expected.get("job", {}).items():
        assert at(job, path) == value, path
    for words in expected.get("warnings", []):
        assert any(words in warning for warning in warnings), warnings
    for wanted in expected.get("faults", []):
        assert any(path == wanted["path"] and wanted["says"] in message for path, message in faults), faults


def test_there_are_as_many_cases_as_were_collected() -> None:
    cases = load_cases()

    assert len(cases) == 55 and len({case["id"] for case in cases}) == 55
    assert {expected["outcome"] for _, expected in CASES} == {"accepted", "refused"}


def test_the_table_in_docs_is_generated_from_the_cases() -> None:
    assert (ROOT / "docs" / "requests.md").read_text() == document(), (
        "python -m tests.kickoff.spec_cases > docs/requests.md"
    )
