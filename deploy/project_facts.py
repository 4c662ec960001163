"""What gcloud says of a project, for the preflight: one call a fact, and a refused one is kept with gcloud's words."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from deploy.gcloud import Gcloud, GcloudFailed
from deploy.names import BUCKETS
from deploy.recipe_needs import Need, Recipe


@dataclass
class Facts:
    """What gcloud says of the project. None: it could not be asked, and `failures` says why."""

    project: str
    region: str
    number: str = ""
    account: str = ""
    billing: bool | None = None
    apis: set[str] | None = None
    bindings: list[dict[str, Any]] | None = None
    buckets: dict[str, str] = field(default_factory=dict)
    """Name: location, of the buckets that exist."""
    databases: list[dict[str, Any]] | None = None
    quotas: list[dict[str, Any]] | None = None
    machine_types: set[str] | None = None
    accelerators: set[str] | None = None
    image: str = ""
    image_found: bool | None = None
    failures: dict[str, str] = field(default_factory=dict)


def gather(gcloud: Gcloud, project: str, region: str, recipes: Iterable[Recipe], image: str = "") -> Facts:
    """Ask gcloud for everything that the checks need. Never raises for what gcloud refuses to say."""
    facts = Facts(project, region, image=image)

    def ask(what: str, *arguments: str) -> Any:
        try:
            return gcloud(*arguments)
        except GcloudFailed as error:
            facts.failures[what] = str(error)
            return None

    if found := ask("project", "projects", "describe", project):
        facts.number = str(found["projectNumber"])
    else:
        return facts  # nothing else can be answered
    facts.account = ask("account", "config", "get-value", "account") or ""
    if (found := ask("billing", "billing", "projects", "describe", project)) is not None:
        facts.billing = bool(found.get("billingEnabled"))
    if (found := ask("APIs", "services", "list", "--enabled")) is not None:
        facts.apis = {each["config"]["name"].partition(".")[0] for each in found}
    if (found := ask("IAM policy", "projects", "get-iam-policy", project)) is not None:
        facts.bindings = found.get("bindings", [])
    _gather_places(facts, ask)
    _gather_machines(facts, ask, [need for recipe in recipes for need in recipe.needs])
    return facts


def _gather_places(facts: Facts, ask: Callable[..., Any]) -> None:
    for suffix in BUCKETS:
        name = f"{facts.project}-{suffix}"
        if found := ask(f"bucket {name}", "storage", "buckets", "describe", f"gs://{name}"):
            facts.buckets[name] = str(found["location"]).lower()
        elif "404" in facts.failures[f"bucket {name}"]:
            del facts.failures[f"bucket {name}"]  # not made yet
    if facts.apis and "firestore" in facts.apis:
        facts.databases = ask("Firestore", "firestore", "databases", "list")
    if facts.image:
        what = "trainer image"
        if ask(what, "artifacts", "docker", "images", "describe", facts.image):
            facts.image_found = True
        elif re.search("not.found", facts.failures.get(what, ""), re.IGNORECASE):
            del facts.failures[what]
            facts.image_found = False


def _gather_machines(facts: Facts, ask: Callable[..., Any], needs: list[Need]) -> None:
    if not needs:
        return
    service = "--service=aiplatform.googleapis.com"
    facts.quotas = ask("quotas", "beta", "quotas", "info", "list", service, "--filter=metric~custom_model_training")
    if not facts.apis or "compute" not in facts.apis:
        return
    zones = f"zone~/{facts.region}-"
    names = " ".join(sorted({need.machine_type for need in needs}))
    found = ask("machine types", "compute", "machine-types", "list", f"--filter=name=({names}) AND {zones}")
    if found is not None:
        facts.machine_types = {each["name"] for each in found}
    if any(need.accelerator for need in needs):
        found = ask("accelerators", "compute", "accelerator-types", "list", f"--filter={zones}")
        if found is not None:
            facts.accelerators = {each["name"] for each in found}
