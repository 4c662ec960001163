"""Both roads to the cloud make the same things under the same names, and let the same members do the same."""

import re
from typing import Any

import pytest

from tests.gcp.calls import PROJECT_NUMBER
from tests.gcp.conftest import PROJECT, REGION, Deployed
from tests.gcp.terraform import resources, tool
from tests.gcp.warm_gcloud import available

pytestmark = [
    pytest.mark.gcloud,
    pytest.mark.timeout(700),
    pytest.mark.skipif(not available(), reason="gcloud is not installed: the two roads were not compared"),
    pytest.mark.skipif(not tool(), reason="terraform-check is not here: the two roads were not compared"),
]
NAMES = {
    "google_storage_bucket": ("storage", r"b$", "name"),
    "google_pubsub_topic": ("pubsub", r"v1/projects/[^/]+/topics/[^/:]+$", "name"),
    "google_pubsub_subscription": ("pubsub", r"v1/projects/[^/]+/subscriptions/[^/:]+$", "name"),
    "google_cloudfunctions2_function": ("cloudfunctions", r".*/functions$", "name"),
    "google_cloud_scheduler_job": ("cloudscheduler", r".*/jobs$", "name"),
    "google_service_account": ("iam", r".*/serviceAccounts$", "accountId"),
    "google_project_iam_custom_role": ("iam", r".*/roles$", "roleId"),
    "google_logging_project_sink": ("logging", r".*/sinks$", "name"),
}
TERRAFORM_NAMES = {"google_service_account": "account_id", "google_project_iam_custom_role": "role_id"}


@pytest.mark.parametrize("kind", NAMES)
def test_the_names_are_the_same(kind: str, deployed: Deployed, plan: dict[str, Any]) -> None:
    api, path, key = NAMES[kind]
    by_script = {str(call.body[key]).rpartition("/")[2] for call in deployed.made(api, path)}
    by_terraform = {each[TERRAFORM_NAMES.get(kind, "name")] for each in resources(plan, kind).values()}
    assert by_script == by_terraform


def test_the_grants_are_the_same(deployed: Deployed, plan: dict[str, Any]) -> None:
    by_terraform = {
        (each["kind"], each["on"], each["member"], each["role"], each["condition"])
        for each in plan["planned_values"]["outputs"]["grants"]["value"].values()
    }
    assert set(granted(deployed)) == by_terraform


PLACES = {
    rf"cloudresourcemanager:projects/{PROJECT}$": "project",
    rf"storage:b/{PROJECT}-(\w+)$": "bucket",
    rf"pubsub:projects/{PROJECT}/topics/([\w-]+)$": "topic",
    rf"pubsub:projects/{PROJECT}/subscriptions/([\w-]+)$": "subscription",
    r"iam:projects/[^/]+/serviceAccounts/kickoff-([\w-]+)@": "account",
    rf"run:projects/{PROJECT}/locations/{REGION}/services/kickoff-([\w-]+)$": "function",
    r"artifactregistry:.*/repositories/([\w-]+)$": "repository",
}


def granted(deployed: Deployed) -> list[tuple[str, str, str, str, str]]:
    """(kind, on, member, role, condition) of every binding that the script left behind."""
    found = []
    for resource, policy in deployed.recorder.policies.items():
        kind, on = next((k, (m.groups() or ("",))[0]) for p, k in PLACES.items() if (m := re.match(p, resource)))
        for binding in policy.get("bindings", []):
            condition = binding.get("condition", {}).get("expression", "")
            found += [(kind, on, member, binding["role"], condition) for member in binding["members"]]
    return found


def test_the_buckets_lose_the_same(deployed: Deployed, plan: dict[str, Any]) -> None:
    """Lifecycle rules and days of soft delete: what the one road forgets or keeps, the other does."""
    by_script = {}
    for call in deployed.made("storage", "b$"):
        rules = [
            (rule["action"]["type"], rule["condition"]["age"], tuple(rule["condition"].get("matchesPrefix", ())))
            for rule in call.body["lifecycle"]["rule"]
        ]
        by_script[call.body["name"]] = (int(call.body["softDeletePolicy"]["retentionDurationSeconds"]), rules)
    by_terraform = {}
    for each in resources(plan, "google_storage_bucket").values():
        rules = [
            (rule["action"][0]["type"], condition["age"], tuple(condition["matches_prefix"] or ()))
            for rule in each["lifecycle_rule"]
            for condition in rule["condition"]
        ]
        by_terraform[each["name"]] = (each["soft_delete_policy"][0]["retention_duration_seconds"], rules)
    assert by_script == by_terraform


def test_the_functions_are_deployed_alike(deployed: Deployed, plan: dict[str, Any]) -> None:
    planned = {each["name"]: each for each in resources(plan, "google_cloudfunctions2_function").values()}
    for call in deployed.made("cloudfunctions", r".*/functions$"):
        service, build = call.body["serviceConfig"], call.body["buildConfig"]
        (there,), (made,) = (
            planned[call.query["functionId"]]["service_config"],
            planned[call.query["functionId"]]["build_config"],
        )
        assert {
            "timeout_seconds": service["timeoutSeconds"],
            "available_memory": service["availableMemory"],
            "available_cpu": service["availableCpu"],
            "max_instance_count": service["maxInstanceCount"],
            "max_instance_request_concurrency": service["maxInstanceRequestConcurrency"],
            "service_account_email": service["serviceAccountEmail"],
        }.items() <= there.items()
        assert (build["runtime"], build["entryPoint"]) == (made["runtime"], made["entry_point"])
        assert (build["serviceAccount"], build["dockerRepository"]) == (
            made["service_account"],
            made["docker_repository"],
        )


def test_the_apis_are_the_same(deployed: Deployed, plan: dict[str, Any]) -> None:
    """Less the budget's, which the script does not make."""
    (call, *_) = deployed.made("serviceusage", r".*:batchEnable$")
    planned = {each["service"] for each in resources(plan, "google_project_service").values()}
    assert set(call.body["serviceIds"]) == planned - {"billingbudgets.googleapis.com"}


def test_the_project_number_is_the_plans(plan: dict[str, Any]) -> None:
    assert plan["variables"]["project_number"]["value"] == PROJECT_NUMBER
