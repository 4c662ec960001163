"""The run record: its name and the table of its states."""

import re
from datetime import UTC, datetime

import pytest
from kickoff.runs import TERMINAL, TRANSITIONS, Change, Run, State, Trigger, build_run_id

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def make_run(state: State) -> Run:
    key = ("flowers", "message", "m-1")
    return Run(
        run_id=build_run_id(key),
        key=key,
        recipe="flowers",
        state=state,
        history=(Change(state=state, time=NOW),),
        created=NOW,
        updated=NOW,
        trigger=Trigger(kind="message"),
    )


def test_the_same_key_gives_the_same_id_and_another_key_another() -> None:
    assert build_run_id(("a", "message", "1")) == build_run_id(("a", "message", "1"))
    assert build_run_id(("a", "message", "1")) != build_run_id(("a", "messag", "e1"))
    assert build_run_id(("a", "message", "1")) != build_run_id(("a", "message", "1"), attempt=2)


def test_a_run_id_is_a_valid_label_value_for_the_longest_recipe_name() -> None:
    run_id = build_run_id(("r" * 36, "upload", "gs://b/Ä"), attempt=99)
    assert re.fullmatch(r"[a-z0-9_-]{1,63}", run_id)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_nothing_follows_an_end(state: State) -> None:
    for target in State:
        with pytest.raises(ValueError, match="cannot go from"):
            make_run(state).moved(target, NOW)


def test_every_state_can_reach_an_end() -> None:
    reaching = set(TERMINAL)
    while more := {s for s, targets in TRANSITIONS.items() if targets & reaching} - reaching:
        reaching |= more
    assert reaching == set(State)


def test_a_move_is_written_into_the_history() -> None:
    run = make_run(State.QUEUED).moved(State.SUBMITTING, NOW, "leased", nonce="n")
    assert [change.state for change in run.history] == [State.QUEUED, State.SUBMITTING]
    assert run.nonce == "n"
    assert run.state is State.SUBMITTING
