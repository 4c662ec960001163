"""A deployment to ask things of: settings, the shipped recipes and policy."""

import json
from pathlib import Path
from typing import Any

from kickoff.custom_job import BuiltJob, build_custom_job
from kickoff.policy import load_policy
from kickoff.recipes import Recipes, load_recipes
from kickoff.request import parse_request
from kickoff.settings import Settings
from kickoff.templates import TemplateValues

ROOT = Path(__file__).parents[2]
IMAGE = "us-central1-docker.pkg.dev/acme-ml/kickoff/trainer:latest"
SETTINGS = Settings.from_environ(
    {
        "KICKOFF_PROJECT": "acme-ml",
        "KICKOFF_TRAINER_IMAGE": IMAGE,
        "KICKOFF_EVENTS_TOPIC": "projects/acme-ml/topics/training-events",
        "KICKOFF_SERVICE_ACCOUNT": "trainer@acme-ml.iam.gserviceaccount.com",
    }
)
VALUES = TemplateValues.from_settings(SETTINGS)
RECIPE_FILES = {path.name: path.read_text() for path in sorted((ROOT / "functions" / "recipes").glob("*.yaml"))}
RECIPES = load_recipes(RECIPE_FILES, VALUES)
POLICY_TEXT = (ROOT / "functions" / "policy.yaml").read_text()
POLICY = load_policy(POLICY_TEXT, SETTINGS)

POOL: dict[str, Any] = {
    "machine_spec": {"machine_type": "n1-standard-4"},
    "replica_count": 1,
    "container_spec": {"image_uri": "gcr.io/acme-ml/x:1"},
}


def recipes_of(*texts: str) -> Recipes:
    return load_recipes({f"r{number}.yaml": text for number, text in enumerate(texts)}, VALUES)


def built(payload: object, recipes: Recipes = RECIPES, settings: Settings = SETTINGS) -> BuiltJob:
    """The job that a message with this payload becomes."""
    request = parse_request(payload, recipes)
    recipe = recipes.get(request.recipe)
    return build_custom_job(request, recipe=recipe, run_id="run-1", dataset=None, settings=settings)


def pool(**changes: Any) -> dict[str, Any]:
    """A valid worker pool spec, changed and unshared."""
    copy: dict[str, Any] = json.loads(json.dumps(POOL))
    return {**copy, **changes}
