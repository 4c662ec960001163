"""deploy and destroy: which commands in which order. gcloud is the real one; `terraform apply` needs Google, so a
program that keeps its arguments stands for Terraform here (test_terraform.py plans with the real one)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kickoff.errors import ConfigurationError

from deploy.deploy import TerraformFailed, deploy, destroy, to_adopt
from deploy.deployment import Deployment
from deploy.doctor import Finding
from tests.gcp.calls import PROJECT_NUMBER
from tests.gcp.recorder import Recorder, recording
from tests.gcp.warm_gcloud import available, warm

pytestmark = [
    pytest.mark.gcloud,
    pytest.mark.skipif(not available(), reason="gcloud is not installed: deploy and destroy were not run"),
]
PROJECT, REGION = "acme-train", "us-central1"
DEPLOYMENT = Deployment(
    PROJECT, REGION, {"alert_email": "oncall@acme.example", "request_publishers": ["group:ml@acme.example"]}
)
_TERRAFORM = """#!/usr/bin/env python3
import json, os, pathlib, sys
folder = pathlib.Path({folder!r})
given = {{name: value for name, value in os.environ.items() if name.startswith("TF_VAR_")}}
with (folder / "terraform.calls").open("a") as file:
    file.write(json.dumps([sys.argv[2:], given]) + "\\n")
if sys.argv[2:4] == ["state", "list"]:
    print((folder / "state").read_text())
sys.exit((folder / "fails").exists() and sys.argv[2] == (folder / "fails").read_text())
"""


@dataclass
class World:
    recorder: Recorder
    folder: Path
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    answer: bool = True

    def confirm(self, question: str) -> bool:
        self.asked.append(question)
        return self.answer

    def terraform(self) -> list[list[str]]:
        """The arguments of each call, without ``state list``."""
        lines = (self.folder / "terraform.calls").read_text().splitlines()
        return [argv for argv, _ in map(json.loads, lines) if argv[:2] != ["state", "list"]]

    def variables(self) -> dict[str, str]:
        given: dict[str, str] = json.loads((self.folder / "terraform.calls").read_text().splitlines()[-1])[1]
        return given


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with warm(tmp_path_factory.mktemp("tools")) as folder:
        yield folder


@pytest.fixture
def world(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    program = tmp_path / "terraform"
    program.write_text(_TERRAFORM.format(folder=str(tmp_path)))
    program.chmod(0o755)
    (tmp_path / "state").write_text("google_storage_bucket.data\n")
    with recording() as recorder:
        for name, value in recorder.environ(PROJECT).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "config"))
        monkeypatch.setenv("PATH", str(tools), prepend=":")
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        recorder.put("cloudbilling", f"v1/projects/{PROJECT}/billingInfo", {"billingEnabled": True})
        yield World(recorder, tmp_path)


def run_deploy(world: World) -> list[Finding]:
    """With a preflight that finds nothing: test_doctor.py asks all its questions."""
    return deploy(DEPLOYMENT, say=world.said.append, confirm=world.confirm, preflight=lambda deployment, gcloud: [])


def test_a_deployment_plans_asks_and_applies_that_plan(world: World) -> None:
    run_deploy(world)
    assert world.terraform() == [
        ["init", "-input=false", "-reconfigure", f"-backend-config=bucket={PROJECT}-kickoff-state"],
        ["plan", "-input=false", "-out=kickoff.plan"],
        ["apply", "-input=false", "kickoff.plan"],
    ]
    assert world.variables() == {
        "TF_VAR_project": PROJECT,
        "TF_VAR_region": REGION,
        "TF_VAR_project_number": PROJECT_NUMBER,
        "TF_VAR_alert_email": "oncall@acme.example",
        "TF_VAR_request_publishers": '["group:ml@acme.example"]',
    }


def test_the_state_is_kept_in_a_private_versioned_bucket_made_once(world: World) -> None:
    run_deploy(world)
    run_deploy(world)
    (made,) = world.recorder.made("storage", "b$")
    assert made.body["name"] == f"{PROJECT}-kickoff-state"
    assert made.body["iamConfiguration"]["publicAccessPrevention"] == "enforced"
    (versioned,) = [call for call in world.recorder.calls if call.method == "PATCH"]
    assert versioned.body["versioning"] == {"enabled": True}


def test_who_does_not_confirm_changes_nothing(world: World) -> None:
    world.answer = False
    run_deploy(world)
    assert [argv[0] for argv in world.terraform()] == ["init", "plan"]


def test_buckets_that_outlived_a_destroy_are_taken_over(world: World) -> None:
    """data is in the state; models is there and is not."""
    for suffix in ("data", "models"):
        world.recorder.put("storage", f"b/{PROJECT}-{suffix}", {"name": f"{PROJECT}-{suffix}", "location": REGION})
    run_deploy(world)
    assert world.terraform()[1] == ["import", "-input=false", "google_storage_bucket.models", f"{PROJECT}-models"]


def test_errors_of_the_preflight_stop_it(world: World) -> None:
    world.recorder.put("cloudbilling", f"v1/projects/{PROJECT}/billingInfo", {"billingEnabled": False})
    findings = deploy(DEPLOYMENT, say=world.said.append, confirm=world.confirm)
    assert [each.subject for each in findings if each.level == "error"] == ["billing"]
    assert any("gcloud billing projects link" in line for line in world.said)
    assert not (world.folder / "terraform.calls").exists()


def test_a_failed_plan_is_not_applied(world: World) -> None:
    (world.folder / "fails").write_text("plan")
    with pytest.raises(TerraformFailed, match="terraform plan failed"):
        run_deploy(world)
    assert not world.asked


@pytest.mark.parametrize("data_too", [False, True])
def test_destroy_asks_and_keeps_data_unless_told(world: World, data_too: bool) -> None:
    for suffix in ("data", "models", "kickoff-state"):
        world.recorder.put("storage", f"b/{PROJECT}-{suffix}", {"name": f"{PROJECT}-{suffix}", "location": REGION})
    assert destroy(DEPLOYMENT, say=world.said.append, confirm=world.confirm, data_too=data_too)
    assert world.asked == [f"Destroy Kickoff in {PROJECT}?"]
    kept = [] if data_too else [["state", "rm", "google_storage_bucket.data"]]
    assert world.terraform()[1:] == [*kept, ["destroy", "-input=false", "-auto-approve"]]
    gone = {call.path for call in world.recorder.calls if call.method == "DELETE"}
    assert gone == {f"b/{PROJECT}-kickoff-state", *([f"b/{PROJECT}-data"] if data_too else [])}


def test_destroy_without_a_yes_does_nothing(world: World) -> None:
    world.answer = False
    assert not destroy(DEPLOYMENT, say=world.said.append, confirm=world.confirm)
    assert [argv[0] for argv in world.terraform()] == ["init"]
    assert not [call for call in world.recorder.calls if call.method == "DELETE"]
    assert any("run records" in line for line in world.said)


def test_without_terraform_it_says_where_to_get_it(world: World, monkeypatch: pytest.MonkeyPatch, tools: Path) -> None:
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(ConfigurationError, match="terraform is not installed; see https"):
        run_deploy(world)


def test_only_known_and_unmanaged_buckets_are_adopted() -> None:
    state = "google_storage_bucket.staging\ngoogle_storage_bucket.models"
    assert to_adopt(state, ["p-data", "p-models"]) == {"google_storage_bucket.data": "p-data"}
    assert to_adopt("", []) == {}
