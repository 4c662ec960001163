"""Schedules: what the recipe loader takes is what the local scheduler and Cloud Scheduler take."""

from datetime import UTC, datetime

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given
from hypothesis import strategies as st
from kickoff.cron import cron_fault, timezone_fault

TERM = st.one_of(
    st.just("*"),
    st.integers(-1, 65).map(str),
    st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: f"{pair[0]}-{pair[1]}"),
    st.sampled_from(["MON", "sun", "JAN", "DEC-JAN", "MON-FRI", "FOO", "", "1-", "-1", "1/2/3", "07", "*-5"]),
)
STEPPED = st.tuples(TERM, st.sampled_from(["", "", "/2", "/0", "/x", "/99"])).map("".join)
FIELD = st.lists(STEPPED, min_size=1, max_size=3).map(",".join)


@given(st.lists(FIELD, min_size=5, max_size=5).map(" ".join))
def test_it_takes_what_cronsim_takes(text: str) -> None:
    try:
        CronSim(text, datetime(2026, 1, 1, tzinfo=UTC))
        valid = True
    except CronSimError:
        valid = False
    assert (cron_fault(text) == "") is (valid and len(text.split()) == 5), text


@pytest.mark.parametrize("text", ["0 3 * * 1", "*/15 0-6 1,15 jan-MAR sun", "0 0 29 2 *", "0 0 30 2 1", "5 4 * * 7"])
def test_a_schedule_that_fires(text: str) -> None:
    assert cron_fault(text) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * *", "has 4 fields"),
        ("0 * * * * *", "has 6 fields"),
        ("@daily", "has 1 fields"),
        ("60 * * * *", "its minute is '60', which must be made of *, 0 to 59"),
        ("0 0 L * *", "its day of month is 'L'"),
        ("0 0 15W * *", "its day of month is '15W'"),
        ("0 0 * * 5#2", "its day of week is '5#2'"),
        ("0 0 ? * 1", "its day of month is '?'"),
        ("0 0 * 13 *", "its month is '13'"),
        ("0 0 30 2 *", "never fire"),
        ("٣ * * * *", "its minute"),
    ],
)
def test_a_schedule_that_is_refused(text: str, words: str) -> None:
    assert words in cron_fault(text)


def test_time_zones_are_iana_names() -> None:
    assert timezone_fault("Europe/Berlin") == timezone_fault("Etc/UTC") == ""
    assert "IANA" in timezone_fault("Berlin") and "IANA" in timezone_fault("../etc/passwd")
