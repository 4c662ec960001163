"""The two ways the trainer travels: as an image and as a source distribution."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_source_distribution_runs_where_nothing_else_of_this_tree_is(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "trainer", source, ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools import build_meta; print(build_meta.build_sdist('dist'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True, timeout=60)
    (archive,) = (source / "dist").iterdir()
    with tarfile.open(archive) as tar:
        names = {Path(name).name for name in tar.getnames()}
    assert {path.name for path in (ROOT / "trainer").glob("*.py")} <= names
    assert "requirements.txt" in names
    # --no-deps: what they are is in requirements.txt; this machine has them.
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    installed = tmp_path / "installed"
    subprocess.run([*install, "--target", installed, archive], check=True, capture_output=True, timeout=120)
    answer = subprocess.run(
        [sys.executable, "-P", "-m", "trainer.task", "--epochs=0"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 2
    assert "trainer: --data is missing" in answer.stderr


def test_the_image_holds_the_trainer_alone_pinned_and_without_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copies = [line for line in lines if line.startswith(("COPY", "ADD"))]
    assert copies == ["COPY trainer/requirements.txt trainer/", "COPY trainer/ trainer/"]
    (base,) = [line for line in lines if line.startswith("FROM")]
    assert base.partition(":")[2].count(".") == 2, "the base is pinned to a patch version"
    user = next(index for index, line in enumerate(lines) if line.startswith("USER"))
    assert lines[user] == "USER 1000" and lines[-1].startswith("ENTRYPOINT") and user > lines.index(copies[-1])
    pins = (ROOT / "trainer" / "requirements.txt").read_text().splitlines()
    assert all("==" in pin for pin in pins if pin and not pin.startswith("#"))
