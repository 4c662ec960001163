"""The preflight: what each state of a project is told, and its gcloud commands by the real gcloud."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.deployment import Deployment
from deploy.doctor import AGENTS, APIS, Finding, diagnose, find_problems
from deploy.gcloud import InstalledGcloud
from deploy.project_facts import Facts
from deploy.recipe_needs import Need, Recipe, read_recipes
from tests.gcp.calls import DIGEST, PROJECT_NUMBER
from tests.gcp.recorder import recording
from tests.gcp.warm_gcloud import available, warm

PROJECT, REGION = "acme-train", "us-central1"
T4 = Recipe("flowers", "flowers.yaml", needs=(Need("n1-standard-4", 3, "NVIDIA_TESLA_T4", 1),), at_once=2)


def quota(metric: str, value: int) -> dict[str, Any]:
    there = {"applicableLocations": [REGION], "details": {"value": str(value)}, "dimensions": {"region": REGION}}
    elsewhere = {"applicableLocations": ["asia-east1"], "details": {"value": "0"}}
    name = f"aiplatform.googleapis.com/{metric}"
    return {"metric": name, "quotaId": f"{metric}-id", "dimensionsInfos": [there, elsewhere]}


def healthy() -> Facts:
    """A project in which nothing stands in the way of T4."""
    agents = {
        role: f"serviceAccount:service-{PROJECT_NUMBER}@{agent}.iam.gserviceaccount.com"
        for agent, (_, role) in AGENTS.items()
    }
    return Facts(
        project=PROJECT,
        region=REGION,
        number=PROJECT_NUMBER,
        account="eva@acme.example",
        billing=True,
        apis={*APIS, "compute"},
        bindings=[
            {"role": "roles/owner", "members": ["user:eva@acme.example"]},
            *({"role": role, "members": [member]} for role, member in agents.items()),
        ],
        buckets={f"{PROJECT}-data": REGION},
        databases=[{"name": f"projects/{PROJECT}/databases/(default)", "type": "DATASTORE_MODE"}],
        quotas=[quota("custom_model_training_cpus", 42), quota("custom_model_training_nvidia_t4_gpus", 6)],
        machine_types={"n1-standard-4"},
        accelerators={"nvidia-tesla-t4"},
    )


def test_a_healthy_project_has_no_findings() -> None:
    """Also with a (default) database in Datastore mode: Kickoff has its own."""
    assert find_problems(healthy(), [T4]) == []


def only(facts: Facts, *recipes: Recipe) -> Finding:
    (found,) = find_problems(facts, recipes)
    return found


def test_each_problem_comes_with_the_command_that_mends_it() -> None:
    found = only(replace(healthy(), billing=False))
    assert found.level == "error" and "billing projects link acme-train" in found.fix
    found = only(replace(healthy(), apis={*APIS, "compute"} - {"pubsub"}))
    assert found.fix == "gcloud services enable pubsub.googleapis.com --project=acme-train"
    found = only(replace(healthy(), account="bob@acme.example"))
    assert "user:bob@acme.example" in found.fix and "roles/pubsub.admin" in found.fix
    found = only(replace(healthy(), bindings=healthy().bindings[:-1]))  # type: ignore[index]
    assert "roles/run.serviceAgent" in found.fix
    found = only(replace(healthy(), buckets={f"{PROJECT}-data": "europe-west4"}))
    assert "is in europe-west4 and jobs run in us-central1" in found.message
    database = {"name": f"projects/{PROJECT}/databases/kickoff", "type": "DATASTORE_MODE"}
    found = only(replace(healthy(), databases=[database]))
    assert found.level == "error" and "databases update --database=kickoff --type=firestore-native" in found.fix
    found = only(replace(healthy(), image="x@sha256:0", image_found=False))
    assert found.level == "error" and "trainer_image.sh acme-train us-central1" in found.fix


def test_quota_is_compared_with_all_runs_at_once() -> None:
    """Two runs of three T4 each need six; the limit of another region does not count."""
    assert T4.quota() == {"custom_model_training_cpus": 24, "custom_model_training_nvidia_t4_gpus": 6}
    quotas = [quota("custom_model_training_cpus", 42), quota("custom_model_training_nvidia_t4_gpus", 5)]
    found = only(replace(healthy(), quotas=quotas), T4)
    assert (
        "needs 6 of custom_model_training_nvidia_t4_gpus for 2 run(s) at once, and us-central1 has 5" in found.message
    )
    assert "--quota-id=custom_model_training_nvidia_t4_gpus-id --preferred-value=6" in found.fix


def test_spot_jobs_have_a_quota_of_their_own() -> None:
    assert "custom_model_training_preemptible_nvidia_t4_gpus" in replace(T4, spot=True).quota()


def test_machines_that_the_region_lacks_are_named() -> None:
    found = only(replace(healthy(), accelerators={"nvidia-l4"}), T4)
    assert "nvidia-tesla-t4 is offered in no zone of us-central1" in found.message


def test_recipes_that_nothing_would_start_are_errors() -> None:
    elsewhere = Recipe("flowers", "flowers.yaml", bucket="other-data")
    assert "only acme-train-data announces its uploads" in only(healthy(), elsewhere).message
    assert only(healthy(), Recipe("sweep", "sweep.yaml", scheduled=True)).level == "error"
    assert only(healthy(), Recipe("bad", "bad.yaml", faults=("bad.yaml:3: …",))).message == "bad.yaml:3: …"


def test_a_project_that_cannot_be_read_is_one_error() -> None:
    facts = Facts(PROJECT, REGION, failures={"project": "ERROR: PERMISSION_DENIED: you"})
    message = "could not be looked at: ERROR: PERMISSION_DENIED: you"
    assert only(facts) == Finding("error", "project", message, "gcloud projects list")


def test_every_finding_brings_its_command() -> None:
    nobody = Facts(
        PROJECT, REGION, failures={"project": "You do not currently have an active account: gcloud auth login"}
    )
    assert only(nobody).fix == "gcloud auth login"
    refused = Facts(PROJECT, REGION, failures={"buckets": "403 forbidden"})
    assert only(refused).fix.startswith(f"gcloud projects get-iam-policy {PROJECT}")


def test_the_shipped_recipes_have_no_faults() -> None:
    recipes = read_recipes(Deployment(PROJECT, REGION).settings)
    assert {"digits", "cassava"} <= {recipe.name for recipe in recipes}
    assert [fault for recipe in recipes for fault in recipe.faults] == []
    assert all(recipe.needs for recipe in recipes)


def test_faulty_recipes_and_loops_are_found(tmp_path: Path) -> None:
    text = """
