"""`kickoff check|explain|publish|replay`: ways to ask before, after, and for real."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from kickoff.errors import InvalidRequest

from deploy.console import console
from deploy.names import REQUESTS, dead_letter
from deploy.target import connect, offline_settings

File = Annotated[Path, typer.Argument(help="A recipe (YAML) or a message (JSON or YAML).", exists=True, dir_okay=False)]


def register(app: typer.Typer) -> None:
    for command in (check, explain, publish, replay):
        app.command()(command)


def check(
    files: Annotated[
        list[Path], typer.Argument(help="Recipes (YAML) or messages (JSON, YAML).", exists=True, dir_okay=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="The CustomJob and every fault as JSON.")] = False,
) -> None:
    """The job that a recipe or message would start, its worst-case price, and every fault. Needs no deployment."""
    from kickoff.check import check as check_text
    from kickoff.clients import Clients

    clients = Clients(offline_settings())
    reports = [
        check_text(
            read(path),
            path.name,
            recipes=clients.recipes,
            policy=clients.policy,
            settings=clients.settings,
        )
        for path in files
    ]
    for report in reports:
        print(json.dumps(report.as_json(), indent=2) if as_json else f"{report.table()}\n")
    if not all(report.ok for report in reports):
        sys.exit(1)


def explain(subject: Annotated[str, typer.Argument(help="gs://BUCKET/NAME, or a message's file.")]) -> None:
    """Which recipe an object or message matches, which condition is unmet, which run it became."""
    from deploy.explain import explain_message, explain_upload

    clients = connect().clients
    if re.fullmatch(r"gs://[^/]+/.+", subject):
        sentences = explain_upload(subject, clients)
    elif Path(subject).is_file():
        sentences = explain_message(read(Path(subject)), clients)
    else:
        raise InvalidRequest(f"{subject!r} is neither an object, gs://BUCKET/NAME, nor a file")
    for sentence in sentences:
        console.print(sentence, markup=False)


def publish(
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Also when `check` finds faults.")] = False,
) -> None:
    """Send a training request, after checking it."""
    from kickoff.bus import Bus
    from kickoff.check import check as check_text

    target = connect()
    text = read(file)
    report = check_text(
        text,
        file.name,
        recipes=target.clients.recipes,
        policy=target.clients.policy,
        settings=target.settings,
    )
    if not report.ok and not force:
        raise InvalidRequest(report.table())
    data = text if _is_json(text) else json.dumps(_load_yaml(text, file.name))
    topic = f"projects/{target.settings.project}/topics/{REQUESTS}"
    message_id = Bus().publish(topic, data.encode(), {})
    console.print(f"published as message {message_id} on {topic}; `kickoff runs` shows what became of it")


def replay(
    topic: Annotated[str, typer.Argument(help="The topic whose dead letters are sent again.")] = REQUESTS,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
) -> None:
    """Send what was dead-lettered again, after a fix."""
    from deploy.replay import replay_dead_letters

    project = connect().settings.project
    count = replay_dead_letters(project, dead_letter(topic), topic, limit=limit)
    console.print(f"{count} dead letters were sent again on {topic}")


def read(path: Path) -> str:
    """A file's text. Raises InvalidRequest where it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise InvalidRequest(f"{path} cannot be read as UTF-8 text: {error}") from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _load_yaml(text: str, name: str) -> object:
    from kickoff.yaml_strict import load_yaml

    return load_yaml(text, name).value
