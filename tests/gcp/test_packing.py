"""The functions' source as Cloud Functions gets it: packed, unpacked into an empty environment that has what
functions/requirements.txt names and nothing else, and driven by functions-framework in the whole local stack."""

import os
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from kickoff.clients import Clients
from kickoff.runs import State
from kickoff.settings import Settings

from deploy.follow import follow, wait_for_run
from deploy.gcp.pack import FUNCTIONS, pack, source_files
from deploy.local.stack import PROJECT, Stack

PYTHONS = os.environ.get("KICKOFF_PYTHONS", sys.executable).split(":")
"""Each of them in turn; the functions are deployed on 3.12."""


def test_packing_is_repeatable_and_whole(tmp_path: Path) -> None:
    pack(tmp_path / "a.zip")
    pack(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    packed = zipfile.ZipFile(tmp_path / "a.zip").namelist()
    assert {"main.py", "requirements.txt", "policy.yaml", "recipes/digits.yaml", "kickoff/settings.py"} <= set(packed)
    assert packed == [path.relative_to(FUNCTIONS).as_posix() for path in source_files(FUNCTIONS)]
    assert not [name for name in packed if name.endswith(".pyc") or name.startswith(("tests", "trainer", "deploy"))]


def test_a_folder_without_main_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no main\.py"):
        pack(tmp_path / "a.zip", tmp_path)
    assert not (tmp_path / "a.zip").exists()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source, unpacked where nothing else of the checkout is."""
    folder = tmp_path_factory.mktemp("source")
    pack(folder / "functions.zip")
    zipfile.ZipFile(folder / "functions.zip").extractall(folder / "workspace")
    return folder / "workspace"


@pytest.fixture(scope="module", params=PYTHONS)
def python(request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has the functions' requirements alone."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([request.param, "-m", "venv", str(folder)], check=True, timeout=120)
    program = str(folder / "bin" / "python")
    argv = [program, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*argv, "-r", str(source / "requirements.txt")], check=True, timeout=400)
    return program


RECIPE = """
name: packed
when:
  upload:
    bucket: "{project}-data"
    root: datasets/packed/
    match: "**/*.png"
    complete: {marker: _SUCCESS}
job:
  image: "{trainer_image}"  # its entry point is replaced: the job only leaves a model
  command: [sh, -c, 'mkdir -p "$0" && echo 1 >"$0/saved_model.pb"', "/gcs/{project}-models/packed/{run_id}/model"]
  machine_type: n1-standard-4
  scheduling: {timeout: 10m}
  output: "gs://{project}-models/packed/{run_id}"
"""


@pytest.fixture
def stack(python: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """Everything that `kickoff local` starts, its four functions from the packed source in the empty environment."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "packed.yaml").write_text(RECIPE)
    with Stack(
        tmp_path / "state", recipes=tmp_path / "recipes", source=source, python=python, sweep_seconds=1
    ) as running:
        yield running


@pytest.mark.timeout(900)
def test_the_packed_source_carries_an_upload_to_its_record_and_page(stack: Stack) -> None:
    clients = Clients(Settings.from_environ(stack.environ))
    for name in ("a/1.png", "b/2.png", "_SUCCESS", "_SUCCESS"):  # the marker twice: two events, one run
        upload(stack, f"datasets/packed/{name}")
    run = wait_for_run(clients.ledger, "packed", 60, stack.check)
    for _ in follow(clients.ledger, run.run_id, 120, stack.check):
        pass
    (ended,) = clients.ledger.find_runs()
    assert ended.state is State.SUCCEEDED and not ended.model_missing, ended.faults
    jobs = clients.vertex.find_by_run(ended.project, ended.region, ended.run_id)
    assert [job.name for job in jobs] == [ended.job.name if ended.job else ""]
    with urllib.request.urlopen(f"{stack.urls['dashboard']}/runs/{ended.run_id}", timeout=30) as answer:
        page = answer.read().decode()
    assert "SUCCEEDED" in page and ended.model_uri in page


def upload(stack: Stack, name: str) -> None:
    client = storage.Client(
        project=PROJECT, credentials=AnonymousCredentials(), client_options={"api_endpoint": stack.urls["storage"]}
    )
    client.bucket(f"{PROJECT}-data").blob(name).upload_from_string(b"x")


def test_the_requirements_hold_nothing_of_the_trainer_or_the_tools() -> None:
    names = {line.partition("==")[0].lower() for line in (FUNCTIONS / "requirements.txt").read_text().splitlines()}
    assert not names & {"tensorflow", "tf-keras", "keras", "pillow", "typer", "rich", "grpcio", "scikit-learn"}
