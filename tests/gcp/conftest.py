"""One whole run of quickstart.sh and two plans of the Terraform, shared by all tests of the road to the cloud."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.gcp.calls import DIGEST, PROJECT_NUMBER, Call
from tests.gcp.checkout import copy_checkout
from tests.gcp.recorder import Recorder, recording
from tests.gcp.terraform import check
from tests.gcp.warm_gcloud import warm

PROJECT = "acme-train"
REGION = "europe-west4"
IMAGE = f"{REGION}-docker.pkg.dev/{PROJECT}/kickoff/trainer@{DIGEST}"


@dataclass(frozen=True)
class Deployed:
    recorder: Recorder
    first: list[Call]
    second: list[Call]
    output: str

    def made(self, api: str, pattern: str) -> list[Call]:
        return [call for call in self.first if call in self.recorder.made(api, pattern)]


def run_script(recorder: Recorder, checkout: Path, tools: Path) -> str:
    environ = {**os.environ, **recorder.environ(PROJECT), "CLOUDSDK_CONFIG": str(tools / "config")}
    environ |= {"PATH": f"{tools}:{os.environ['PATH']}", "KICKOFF_RETRY_SECONDS": "0"}
    environ["PYTHON"] = sys.executable
    script = [str(checkout / "deploy" / "gcp" / "quickstart.sh"), PROJECT, REGION]
    done = subprocess.run(script, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The calls of a first run, and of a second one with a recipe's schedule taken away."""
    checkout = copy_checkout(tmp_path_factory.mktemp("checkout"))
    with recording() as recorder, warm(tmp_path_factory.mktemp("tools")) as tools:
        output = run_script(recorder, checkout, tools)
        first = list(recorder.calls)
        (checkout / "functions" / "recipes" / "monthly.yaml").unlink()
        run_script(recorder, checkout, tools)
        yield Deployed(recorder, first, recorder.calls[len(first) :], output)


def email(name: str) -> str:
    return f"kickoff-{name}@{PROJECT}.iam.gserviceaccount.com"


@pytest.fixture(scope="session")
def planned_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("planned"))


@pytest.fixture(scope="session")
def plan(planned_checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plan with defaults, of a checkout with two scheduled recipes."""
    folder = tmp_path_factory.mktemp("plan")
    named: dict[str, Any] = {"project": PROJECT, "region": REGION, "project_number": PROJECT_NUMBER}
    return check(folder, **named, checkout=str(planned_checkout))[1]


@pytest.fixture(scope="session")
def full_plan(planned_checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plan with every option away from its default."""
    options: dict[str, Any] = {
        "trainer_image": IMAGE,
        "trainer_accelerator": "cpu",
        "image_builder": "docker",
        "request_publishers": ["group:ml@acme.example"],
        "page_actions": True,
        "dashboard_users": ["group:ml@acme.example"],
        "alert_email": "oncall@acme.example",
        "budget": {"billing_account": "000000-000000-000000", "amount": 500},
        "staging_days": 7,
        "soft_delete_days": 30,
        "labels": {"team": "ml"},
        "webhook": "https://hooks.example/kickoff",
    }
    named: dict[str, Any] = {"project": PROJECT, "region": REGION, "project_number": PROJECT_NUMBER}
    return check(tmp_path_factory.mktemp("plan"), **named, checkout=str(planned_checkout), **options)[1]
