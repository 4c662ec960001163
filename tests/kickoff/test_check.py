"""`kickoff check`'s report: the job that would start, its price, and every fault."""

import json
from copy import deepcopy
from random import Random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kickoff.check import Report, check
from kickoff.yaml_strict import load_yaml

from tests.kickoff.requests_at_hand import IMAGE, POLICY, POOL, RECIPE_FILES, RECIPES, SETTINGS
from tests.kickoff.spoiling import JUNK, spoil


def report(text: str, file: str = "f.yaml") -> Report:
    return check(text, file, recipes=RECIPES, policy=POLICY, settings=SETTINGS)


@pytest.mark.parametrize("file", RECIPE_FILES)
def test_shipped_recipes_would_start(file: str) -> None:
    found = report(RECIPE_FILES[file], file)

    assert found.ok and found.cost and found.cost.usd and found.warnings == ()
    assert found.table().splitlines()[-1] == "would start"


def test_the_table_says_what_would_run_and_what_it_may_cost() -> None:
    lines = report(RECIPE_FILES["digits.yaml"], "digits.yaml").table().splitlines()

    assert lines[0] == "recipe digits"
    assert lines[1].split() == ["pool", "role", "replicas", "machine", "accelerators", "image", "USD/hour"]
    assert lines[2].split() == ["workerpool0", "primary", "1", "n1-standard-4", "none", IMAGE, "0.25"]
    assert lines[3].split() == ["workerpool1", "workers", "2", "n1-standard-4", "none", IMAGE, "0.49"]
    assert "worst case  0.37 USD (0.74 USD an hour x 0.5 h)" in lines


def test_a_message_is_told_from_a_recipe() -> None:
    short = report('{"recipe": "cassava", "replicas": 3}', "m.json")
    raw = report(json.dumps({"worker_pool_specs": [POOL]}), "m.json")

    assert short.subject == "message (short form) for recipe cassava" and short.rows[1][2:5] == (
        "2",
        "n1-standard-8",
        "1 x NVIDIA_TESLA_V100",
    )
    assert raw.subject == "message (worker pool specs)" and not raw.custom_job["jobSpec"].get("baseOutputDirectory")
    assert any("Vertex AI's default timeout" in line for line in raw.table().splitlines())
    assert report("recipe: digits\n").ok


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nwhen: {message: {}}\njob: {replicas: 0}", "f.yaml:3: job.replicas is 0"),
        ("name: x\non: {message: {}}", "written when:"),
        (
            "name: x\nwhen: {upload: {bucket: '{project}-models', root: digits/}}\njob: {output: 'gs://{project}-x/{run_id}'}",
            "watches gs://acme-ml-models/digits/, and jobs of the other recipes write to gs://acme-ml-models/digits/",
        ),
        (
            "name: x\nwhen: {message: {}}\njob: {output: 'gs://{project}-data/datasets/digits/{run_id}'}",
            "where recipe digits watches for uploads",
        ),
        ("name: x\nwhen: {message: {}}\njob: {args: {d: '{dataset.uri}'}}", "and the request has no dataset"),
        ("name: x\nwhen: {message: {}}\njob: {image: docker.io/x/y}", "policy allows"),
        (
            "name: x\nwhen: {message: {}}\njob: {scheduling: {timeout: 7d}}\nlimits: {max_cost_usd: 1}",
            "at worst; the limit is",
        ),
        ('{"recipe": "digit"}', "did you mean digits?"),
        ("a: [", "not valid YAML"),
        ("5", "it must be a JSON object"),
        ("{}", "has none of recipe"),
    ],
)
def test_every_fault_is_in_the_report(text: str, words: str) -> None:
    found = report(text)

    assert not found.ok and any(words in str(fault) for fault in found.faults), found.faults
    assert "would be refused: " in found.table()


def test_the_report_is_json_too() -> None:
    value = json.loads(json.dumps(report(RECIPE_FILES["cassava.yaml"], "cassava.yaml").as_json()))

    assert value["ok"] and value["worst_case_usd"] == pytest.approx(13.26, abs=0.01) and value["faults"] == []
    assert value["custom_job"]["jobSpec"]["workerPoolSpecs"][1]["replicaCount"] == 1
    assert json.loads(json.dumps(report('{"recipe": 5}').as_json()))["faults"][0]["path"] == "recipe"


class NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


_SHIPPED = [load_yaml(text, name).value for name, text in RECIPE_FILES.items()]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_a_spoiled_recipe_gets_a_report_all_the_same(seed: int) -> None:
    random = Random(seed)
    for _ in range(4):
        recipe = deepcopy(random.choice(_SHIPPED))
        for _ in range(random.randint(1, 3)):
            recipe = spoil(recipe, random, JUNK)
        found = report(yaml.dump(recipe, Dumper=NoAliases, allow_unicode=True))
        assert found.table() and json.dumps(found.as_json()) and found.ok is not bool(found.faults)
