"""docs/schemas/recipe.json and message.json say what the code takes."""

import json
from functools import cache

import pytest
from jsonschema import Draft202012Validator
from kickoff.yaml_strict import load_yaml

from tests.kickoff.request_schemas import FOLDER, SCHEMAS, text_of
from tests.kickoff.requests_at_hand import POOL, RECIPE_FILES
from tests.kickoff.spec_cases import expectations, load_cases, payload_of


@cache
def validator(name: str) -> Draft202012Validator:
    schema = json.loads((FOLDER / name).read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def faults(name: str, value: object) -> list[str]:
    return [error.message for error in validator(name).iter_errors(value)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_files_are_generated(name: str) -> None:
    assert (FOLDER / name).read_text() == text_of(SCHEMAS[name]()), "python -m tests.kickoff.request_schemas"


@pytest.mark.parametrize("name", RECIPE_FILES)
def test_shipped_recipes_fit_and_name_their_schema(name: str) -> None:
    assert faults("recipe.json", load_yaml(RECIPE_FILES[name], name).value) == []
    assert RECIPE_FILES[name].startswith("# yaml-language-server: $schema=../../docs/schemas/recipe.json\n")


def test_a_recipe_with_a_wrong_key_or_type_does_not_fit() -> None:
    assert faults("recipe.json", {"name": "a", "when": {"uplod": {}}})
    assert faults("recipe.json", {"name": "a", "when": {"message": {}}, "job": {"replicas": "3"}})
    assert faults("recipe.json", {"name": "A", "when": {"message": {}}})


@pytest.mark.parametrize(
    "message",
    [
        {"recipe": "digits"},
        {"recipe": "digits", "args": {"epochs": 3}, "replicas": 2, "idempotency_key": "k", "labels": {"team": "x"}},
        {"recipe": "digits", "args.epochs": "3", "scheduling": {"timeout": "2h"}},
        {"worker_pool_specs": [POOL, {}], "display_name": "x", "base_output_dir": "gs://acme-ml-models/x"},
        {"worker_pool_spec": ["machine-type=n1-standard-4,container-image-uri=gcr.io/acme-ml/x"], "args": ["--a"]},
    ],
)
def test_messages_fit(message: object) -> None:
    assert faults("message.json", message) == []


@pytest.mark.parametrize(
    "message", [{}, {"recipe": 1}, {"recipe": "a", "worker_pool_specs": []}, {"worker_pool_specs": [{"machine": {}}]}]
)
def test_other_messages_do_not_fit(message: object) -> None:
    assert faults("message.json", message)


def test_every_accepted_real_request_fits() -> None:
    """The code may refuse more than a schema can say, never less."""
    for case in load_cases():
        for expected in expectations(case):
            payload = payload_of(case, expected)
            if expected["outcome"] == "accepted" and isinstance(payload, dict):
                assert faults("message.json", payload) == [], case["id"]
