"""quickstart.sh as a whole, every command of it by the real gcloud, against a recording server."""

import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from typing import Any

import pytest

from deploy import names
from tests.gcp.calls import PROJECT_NUMBER
from tests.gcp.checkout import ROOT, settings_names
from tests.gcp.conftest import IMAGE, PROJECT, REGION, Deployed, email
from tests.gcp.warm_gcloud import available

pytestmark = [
    pytest.mark.timeout(700),
    pytest.mark.gcloud,
    pytest.mark.skipif(not available(), reason="gcloud is not installed: quickstart.sh was not run"),
]


def test_the_buckets_are_private_and_in_the_region(deployed: Deployed) -> None:
    buckets = {call.body["name"]: call.body for call in deployed.made("storage", "b$")}
    assert set(buckets) == {f"{PROJECT}-{suffix}" for suffix in names.BUCKETS}
    for bucket in buckets.values():
        assert bucket["location"].lower() == REGION
        config = bucket["iamConfiguration"]
        assert config["uniformBucketLevelAccess"] == {"enabled": True}
        assert config["publicAccessPrevention"] == "enforced"


def test_uploads_are_announced_on_their_topic(deployed: Deployed) -> None:
    (call,) = deployed.made("storage", "b/.*/notificationConfigs")
    assert call.path == f"b/{PROJECT}-data/notificationConfigs"
    topic = f"projects/{PROJECT}/topics/{names.UPLOADS}"
    assert call.body == {"topic": topic, "event_types": ["OBJECT_FINALIZE"], "payload_format": "JSON_API_V1"}


def test_the_topics_are_the_local_stacks(deployed: Deployed) -> None:
    made = {call.path.rpartition("/")[2] for call in deployed.made("pubsub", r".*/topics/[^/:]*$")}
    assert made == set(names.TOPICS)


def test_every_push_is_signed_retried_and_ends_in_a_dead_letter(deployed: Deployed) -> None:
    made = {call.path.rpartition("/")[2]: call.body for call in deployed.made("pubsub", r".*/subscriptions/[^/:]*$")}
    push = {f"{topic}-push" for topic in names.SUBSCRIPTIONS}
    assert set(made) == push | {names.pull(names.FINISHED), *map(names.dead_letter, names.DEAD_LETTERED)}
    ends = made[names.pull(names.FINISHED)]
    assert "pushConfig" not in ends and ends["expirationPolicy"] == {}
    assert ends["deadLetterPolicy"]["deadLetterTopic"].endswith(f"/{names.dead_letter(names.FINISHED)}")
    for topic, function in names.SUBSCRIPTIONS.items():
        body = made[f"{topic}-push"]
        url = f"https://{REGION}-{PROJECT}.cloudfunctions.net/kickoff-{function.replace('_', '-')}"
        token = {"serviceAccountEmail": email("push"), "audience": url}
        assert body["pushConfig"] == {"pushEndpoint": url, "oidcToken": token}
        assert body["retryPolicy"] == {"minimumBackoff": "10s", "maximumBackoff": "600s"}
        dead = f"projects/{PROJECT}/topics/{names.dead_letter(topic)}"
        assert body["deadLetterPolicy"] == {"deadLetterTopic": dead, "maxDeliveryAttempts": 10}
        assert (body["ackDeadlineSeconds"], body["messageRetentionDuration"]) == (600, "604800s")
    assert made["dataset-uploads-push"]["filter"] == 'attributes.eventType = "OBJECT_FINALIZE"'


def test_the_functions_are_private_and_have_their_own_accounts(deployed: Deployed) -> None:
    made = {call.query["functionId"]: call.body for call in deployed.made("cloudfunctions", r".*/functions$")}
    assert set(made) == {f"kickoff-{name.replace('_', '-')}" for name in names.FUNCTIONS}
    for name, body in made.items():
        short = name.removeprefix("kickoff-")
        assert body["buildConfig"]["entryPoint"] == short.replace("-", "_")
        assert body["buildConfig"]["serviceAccount"].endswith(email("build"))
        assert body["serviceConfig"]["serviceAccountEmail"] == email(short)
        assert body["serviceConfig"]["timeoutSeconds"] < 600
        assert body["serviceConfig"]["maxInstanceCount"] <= 10
    assert not re.search("allUsers|allAuthenticatedUsers", json.dumps(deployed.recorder.policies))


def test_the_functions_get_settings_that_they_know(deployed: Deployed) -> None:
    known = settings_names()
    for call in deployed.made("cloudfunctions", r".*/functions$"):
        environ = call.body["serviceConfig"]["environmentVariables"]
        assert set(environ) <= known
        assert environ["KICKOFF_TRAINER_IMAGE"] == IMAGE
        assert environ["KICKOFF_LEDGER"] == f"firestore://{PROJECT}/kickoff"
        assert environ["KICKOFF_SERVICE_ACCOUNT"] == email("run")


def test_only_the_source_is_uploaded(deployed: Deployed) -> None:
    (source, *_) = [call.body for call in deployed.first if call.api == "upload" and call.path == "source.zip"]
    files = set(zipfile.ZipFile(io.BytesIO(source)).namelist())
    assert {"main.py", "requirements.txt", "kickoff/ledger/firestore.indexes.json", "recipes/digits.yaml"} <= files
    assert not [name for name in files if "__pycache__" in name]