name: {name}
when: {{upload: {{bucket: "{{project}}-data", root: "a/"}}}}
job: {{output: "gs://{{project}}-data/{output}/{{run_id}}"}}
"""
    (tmp_path / "one.yaml").write_text(text.format(name="one", output="a"))
    (tmp_path / "two.yaml").write_text("name: two\nwhen: {mesage: {}}\n")
    settings = replace(Deployment(PROJECT, REGION).settings, recipes=tmp_path)
    said = "\n".join(fault for recipe in read_recipes(settings) for fault in recipe.faults)
    assert "mesage" in said
    assert "its own jobs write to" in said


@pytest.mark.gcloud
@pytest.mark.skipif(not available(), reason="gcloud is not installed: the preflight asked nobody")
def test_every_question_is_one_that_gcloud_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() as recorder, warm(tmp_path) as tools:
        for name, value in recorder.environ(PROJECT).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "config"))
        monkeypatch.setenv("CLOUDSDK_CORE_ACCOUNT", "eva@acme.example")
        monkeypatch.setenv("PATH", str(tools), prepend=":")
        fill(recorder)
        image = f"{REGION}-docker.pkg.dev/{PROJECT}/kickoff/trainer@{DIGEST}"
        findings = diagnose(Deployment(PROJECT, REGION, {"trainer_image": image}), InstalledGcloud(PROJECT))
        built = diagnose(Deployment(PROJECT, REGION), InstalledGcloud(PROJECT))  # an image that is going to be built
        asked = {f"{call.api}:{call.path.rpartition('/')[2]}" for call in recorder.calls}
    assert {finding.subject for finding in findings} == {
        "permissions",
        "trainer image",
        "recipe cassava",
        "recipe flowers-multi-gpu",
    }
    assert "trainer image" not in {finding.subject for finding in built}
    assert not [finding for finding in findings if "could not be looked at" in finding.message]
    assert {
        "cloudquotas:quotaInfos",
        "compute:machineTypes",
        "compute:acceleratorTypes",
        "firestore:databases",
    } <= asked
    assert not [call for call in recorder.calls if call.method != "GET" and not call.path.endswith(":getIamPolicy")]


def fill(recorder: Any) -> None:
    """The healthy project, as its APIs tell it, but without V100s."""
    facts = healthy()
    recorder.put("cloudbilling", f"v1/projects/{PROJECT}/billingInfo", {"billingEnabled": True})
    for api in facts.apis or ():
        name = f"{api}.googleapis.com"
        service = {"name": f"projects/1/services/{name}", "config": {"name": name}, "state": "ENABLED"}
        recorder.put("serviceusage", f"v1/projects/{PROJECT}/services/{name}", service)
    recorder.policies[f"cloudresourcemanager:projects/{PROJECT}"] = {"bindings": (facts.bindings or [])[1:]}
    for suffix in ("data", "models", "staging"):
        recorder.put("storage", f"b/{PROJECT}-{suffix}", {"name": f"{PROJECT}-{suffix}", "location": REGION.upper()})
    quotas = f"v1beta/projects/{PROJECT}/locations/global/services/aiplatform.googleapis.com/quotaInfos"
    recorder.put("cloudquotas", quotas, {"quotaInfos": facts.quotas})
    for kind, names in (
        ("machineTypes", ["n1-standard-4", "n1-standard-8"]),
        ("acceleratorTypes", ["nvidia-tesla-t4"]),
    ):
        zone = {kind: [{"name": name, "zone": f"https://c/zones/{REGION}-a"} for name in names]}
        recorder.put("compute", f"projects/{PROJECT}/aggregated/{kind}", {"items": {f"zones/{REGION}-a": zone}})
