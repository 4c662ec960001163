"""`kickoff doctor|deploy|destroy`: Google Cloud as a deployment target."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from kickoff.errors import ConfigurationError

from deploy.console import console

Project = Annotated[str, typer.Option("--project", help="The Google Cloud project id.")]
Region = Annotated[str, typer.Option("--region", help="Where everything is made.")]
Variables = Annotated[
    Path | None,
    typer.Option("--variables", help="JSON file with the module's variables (deploy/gcp/variables.tf).", exists=True),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    for command in (doctor, deploy, destroy):
        app.command()(command)


def doctor(project: Project, region: Region = "us-central1", variables: Variables = None) -> None:
    """What stands in the way of a deployment, each finding with the command that mends it."""
    from deploy.deploy import render_finding
    from deploy.deployment import Deployment
    from deploy.doctor import diagnose
    from deploy.gcloud import InstalledGcloud

    findings = diagnose(Deployment(project, region, read(variables)), InstalledGcloud(project))
    for finding in findings:
        console.print(render_finding(finding), markup=False)
    if any(finding.level == "error" for finding in findings):
        sys.exit(1)
    console.print("nothing stands in the way" if not findings else "nothing that stops a deployment")


def deploy(project: Project, region: Region = "us-central1", variables: Variables = None, yes: Yes = False) -> None:
    """Bring a project to what this checkout says: checks, plan, question, apply. Again: only what changed."""
    from deploy.deploy import deploy as apply
    from deploy.deployment import Deployment

    findings = apply(Deployment(project, region, read(variables)), say=say, confirm=lambda text: yes or ask(text))
    if any(finding.level == "error" for finding in findings):
        sys.exit(1)


def destroy(
    project: Project,
    region: Region = "us-central1",
    variables: Variables = None,
    data_too: Annotated[bool, typer.Option("--data-too", help="Datasets and models as well.")] = False,
    yes: Yes = False,
) -> None:
    """Take everything away again; datasets and models stay unless told otherwise."""
    from deploy.deploy import destroy as take_away
    from deploy.deployment import Deployment

    done = take_away(
        Deployment(project, region, read(variables)), say=say, confirm=lambda text: yes or ask(text), data_too=data_too
    )
    if not done:
        sys.exit(1)


def read(path: Path | None) -> dict[str, Any]:
    """The module's variables. Raises ConfigurationError."""
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigurationError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} must hold one JSON object, variable names to values")
    return found


def ask(text: str) -> bool:
    """False where nobody can answer."""
    return sys.stdin.isatty() and typer.confirm(text)


def say(line: str) -> None:
    console.print(line, markup=False)