def test_only_the_trainer_is_built_into_the_image(deployed: Deployed) -> None:
    (upload,) = [call.body for call in deployed.first if call.api == "upload" and call.method == "POST"]
    with tarfile.open(fileobj=io.BytesIO(upload)) as archive:
        files = {member.name.removeprefix("./") for member in archive if member.isfile()}
    assert {"Dockerfile", "trainer/task.py", "trainer/requirements.txt"} <= files
    assert not [name for name in files if not name.startswith(("Dockerfile", "trainer/")) or name.endswith(".pyc")]
    (build,) = deployed.made("cloudbuild", r".*/builds$")
    assert build.body["serviceAccount"].endswith(email("build"))
    assert build.body["substitutions"]["_ACCELERATOR"] == "gpu"  # recipes ask for V100s
    assert build.body["options"]["logging"] == "CLOUD_LOGGING_ONLY"


def test_the_database_has_the_declared_indexes(deployed: Deployed) -> None:
    declared = json.loads((ROOT / "functions/kickoff/ledger/firestore.indexes.json").read_text())
    (database,) = deployed.made("firestore", r".*/databases$")
    assert (database.query["databaseId"], database.body["type"]) == ("kickoff", "FIRESTORE_NATIVE")
    made = [call.body["fields"] for call in deployed.made("firestore", r".*/indexes$")]
    assert made == [index["fields"] for index in declared["indexes"]]
    fields = deployed.made("firestore", r".*/fields/")
    exempt = {tuple(call.path.split("/")[-3::2]) for call in fields if "indexConfig" in call.query["updateMask"]}
    unindexed = [each for each in declared["fieldOverrides"] if not each["indexes"]]
    assert exempt == {(each["collectionGroup"], each["fieldPath"]) for each in unindexed}
    (expiring,) = (call for call in fields if "ttlConfig" in call.query["updateMask"])
    assert expiring.path.endswith("/collectionGroups/epochs/fields/expires") and expiring.body["ttlConfig"] == {}


def test_the_services_lines_reach_their_topic(deployed: Deployed) -> None:
    (sink,) = deployed.made("logging", r".*/sinks$")
    assert sink.body["destination"] == f"pubsub.googleapis.com/projects/{PROJECT}/topics/{names.LOGS}"
    assert sink.body["filter"] == 'resource.type="ml_job" AND resource.labels.task_name="service"'


def test_the_sweep_and_the_schedules_call_with_their_own_account(deployed: Deployed) -> None:
    jobs = {call.body["name"].rpartition("/")[2]: call.body for call in deployed.made("cloudscheduler", r".*/jobs$")}
    assert {"kickoff-sweep", "kickoff-nightly", "kickoff-monthly"} <= set(jobs)
    assert jobs["kickoff-sweep"]["schedule"] == "* * * * *"
    nightly = jobs["kickoff-nightly"]
    assert (nightly["schedule"], nightly["timeZone"]) == ("0 3 * * 1", "Europe/Berlin")
    for job in jobs.values():
        target = job["httpTarget"]
        assert target["oidcToken"] == {"serviceAccountEmail": email("scheduler"), "audience": target["uri"]}
    paused = [call.path for call in deployed.made("cloudscheduler", r".*:pause")]
    assert [path.rpartition("/")[2] for path in paused] == ["kickoff-monthly:pause"]


def members(policy: Any) -> set[tuple[str, str, str]]:
    return {
        (role["role"], member, role.get("condition", {}).get("expression", ""))
        for role in policy["bindings"]
        for member in role["members"]
    }


def test_the_project_grants_little_and_the_ledger_by_condition(deployed: Deployed) -> None:
    granted = members(deployed.recorder.policies[f"cloudresourcemanager:projects/{PROJECT}"])
    ledger = f'resource.name == "projects/{PROJECT}/databases/kickoff"'
    sources = f'resource.name.startsWith("projects/_/buckets/gcf-v2-sources-{PROJECT_NUMBER}-{REGION}")'
    three = ("start-training", "record-completion", "sweep")
    readers = ("record-completion", "sweep", "dashboard")
    assert granted == {
        *((f"projects/{PROJECT}/roles/kickoffJobs", f"serviceAccount:{email(name)}", "") for name in three),
        *(("roles/datastore.user", f"serviceAccount:{email(name)}", ledger) for name in three),
        ("roles/datastore.viewer", f"serviceAccount:{email('dashboard')}", ledger),
        *((f"projects/{PROJECT}/roles/kickoffLogs", f"serviceAccount:{email(name)}", "") for name in readers),
        ("roles/logging.logWriter", f"serviceAccount:{email('build')}", ""),
        ("roles/storage.objectViewer", f"serviceAccount:{email('build')}", sources),
    }


def test_a_second_run_makes_nothing_anew(deployed: Deployed) -> None:
    """It brings functions and schedules up to date, deletes the schedule that is gone, and repeats grants."""
    changing = [call for call in deployed.second if call.method != "GET" and "IamPolicy" not in call.path]
    kinds = {f"{call.method} {call.api}" for call in changing if not call.path.endswith("/iam")}
    assert kinds == {
        "POST serviceusage",  # services enable
        "PATCH artifactregistry",  # the clean-up policy
        "POST cloudfunctions",  # generateUploadUrl
        "PUT upload",
        "PATCH cloudfunctions",
        "PATCH cloudscheduler",
        "DELETE cloudscheduler",
    }
    (gone,) = [call.path for call in changing if call.method == "DELETE"]
    assert gone.endswith("/jobs/kickoff-monthly")


def test_a_second_run_grants_nothing_new(deployed: Deployed) -> None:
    for resource, policy in deployed.recorder.policies.items():
        bindings = [(b["role"], json.dumps(b.get("condition", {}))) for b in policy.get("bindings", [])]
        assert len(bindings) == len(set(bindings)), resource
        for binding in policy.get("bindings", []):
            assert len(binding["members"]) == len(set(binding["members"])), resource


def test_the_script_is_clean_shell() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    scripts = sorted(map(str, (ROOT / "deploy" / "gcp").glob("*.sh")))
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
