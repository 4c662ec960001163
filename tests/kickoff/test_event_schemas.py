"""docs/schemas/ says what is really recorded and published."""

import json

import jsonschema
import pytest
from kickoff.own_events import build_run_finished
from kickoff.runs import JobRecord, State

from tests.kickoff.event_schemas import FOLDER, MODELS, render
from tests.kickoff.making import NOW, make_run


@pytest.mark.parametrize("name", MODELS)
def test_the_schema_in_the_docs_is_made_of_the_model(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == render(name), (
        "stale: PYTHONPATH=functions python -m tests.kickoff.event_schemas"
    )


def test_a_published_end_has_the_documented_properties_and_no_others() -> None:
    run = make_run(state=State.SUCCEEDED, job=JobRecord(name="projects/p/locations/r/customJobs/1", start_time=NOW))
    said = json.loads(build_run_finished(run).model_dump_json())
    schema = json.loads((FOLDER / "run-finished.json").read_text())
    assert said.keys() == schema["properties"].keys() == set(schema["required"])
    assert schema["additionalProperties"] is False
    jsonschema.validate(said, schema, format_checker=jsonschema.FormatChecker())


def test_a_record_has_the_documented_properties_and_no_others() -> None:
    stored = json.loads(make_run().model_dump_json(exclude={"version"}))
    schema = json.loads((FOLDER / "run.json").read_text())
    assert stored.keys() == schema["properties"].keys()
    jsonschema.validate(stored, schema)


def test_fields_are_described() -> None:
    schema = json.loads((FOLDER / "run.json").read_text())
    assert schema["properties"]["model_digest"]["description"].startswith("SHA-256")
    assert schema["$defs"]["JobRecord"]["properties"]["name"]["description"]


def test_the_example_in_the_docs_is_valid() -> None:
    text = (FOLDER.parent / "events.md").read_text()
    example = json.loads(text.partition("```json\n")[2].partition("```")[0])
    schema = json.loads((FOLDER / "run-finished.json").read_text())
    jsonschema.validate(example, schema, format_checker=jsonschema.FormatChecker())
