"""The Terraform module, validated and planned against the provider's schema; its plan's JSON is what is asserted."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy import names
from tests.gcp.calls import PROJECT_NUMBER
from tests.gcp.checkout import ROOT, settings_names
from tests.gcp.conftest import IMAGE, PROJECT, REGION, email
from tests.gcp.terraform import check, resources, tool

pytestmark = [
    pytest.mark.timeout(700),
    pytest.mark.skipif(not tool(), reason="terraform or terraform-check is not here: the module was not planned"),
]
Plan = dict[str, Any]


def test_every_push_is_signed_retried_and_ends_in_a_dead_letter(plan: Plan) -> None:
    pushes = {
        each["name"]: each for each in resources(plan, "google_pubsub_subscription").values() if each["push_config"]
    }
    assert set(pushes) == {f"{topic}-push" for topic in names.SUBSCRIPTIONS}
    for topic, function in names.SUBSCRIPTIONS.items():
        push = pushes[f"{topic}-push"]
        (config,), (retry,), (dead,) = push["push_config"], push["retry_policy"], push["dead_letter_policy"]
        assert config["push_endpoint"].endswith(f"/kickoff-{function.replace('_', '-')}")
        (token,) = config["oidc_token"]
        assert (token["service_account_email"], token["audience"]) == (email("push"), config["push_endpoint"])
        assert (retry["minimum_backoff"], retry["maximum_backoff"]) == ("10s", "600s")
        assert dead["dead_letter_topic"] == f"projects/{PROJECT}/topics/{names.dead_letter(topic)}"
        assert dead["max_delivery_attempts"] == 10
        assert push["expiration_policy"] == [{"ttl": ""}]
        assert (push["ack_deadline_seconds"], push["message_retention_duration"]) == (600, "604800s")


def test_what_is_dead_lettered_is_kept(plan: Plan) -> None:
    pulls = [each for each in resources(plan, "google_pubsub_subscription").values() if not each["push_config"]]
    assert {each["topic"] for each in pulls} == {names.FINISHED, *map(names.dead_letter, names.DEAD_LETTERED)}
    agent = f"serviceAccount:service-{PROJECT_NUMBER}@gcp-sa-pubsub.iam.gserviceaccount.com"
    may_publish = resources(plan, "google_pubsub_topic_iam_member").values()
    may_forward = resources(plan, "google_pubsub_subscription_iam_member").values()
    for topic in names.SUBSCRIPTIONS:
        assert [e["role"] for e in may_publish if (e["topic"], e["member"]) == (names.dead_letter(topic), agent)]
        assert [e["role"] for e in may_forward if (e["subscription"], e["member"]) == (f"{topic}-push", agent)]


def test_the_ends_of_runs_wait_for_a_consumer(plan: Plan) -> None:
    found = {each["name"]: each for each in resources(plan, "google_pubsub_subscription").values()}
    ends = found[names.pull(names.FINISHED)]
    assert (ends["topic"], ends["push_config"], ends["expiration_policy"]) == (names.FINISHED, [], [{"ttl": ""}])
    assert ends["message_retention_duration"] == "604800s"
    (dead,) = ends["dead_letter_policy"]
    assert dead["dead_letter_topic"] == f"projects/{PROJECT}/topics/{names.dead_letter(names.FINISHED)}"
    grants = plan["planned_values"]["outputs"]["grants"]["value"].values()
    forwards = [g for g in grants if g["on"] in (names.pull(names.FINISHED), names.dead_letter(names.FINISHED))]
    assert {(g["kind"], g["role"]) for g in forwards} == {
        ("subscription", "roles/pubsub.subscriber"),
        ("topic", "roles/pubsub.publisher"),
    }


def test_nothing_is_public_or_primitive(full_plan: Plan) -> None:
    """Also with every option: no allUsers, no owner, editor or viewer, no default account, one actAs."""
    members = [
        values
        for kind in {each["type"] for each in full_plan["planned_values"]["root_module"]["resources"]}
        if kind.endswith("_iam_member")
        for values in resources(full_plan, kind).values()
    ]
    assert len(members) > 40
    for each in members:
        assert not each["member"].startswith("all")
        assert each["role"] not in ("roles/owner", "roles/editor", "roles/viewer")
        assert not re.search(r"-compute@developer|@appspot|@cloudbuild\.gserviceaccount", each["member"])
        assert not re.search(r"admin$", each["role"], re.IGNORECASE)
    act_as = [each for each in members if each["role"] == "roles/iam.serviceAccountUser"]
    assert {each["service_account_id"].rpartition("/")[2] for each in act_as} == {email("run")}
    for bucket in resources(full_plan, "google_storage_bucket").values():
        assert bucket["public_access_prevention"] == "enforced" and bucket["uniform_bucket_level_access"]


def test_every_grant_says_why_and_none_is_made_beside_the_table(plan: Plan) -> None:
    grants = plan["planned_values"]["outputs"]["grants"]["value"]
    assert all(grant["why"] for grant in grants.values())
    made = [
        (values["member"], values["role"])
        for kind in {each["type"] for each in plan["planned_values"]["root_module"]["resources"]}
        if kind.endswith(("_iam_member", "_iam_binding", "_iam_policy"))
        for values in resources(plan, kind).values()
    ]
    assert sorted(made) == sorted((grant["member"], grant["role"]) for grant in grants.values())


def test_functions_run_as_their_own_accounts_within_bounds(plan: Plan) -> None:
    functions = {each["name"]: each for each in resources(plan, "google_cloudfunctions2_function").values()}
    assert set(functions) == {f"kickoff-{name.replace('_', '-')}" for name in names.FUNCTIONS}
    for name, function in functions.items():
        (service,), (build,) = function["service_config"], function["build_config"]
        assert service["service_account_email"] == email(name.removeprefix("kickoff-"))
        assert build["service_account"].endswith(email("build"))
        assert build["entry_point"] in names.FUNCTIONS
        assert service["timeout_seconds"] < 600
        assert 0 < service["max_instance_count"] <= 10
        assert set(service["environment_variables"] or {}) <= settings_names()


def test_the_settings_are_those_the_functions_know(full_plan: Plan) -> None:
    for function in resources(full_plan, "google_cloudfunctions2_function").values():
        environ = function["service_config"][0]["environment_variables"]
        assert set(environ) <= settings_names()
        assert environ["KICKOFF_TRAINER_IMAGE"] == IMAGE
        assert environ["KICKOFF_WEBHOOK"] == "https://hooks.example/kickoff"


def test_the_dashboard_only_reads_unless_told(plan: Plan, full_plan: Plan) -> None:
    def roles(planned: Plan) -> set[str]:
        grants = planned["planned_values"]["outputs"]["grants"]["value"].values()
        return {grant["role"].rpartition("/")[2] for grant in grants if grant["who"] == "dashboard"}

    assert roles(plan) == {"datastore.viewer", "kickoffLogs"}
    assert roles(full_plan) >= {"datastore.user", "kickoffJobs", "iam.serviceAccountUser"}
    function = resources(full_plan, "google_cloudfunctions2_function")['this["dashboard"]']
    assert function["service_config"][0]["environment_variables"]["KICKOFF_PAGE_ACTIONS"] == "allow"


def test_a_changed_source_is_another_object(plan: Plan, full_plan: Plan) -> None:
    """And the same source is the same one: deploying again changes nothing."""
    names_ = {
        function["build_config"][0]["source"][0]["storage_source"][0]["object"]
        for each in (plan, full_plan)
        for function in resources(each, "google_cloudfunctions2_function").values()
    }
    assert len(names_) == 1
    assert re.fullmatch(r"functions/[0-9a-f]{16}\.zip", names_.pop())


def test_the_database_has_the_declared_indexes(plan: Plan) -> None:
    declared = json.loads((ROOT / "functions/kickoff/ledger/firestore.indexes.json").read_text())
    (database,) = resources(plan, "google_firestore_database").values()
    assert (database["name"], database["type"], database["location_id"]) == ("kickoff", "FIRESTORE_NATIVE", REGION)

    def plain(fields: list[dict[str, Any]], path: str) -> tuple[tuple[str, str], ...]:
        return tuple((field[path], field["order"]) for field in fields)

    made = {
        (e["collection"], plain(e["fields"], "field_path")) for e in resources(plan, "google_firestore_index").values()
    }
    assert made == {(e["collectionGroup"], plain(e["fields"], "fieldPath")) for e in declared["indexes"]}
    fields = resources(plan, "google_firestore_field").values()
    exempt = {(e["collection"], e["field"]) for e in fields if e["index_config"]}
    assert exempt == {(e["collectionGroup"], e["fieldPath"]) for e in declared["fieldOverrides"] if not e["indexes"]}
    expiring = {e["collection"] for e in resources(plan, "google_firestore_field").values() if e.get("ttl_config")}
    assert expiring == {"epochs"}, "curves may go; records, keys and slots never do"


def test_schedules_come_from_the_recipes(plan: Plan) -> None:
    jobs = {each["name"]: each for each in resources(plan, "google_cloud_scheduler_job").values()}
    assert {"kickoff-sweep", "kickoff-nightly", "kickoff-monthly"} <= set(jobs)
    nightly, monthly = jobs["kickoff-nightly"], jobs["kickoff-monthly"]
    assert (nightly["schedule"], nightly["time_zone"], nightly["paused"]) == ("0 3 * * 1", "Europe/Berlin", False)
    assert monthly["paused"] is True
    for job in jobs.values():
        (target,) = job["http_target"]
        assert target["oidc_token"] == [{"service_account_email": email("scheduler"), "audience": target["uri"]}]


def test_data_and_models_outlive_what_is_destroyed(plan: Plan) -> None:
    buckets = {each["name"]: each for each in resources(plan, "google_storage_bucket").values()}
    assert set(buckets) == {f"{PROJECT}-{suffix}" for suffix in names.BUCKETS}
    assert [buckets[f"{PROJECT}-{suffix}"]["force_destroy"] for suffix in names.BUCKETS] == [False, False, True]


def test_alerts_cover_what_needs_a_person(full_plan: Plan) -> None:
    policies = resources(full_plan, "google_monitoring_alert_policy")
    assert set(policies) == {
        'this["dead-letters"]',
        'this["backlog"]',
        'this["failed-runs"]',
        'this["oldest-queued"]',
        "sweep",
    }
    assert all(each["documentation"][0]["content"] for each in policies.values())
    (budget,) = resources(full_plan, "google_billing_budget").values()
    assert budget["amount"][0]["specified_amount"][0]["units"] == "500"
    (board,) = resources(full_plan, "google_monitoring_dashboard").values()
    assert len(json.loads(board["dashboard_json"])["gridLayout"]["widgets"]) == 4


def test_who_may_ask_for_training_is_said(full_plan: Plan) -> None:
    publishers = [
        each["member"]
        for each in resources(full_plan, "google_pubsub_topic_iam_member").values()
        if each["topic"] == names.REQUESTS
    ]
    assert publishers == ["group:ml@acme.example"]


def test_dangerous_options_are_refused_all_at_once(planned_checkout: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "trainer_image": "gcr.io/acme/trainer:latest",
        "dashboard_users": ["allUsers"],
        "project": "X",
    }
    with pytest.raises(subprocess.CalledProcessError) as failed:
        check(tmp_path, project_number=PROJECT_NUMBER, checkout=str(planned_checkout), **options)
    said = re.sub(r"\s+", " ", failed.value.stderr)
    for words in ("must end in @sha256", "must not hold allUsers", "must be a project id"):
        assert words in said


def test_the_module_stands_alone(tmp_path: Path) -> None:
    """Copied out of its checkout, with nothing but a project: it plans, and warns that the functions are not there."""
    output, planned = check(tmp_path, project=PROJECT)
    assert "There is no functions/main.py" in output
    assert resources(planned, "google_cloudfunctions2_function")


def test_the_image_tag_is_the_scripts(plan: Plan, planned_checkout: Path, tmp_path: Path) -> None:
    """HCL and trainer_image.sh name the image by the same hash, so that Terraform finds what the script built."""
    (image,) = [
        change["change"]["after"]["image_name"]
        for change in plan["resource_changes"]
        if change["type"] == "google_artifact_registry_docker_image"
    ]
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\necho sha256:0\n')
    gcloud.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/local/bin:/usr/bin:/bin"}
    argv = [str(planned_checkout / "deploy" / "gcp" / "trainer_image.sh"), PROJECT, REGION]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("/kickoff/trainer@sha256:0\n"), done.stderr
    assert f"/kickoff/{image} " in (tmp_path / "asked").read_text()
