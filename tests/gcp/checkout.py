"""A copy of what deployment reads, so that tests can add recipes to it without touching the checkout."""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NIGHTLY = """
name: nightly
when:
  schedule: {cron: "0 3 * * 1", timezone: Europe/Berlin}
job:
  image: "{trainer_image}"
  machine_type: n1-standard-4
  args: {data: "gs://{project}-data/datasets/digits/"}
  scheduling: {timeout: 1h}
  output: "gs://{project}-models/nightly/{run_id}"
"""


def copy_checkout(target: Path) -> Path:
    """`target` with what quickstart.sh and Terraform read, and two scheduled recipes, one of them paused."""
    ignore = shutil.ignore_patterns("__pycache__", ".terraform*", "*.tfstate*")
    for name in ("deploy/gcp", "functions", "trainer"):
        shutil.copytree(ROOT / name, target / name, ignore=ignore)
    shutil.copy(ROOT / "Dockerfile", target / "Dockerfile")
    recipes = target / "functions" / "recipes"
    (recipes / "nightly.yaml").write_text(NIGHTLY)
    paused = NIGHTLY.replace("name: nightly", "name: monthly\npaused: true").replace("0 3 * * 1", "0 3 1 * *")
    (recipes / "monthly.yaml").write_text(paused.replace("/nightly/", "/monthly/"))
    return target


def settings_names() -> set[str]:
    """Every environment variable that the functions' settings know, from the module that reads them."""
    return set(re.findall(r'"(KICKOFF_[A-Z_]+)"', (ROOT / "functions" / "kickoff" / "settings.py").read_text()))
