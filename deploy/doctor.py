"""`kickoff doctor`: what stands in the way of a deployment, each finding with the command that mends it.

`find_problems` is pure; project_facts.py asks gcloud.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deploy.deployment import Deployment
from deploy.gcloud import Gcloud
from deploy.project_facts import Facts, gather
from deploy.recipe_needs import Need, Recipe, read_recipes

APIS = (
    *("aiplatform", "artifactregistry", "cloudbuild", "cloudfunctions", "cloudresourcemanager", "cloudscheduler"),
    *("firestore", "iam", "logging", "monitoring", "pubsub", "run", "storage"),
)
AGENTS = {
    "gcp-sa-aiplatform": ("aiplatform", "roles/aiplatform.serviceAgent"),
    "gcp-sa-pubsub": ("pubsub", "roles/pubsub.serviceAgent"),
    "gcp-sa-cloudscheduler": ("cloudscheduler", "roles/cloudscheduler.serviceAgent"),
    "gcf-admin-robot": ("cloudfunctions", "roles/cloudfunctions.serviceAgent"),
    "serverless-robot-prod": ("run", "roles/run.serviceAgent"),
}
"""Google's own accounts in the project: the API that makes each, and the role it is given then."""

DEPLOYER_ROLES = (
    *("roles/artifactregistry.admin", "roles/cloudbuild.builds.editor", "roles/cloudfunctions.developer"),
    *("roles/cloudscheduler.admin", "roles/datastore.owner", "roles/iam.roleAdmin", "roles/iam.serviceAccountAdmin"),
    *("roles/iam.serviceAccountUser", "roles/logging.configWriter", "roles/monitoring.editor", "roles/pubsub.admin"),
    *("roles/resourcemanager.projectIamAdmin", "roles/run.admin", "roles/serviceusage.serviceUsageAdmin"),
    "roles/storage.admin",
)
"""What makes everything that is deployed, for people who are not owners of the project."""


@dataclass(frozen=True, order=True)
class Finding:
    """`error`: the deployment, or a job, would fail. `warning`: it may, or it could not be looked at."""

    level: Literal["error", "warning"]
    subject: str
    message: str
    fix: str = ""
    """The command that mends it."""


def diagnose(deployment: Deployment, gcloud: Gcloud) -> list[Finding]:
    """Everything that stands in the way of a deployment, errors first."""
    recipes = read_recipes(deployment.settings)
    facts = gather(gcloud, deployment.project, deployment.region, recipes, deployment.trainer_image)
    return find_problems(facts, recipes)


def find_problems(facts: Facts, recipes: Iterable[Recipe]) -> list[Finding]:
    """Every problem, errors first. Pure."""
    listed = list(recipes)
    found = [_unanswered(facts.project, what, why) for what, why in facts.failures.items()]
    for check in (_project, _apis, _deployer, _agents, _buckets, _database, _image):
        found += check(facts)
    for recipe in listed:
        found += recipe_problems(recipe, facts)
    return sorted(set(found))


def _unanswered(project: str, what: str, why: str) -> Finding:
    level: Literal["error", "warning"] = "error" if what == "project" else "warning"
    if re.search(r"credential|log ?in|\bauth|\b401\b", why, re.IGNORECASE):
        fix = "gcloud auth login"
    elif what == "project":
        fix = "gcloud projects list"
    else:
        fix = f"gcloud projects get-iam-policy {project}"
    return Finding(level, what, f"could not be looked at: {why.splitlines()[0] if why else 'no answer'}", fix)


def _project(facts: Facts) -> Iterator[Finding]:
    if facts.billing is False:
        fix = f"gcloud billing projects link {facts.project} --billing-account=ACCOUNT"
        yield Finding("error", "billing", f"project {facts.project} has no billing account", fix)


def _apis(facts: Facts) -> Iterator[Finding]:
    if facts.apis is None:
        return
    missing = [f"{api}.googleapis.com" for api in APIS if api not in facts.apis]
    if missing:
        fix = f"gcloud services enable {' '.join(missing)} --project={facts.project}"
        yield Finding("warning", "APIs", f"not enabled yet: {', '.join(missing)}; deploying enables them", fix)
    if "compute" not in facts.apis:
        fix = f"gcloud services enable compute.googleapis.com --project={facts.project}"
        yield Finding("warning", "APIs", "compute is off, so the region's machines could not be looked up", fix)


def _deployer(facts: Facts) -> Iterator[Finding]:
    if facts.bindings is None or not facts.account:
        return
    names = {f"user:{facts.account}", f"serviceAccount:{facts.account}"}
    roles = {each["role"] for each in facts.bindings if names & set(each["members"])}
    missing = [] if "roles/owner" in roles else [role for role in DEPLOYER_ROLES if role not in roles]
    if missing:
        kind = "serviceAccount" if facts.account.endswith(".gserviceaccount.com") else "user"
        grant = f"gcloud projects add-iam-policy-binding {facts.project} --member={kind}:{facts.account}"
        fix = f"for role in {' '.join(missing)}; do {grant} --role=$role; done"
        message = f"{facts.account} has itself none of {', '.join(missing)} (a group may have them)"
        yield Finding("warning", "permissions", message, fix)


