"""`kickoff deploy` and `kickoff destroy`: Terraform on deploy/gcp, with its state in a bucket of the project.

Deploying again changes only what changed: function source and trainer image are named by the hash of their content,
and Terraform compares the rest. Runs in flight go on, since jobs are Vertex AI's and records are Firestore's.
"""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kickoff.errors import KickoffError

from deploy.deployment import Deployment
from deploy.doctor import Finding, diagnose
from deploy.gcloud import Gcloud, GcloudFailed, InstalledGcloud, require

MODULE = Path(__file__).resolve().parent / "gcp"
KEPT = {"data": "google_storage_bucket.data", "models": "google_storage_bucket.models"}
"""Buckets that `destroy` leaves alone unless told, by their addresses in the module."""

Say = Callable[[str], None]
Confirm = Callable[[str], bool]
Preflight = Callable[[Deployment, Gcloud], Sequence[Finding]]


class TerraformFailed(KickoffError):
    """Terraform ended with an error; its own words are on the terminal."""


@dataclass(frozen=True)
class Terraform:
    """The installed `terraform`, in the module's folder."""

    deployment: Deployment
    module: Path = MODULE

    def __call__(self, *arguments: str) -> None:
        """Run it with its output on the terminal. Raises TerraformFailed."""
        if subprocess.run(self._argv(arguments), env=self._environ()).returncode:
            raise TerraformFailed(f"terraform {arguments[0]} failed; what it says is above")

    def read(self, *arguments: str) -> str:
        """What it prints; empty where it fails."""
        done = subprocess.run(self._argv(arguments), env=self._environ(), capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""

    def _argv(self, arguments: Sequence[str]) -> list[str]:
        program = require("terraform", "https://developer.hashicorp.com/terraform/install")
        return [program, f"-chdir={self.module}", *arguments]

    def _environ(self) -> dict[str, str]:
        """The variables as TF_VAR_*, so that every command has the same ones."""
        given = {"project": self.deployment.project, "region": self.deployment.region, **self.deployment.variables}
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
        found = {f"TF_VAR_{name}": text for name, text in texts.items() if given[name] is not None}
        return {**os.environ, "TF_IN_AUTOMATION": "1", "TF_INPUT": "0", **found}


def deploy(
    deployment: Deployment, *, say: Say, confirm: Confirm, preflight: Preflight = diagnose, gcloud: Gcloud | None = None
) -> list[Finding]:
    """Bring the project to what the checkout says. Returns the preflight's findings; errors among them stop it."""
    gcloud = gcloud or InstalledGcloud(deployment.project)
    findings = list(preflight(deployment, gcloud))
    for finding in findings:
        say(render_finding(finding))
    if any(finding.level == "error" for finding in findings):
        return findings
    terraform = Terraform(with_number(deployment, gcloud))
    make_state_bucket(deployment, gcloud)
    prepare(terraform)
    for address, name in to_adopt(terraform.read("state", "list"), existing_buckets(deployment, gcloud)).items():
        say(f"{name} is there already; it is taken over as it is")
        terraform("import", "-input=false", address, name)
    terraform("plan", "-input=false", "-out=kickoff.plan")
    try:
        if confirm(f"Apply this plan to {deployment.project}?"):
            terraform("apply", "-input=false", "kickoff.plan")
    finally:
        (terraform.module / "kickoff.plan").unlink(missing_ok=True)
    return findings


def destroy(
    deployment: Deployment, *, say: Say, confirm: Confirm, data_too: bool = False, gcloud: Gcloud | None = None
) -> bool:
    """Take everything away; data and models stay unless `data_too`. Whether it was confirmed."""
    gcloud = gcloud or InstalledGcloud(deployment.project)
    terraform = Terraform(with_number(deployment, gcloud))
    prepare(terraform)
    for line in what_goes(deployment, data_too):
        say(line)
    if not confirm(f"Destroy Kickoff in {deployment.project}?"):
        return False
    known = terraform.read("state", "list").split()
    for suffix, address in KEPT.items():
        if address not in known:
            continue
        if data_too:
            gcloud("storage", "rm", "--recursive", f"gs://{deployment.project}-{suffix}")
        else:
            terraform("state", "rm", address)
    terraform("destroy", "-input=false", "-auto-approve")
    gcloud("storage", "rm", "--recursive", f"gs://{deployment.state_bucket}")
    return True


def render_finding(finding: Finding) -> str:
    return f"{finding.level}: {finding.subject}: {finding.message}" + (f"\n    {finding.fix}" if finding.fix else "")


def with_number(deployment: Deployment, gcloud: Gcloud) -> Deployment:
    """With the project's number, so that the plan knows every member beforehand."""
    number = str(gcloud("projects", "describe", deployment.project)["projectNumber"])
    return Deployment(deployment.project, deployment.region, {"project_number": number, **deployment.variables})


def make_state_bucket(deployment: Deployment, gcloud: Gcloud) -> None:
    """Versioned and private: the state names every resource and holds the webhook's address."""
    bucket = f"gs://{deployment.state_bucket}"
    try:
        gcloud("storage", "buckets", "describe", bucket)
    except GcloudFailed:
        private = ("--uniform-bucket-level-access", "--public-access-prevention")
        gcloud("storage", "buckets", "create", bucket, f"--location={deployment.region}", *private)
        gcloud("storage", "buckets", "update", bucket, "--versioning")


def prepare(terraform: Terraform) -> None:
    terraform("init", "-input=false", "-reconfigure", f"-backend-config=bucket={terraform.deployment.state_bucket}")


def existing_buckets(deployment: Deployment, gcloud: Gcloud) -> list[str]:
    """Suffixes of the kept buckets that are there, from a deployment before this one or made by hand."""
    found = []
    for suffix in KEPT:
        try:
            gcloud("storage", "buckets", "describe", f"gs://{deployment.project}-{suffix}")
            found.append(f"{deployment.project}-{suffix}")
        except GcloudFailed:
            continue
    return found


def to_adopt(state: str, buckets: Sequence[str]) -> dict[str, str]:
    """Address: name, of buckets that are there and that the state does not know. Pure."""
    known = set(state.split())
    by_suffix = {address: name for suffix, address in KEPT.items() for name in buckets if name.endswith(f"-{suffix}")}
    return {address: name for address, name in by_suffix.items() if address not in known}


def what_goes(deployment: Deployment, data_too: bool) -> list[str]:
    kept = " and ".join(f"gs://{deployment.project}-{suffix}" for suffix in KEPT)
    return [
        "Goes: functions, topics and what is in them, schedules, accounts, images, dataset snapshots, run records.",
        f"Goes for good, too: {kept}." if data_too else f"Stays: {kept}.",
        "Stays: what Google made itself (service agents, enabled APIs, the gcf-v2-* buckets of Cloud Functions).",
        "Training jobs that run now run on; `kickoff cancel` ends them first.",
    ]