def _agents(facts: Facts) -> Iterator[Finding]:
    if facts.bindings is None or facts.apis is None:
        return
    for agent, (api, role) in AGENTS.items():
        member = f"serviceAccount:service-{facts.number}@{agent}.iam.gserviceaccount.com"
        has = any(each["role"] == role and member in each["members"] for each in facts.bindings)
        if api in facts.apis and not has:
            fix = f"gcloud projects add-iam-policy-binding {facts.project} --member={member} --role={role}"
            yield Finding(
                "warning", "service agents", f"{member} lacks {role}, which Google gives it at first use", fix
            )


def _buckets(facts: Facts) -> Iterator[Finding]:
    for name, location in facts.buckets.items():
        if location != facts.region:
            message = f"gs://{name} is in {location} and jobs run in {facts.region}: reading costs time and egress"
            yield Finding(
                "warning", "buckets", message, f"gcloud storage buckets relocate gs://{name} --location={facts.region}"
            )


def _database(facts: Facts) -> Iterator[Finding]:
    for each in facts.databases or []:
        if not each["name"].endswith("/databases/kickoff"):
            continue
        if each.get("type") != "FIRESTORE_NATIVE":
            message = (
                f"the database kickoff is in {each.get('type')}; run records need FIRESTORE_NATIVE. "
                "Firestore changes the type of an empty database; one that holds data must be moved or deleted by you"
            )
            update = "gcloud firestore databases update --database=kickoff --type=firestore-native"
            fix = f"{update} --project={facts.project}"
            yield Finding("error", "Firestore", message, fix)


def _image(facts: Facts) -> Iterator[Finding]:
    if facts.image and facts.image_found is False:
        fix = f"deploy/gcp/trainer_image.sh {facts.project} {facts.region}"
        yield Finding("error", "trainer image", f"{facts.image} is not in the registry", fix)


def recipe_problems(recipe: Recipe, facts: Facts) -> Iterator[Finding]:
    """Faults of the file, what it watches, and whether region and quota have its machines."""
    subject = f"recipe {recipe.name}"
    for fault in recipe.faults:
        yield Finding("error", subject, fault, f"edit {recipe.file}")
    if recipe.bucket and recipe.bucket != f"{facts.project}-data":
        fix = f"edit {recipe.file}, or add a notification: see docs/security.md"
        yield Finding(
            "error", subject, f"watches {recipe.bucket}; only {facts.project}-data announces its uploads", fix
        )
    if recipe.scheduled and recipe.name == "sweep":
        message = "has a schedule, and its Scheduler job kickoff-sweep would be the sweep's own"
        yield Finding("error", subject, message, f"rename it in {recipe.file}")
    for need in recipe.needs:
        yield from _machine_problems(need, subject, recipe.file, facts)
    yield from _quota_problems(recipe, facts)


def _machine_problems(need: Need, subject: str, file: str, facts: Facts) -> Iterator[Finding]:
    kind = need.accelerator.lower().replace("_", "-")
    for name, offered in ((need.machine_type, facts.machine_types), (kind, facts.accelerators)):
        if name and offered is not None and name not in offered:
            message = f"{name} is offered in no zone of {facts.region}, so Vertex AI can hardly have it there"
            yield Finding("warning", subject, message, f"edit {file}, or deploy to another region")


def _quota_problems(recipe: Recipe, facts: Facts) -> Iterator[Finding]:
    if facts.quotas is None:
        return
    for metric, wanted in recipe.quota().items():
        quota = next((each for each in facts.quotas if each.get("metric", "").endswith(f"/{metric}")), None)
        limit = _limit(quota, facts.region) if quota else None
        if quota is None or limit is None:
            fix = f"gcloud beta quotas info list --service=aiplatform.googleapis.com --project={facts.project}"
            yield Finding(
                "warning", f"recipe {recipe.name}", f"the quota {metric} is not listed for {facts.region}", fix
            )
        elif limit < wanted:
            command = (
                f"gcloud beta quotas preferences create --service=aiplatform.googleapis.com --project={facts.project}"
            )
            fix = (
                f"{command} --quota-id={quota['quotaId']} --preferred-value={wanted} --dimensions=region={facts.region}"
            )
            message = f"needs {wanted} of {metric} for {recipe.at_once} run(s) at once, and {facts.region} has {limit}"
            yield Finding("error", f"recipe {recipe.name}", message, fix)


def _limit(quota: Mapping[str, Any], region: str) -> int | None:
    """The smallest value that holds in the region; None: it is not listed there."""
    values = [
        int(each["details"].get("value", 0))
        for each in quota.get("dimensionsInfos", [])
        if each.get("dimensions", {}).get("region", region) == region
        and region in each.get("applicableLocations", [region])
    ]
    return min(values, default=None)
