"""The CustomJob that is submitted: pools, values, labels, environment, defaults and the rules over all of it."""

import dataclasses
from typing import Any

import pytest
from google.cloud import aiplatform_v1
from google.protobuf import json_format
from kickoff.custom_job import BuiltJob, build_custom_job
from kickoff.errors import InvalidRequest
from kickoff.recipe_models import REDUCTION_SERVER_IMAGE
from kickoff.request import build_request, parse_request
from kickoff.runs import CUSTOM, DatasetRecord
from kickoff.settings import Settings

from tests.kickoff.requests_at_hand import IMAGE, POOL, RECIPES, SETTINGS, built, pool, recipes_of
from trainer.arguments import parse_arguments

DATASET = DatasetRecord(
    uri="gs://acme-ml-data/datasets/digits/",
    digest="d" * 64,
    objects=1797,
    bytes=200_000,
    snapshot="gs://acme-ml-staging/kickoff/snapshots/d.json",
)


def of_recipe(text: str, dataset: DatasetRecord | None = None, settings: Settings = SETTINGS) -> BuiltJob:
    recipe = next(iter(recipes_of(f"name: r\nwhen: {{message: {{}}}}\njob:\n{text}")))
    request = build_request(recipe)
    return build_custom_job(request, recipe=recipe, run_id="r-1", dataset=dataset, settings=settings)


def pools(job: BuiltJob) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = job.custom_job["jobSpec"]["workerPoolSpecs"]
    return found


def faults(call: Any, *args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(InvalidRequest) as caught:
        call(*args, **kwargs)
    return [str(fault) for fault in caught.value.faults]


def test_the_digits_become_three_replicas_that_know_their_run() -> None:
    recipe = RECIPES.by_name["digits"]
    job = build_custom_job(build_request(recipe), recipe=recipe, run_id="digits-ab", dataset=DATASET, settings=SETTINGS)
    env = [
        {"name": "KICKOFF_RUN_ID", "value": "digits-ab"},
        {"name": "KICKOFF_EVENTS_TOPIC", "value": "projects/acme-ml/topics/training-events"},
        {"name": "KICKOFF_RECIPE", "value": "digits"},
    ]
    args = pools(job)[0]["containerSpec"]["args"]

    assert [each["replicaCount"] for each in pools(job)] == [1, 2]
    assert all(
        each["containerSpec"]["imageUri"] == IMAGE and each["containerSpec"]["env"] == env for each in pools(job)
    )
    assert f"--data={DATASET.snapshot}" in args and "--epochs=8" in args and "--strategy=multi-worker" in args
    assert job.custom_job["labels"] == job.labels == {"kickoff-run": "digits-ab", "kickoff-recipe": "digits"}
    assert job.custom_job["displayName"] == "digits-ab"
    assert job.output == "gs://acme-ml-models/digits/digits-ab/"
    spec = job.custom_job["jobSpec"]
    assert spec["baseOutputDirectory"] == {"outputUriPrefix": "gs://acme-ml-models/digits/digits-ab"}
    assert spec["scheduling"] == {"timeout": "1800s", "restartJobOnWorkerRestart": True}
    assert spec["serviceAccount"] == SETTINGS.service_account
    assert job.warnings == ()


@pytest.mark.parametrize("name", [recipe.name for recipe in RECIPES])
def test_vertex_ais_own_parser_takes_what_is_built(name: str) -> None:
    recipe = RECIPES.by_name[name]
    job = build_custom_job(build_request(recipe), recipe=recipe, run_id="x", dataset=DATASET, settings=SETTINGS)
    proto = type(aiplatform_v1.CustomJob.pb()())()
    json_format.ParseDict(job.custom_job, proto)

    assert json_format.MessageToDict(proto)["displayName"] == "x"


@pytest.mark.parametrize("name", [recipe.name for recipe in RECIPES])
def test_our_trainer_takes_the_arguments_of_the_shipped_recipes(name: str) -> None:
    recipe = RECIPES.by_name[name]
    job = build_custom_job(build_request(recipe), recipe=recipe, run_id="x", dataset=DATASET, settings=SETTINGS)
    options = parse_arguments(pools(job)[0]["containerSpec"]["args"], {"AIP_MODEL_DIR": job.output + "model/"})

    assert options.epochs == recipe.job.args["epochs"] and options.batch_size == recipe.job.args["batch-size"]
    assert options.data == DATASET.snapshot and options.image_size == recipe.job.args["image-size"]


# Worker pools ----------------------------------------------------------------------------------------------------


def shape(job: BuiltJob) -> list[int]:
    return [each.get("replicaCount", 0) for each in pools(job)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" replicas: 1", [1]),
        (" replicas: 4", [1, 3]),
        (" ps: 1", [1, 0, 1]),
        (" replicas: 3\n ps: 2", [1, 2, 2]),
        (" evaluators: 1", [1, 0, 0, 1]),
        (" replicas: 2\n evaluators: 1", [1, 1, 0, 1]),
        (" replicas: 2\n ps: 1\n evaluators: 1", [1, 1, 1, 1]),
        (" reduction_servers: 1", [1, 0, 1]),
    ],
)
def test_every_role_has_its_pool(text: str, expected: list[int]) -> None:
    assert shape(of_recipe(text)) == expected
    assert all(each == {} for each, count in zip(pools(of_recipe(text)), expected, strict=True) if not count)


def test_pools_differ_where_their_section_says_so() -> None:
    text = """ replicas: 2
 accelerator: {type: NVIDIA_TESLA_T4, count: 1}
 args: {epochs: 1}
 disk: {type: pd-standard, size_gb: 200}
 ps: {replicas: 2, machine_type: n1-highmem-8, image: gcr.io/acme-ml/ps:1}
 evaluators: {replicas: 1, accelerator: {type: NVIDIA_TESLA_T4, count: 2}}"""
    primary, workers, servers, evaluators = pools(of_recipe(text))

    assert primary["machineSpec"] == workers["machineSpec"]
    assert servers["machineSpec"] == {"machineType": "n1-highmem-8"}
    assert servers["containerSpec"]["imageUri"] == "gcr.io/acme-ml/ps:1" and servers["containerSpec"]["args"] == [
        "--epochs=1"
    ]
    assert evaluators["machineSpec"]["acceleratorCount"] == 2
    assert primary["diskSpec"] == {"bootDiskType": "pd-standard", "bootDiskSizeGb": 200}


def test_a_reduction_server_runs_googles_image_without_our_arguments() -> None:
    job = of_recipe(" replicas: 2\n accelerator: {type: NVIDIA_TESLA_T4}\n args: {a: 1}\n reduction_servers: 2")
    servers = pools(job)[2]

    assert servers["containerSpec"]["imageUri"] == REDUCTION_SERVER_IMAGE and "args" not in servers["containerSpec"]
    assert servers["machineSpec"] == {"machineType": "n1-standard-4"}
    assert job.custom_job["jobSpec"]["scheduling"] == {"restartJobOnWorkerRestart": True}


def test_arguments_keep_their_keys_and_stay_one_element_each() -> None:
    args = ' args: {batch-size: 32, learning_rate: "1e-5", name: "a b $(c)", empty: ""}\n env: {B: 2, A: x}'
    container = pools(of_recipe(args))[0]["containerSpec"]

    assert container["args"] == ["--batch-size=32", "--learning_rate=1e-5", "--name=a b $(c)", "--empty="]
    assert [(item["name"], item["value"]) for item in container["env"]][:2] == [("A", "x"), ("B", "2")]


# Restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "restart"),
    [
        (" replicas: 2", True),
        (" replicas: 1", None),
        (" replicas: 2\n ps: 1", None),
        (" replicas: 2\n scheduling: {restart_on_worker_restart: false}", False),
        (" replicas: 2\n scheduling: {disable_retries: true}", None),
    ],
)
def test_synchronous_jobs_restart_whole_unless_they_say_otherwise(text: str, restart: bool | None) -> None:
    assert of_recipe(text).custom_job["jobSpec"].get("scheduling", {}).get("restartJobOnWorkerRestart") is restart


def test_raw_jobs_restart_whole_too() -> None:
    assert built([POOL, pool(replica_count=2)]).custom_job["jobSpec"]["scheduling"] == {
        "restartJobOnWorkerRestart": True
    }
    assert "scheduling" not in built([POOL]).custom_job["jobSpec"]


# Raw requests ----------------------------------------------------------------------------------------------------


def test_a_raw_job_keeps_what_it_brings() -> None:
    payload = {
        "display_name": "x" * 128,
        "labels": {"team": "vision"},
        "worker_pool_specs": [
            pool(container_spec={"image_uri": "gcr.io/acme-ml/x", "env": [{"name": "A", "value": "1"}]})
        ],
        "service_account": "other@acme-ml.iam.gserviceaccount.com",
        "scheduling": {"timeout": "7200s"},
        "base_output_directory": {"output_uri_prefix": "gs://acme-ml-models/x/"},
    }
    request = parse_request(payload, RECIPES)
    before = request.model_dump_json()
    job = build_custom_job(request, recipe=None, run_id="custom-job-1", dataset=None, settings=SETTINGS)

    assert job.custom_job["displayName"] == "x" * 128 and job.output == "gs://acme-ml-models/x/"
    assert job.labels == {"team": "vision", "kickoff-run": "custom-job-1", "kickoff-recipe": CUSTOM}
    assert [item["name"] for item in pools(job)[0]["containerSpec"]["env"]] == [
        "A",
        "KICKOFF_RUN_ID",
        "KICKOFF_EVENTS_TOPIC",
    ]
    assert job.custom_job["jobSpec"]["serviceAccount"].startswith("other@")
    assert job.custom_job["jobSpec"]["scheduling"] == {"timeout": "7200s"}
    assert request.model_dump_json() == before


def test_what_can_go_wrong_later_is_said() -> None:
    bare = dataclasses.replace(SETTINGS, service_account="", events_topic="")
    job = built([POOL], settings=bare)

    assert [text.partition(":")[0] for text in job.warnings] == [
        "no base output directory",
        "no service account",
        "no timeout",
    ]
    assert [item["name"] for item in pools(job)[0]["containerSpec"]["env"]] == ["KICKOFF_RUN_ID"]


def test_a_raw_job_may_give_each_run_its_own_output() -> None:
    own = built({"worker_pool_specs": [POOL], "base_output_dir": "gs://acme-ml-models/x/{run_id}"})
    shared = built({"worker_pool_specs": [POOL], "base_output_dir": "gs://acme-ml-models/x"})

    assert own.output == "gs://acme-ml-models/x/run-1/" and not any("duplicate" in text for text in own.warnings)
    assert any("writes to gs://acme-ml-models/x, and Kickoff's trainer" in text for text in shared.warnings)
    with pytest.raises(InvalidRequest, match=r"placeholder '\{project\}'"):
        built({"worker_pool_specs": [POOL], "base_output_dir": "gs://{project}-models/{run_id}"})


def test_our_own_variables_count_against_the_limit() -> None:
    env = [{"name": f"A{number}", "value": ""} for number in range(99)]
    payload = [pool(container_spec={"image_uri": "gcr.io/acme-ml/x", "env": env})]

    assert "has 101 variables; at most 100" in faults(built, payload)[0]


def test_uneven_accelerators_are_refused_where_the_strategy_is_known_and_said_elsewhere() -> None:
    gpu = {"machine_type": "n1-standard-4", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1}
    rule = "MultiWorkerMirroredStrategy needs the same number on every machine"

    def specs(*args: str) -> list[dict[str, Any]]:
        return [pool(container_spec={"image_uri": "gcr.io/acme-ml/x", "args": list(args)}), pool(machine_spec=gpu)]

    assert rule in faults(built, specs("--strategy=multi-worker"))[0]
    assert rule in faults(built, specs("--distribute", "multiworker"))[0]
    assert any(rule in text for text in built(specs()).warnings)
    assert not any(rule in text for text in built([POOL, pool(replica_count=3)]).warnings)


# Values ----------------------------------------------------------------------------------------------------------


def test_values_are_filled_everywhere() -> None:
    text = """ image: "{region}-docker.pkg.dev/{project}/r/x"
 args: {data: "{dataset.uri}", snapshot: "{dataset.snapshot}", digest: "{dataset.digest}", run: "{recipe}/{run_id}"}
 labels: {run: "{run_id}"}"""
    job = of_recipe(text, DATASET)
    container = pools(job)[0]["containerSpec"]

    assert container["imageUri"] == "us-central1-docker.pkg.dev/acme-ml/r/x"
    assert container["args"] == [
        f"--data={DATASET.uri}", f"--snapshot={DATASET.snapshot}", f"--digest={'d' * 64}", "--run=r/r-1"
    ]  # fmt: skip
    assert job.labels["run"] == "r-1"


def test_a_value_that_is_not_there_is_a_fault_with_its_reason() -> None:
    found = faults(of_recipe, " args: {data: '{dataset.uri}', digest: '{dataset.digest}'}")
    assert "job.args.data uses {dataset.uri}, and the request has no dataset" in found
    assert "job.args.digest uses {dataset.digest}, and no snapshot of the dataset was taken" in found
    no_image = dataclasses.replace(SETTINGS, trainer_image="")
    assert "job.image uses {trainer_image}, and KICKOFF_TRAINER_IMAGE is not set" in faults(
        of_recipe, " replicas: 1", settings=no_image
    )


def test_without_a_snapshot_the_watched_place_is_named_and_said() -> None:
    recipe = RECIPES.by_name["digits"]
    job = build_custom_job(build_request(recipe), recipe=recipe, run_id="x", dataset=None, settings=SETTINGS)

    assert "--data=gs://acme-ml-data/datasets/digits/" in pools(job)[0]["containerSpec"]["args"]
    assert any("no snapshot of gs://acme-ml-data/datasets/digits/" in text for text in job.warnings)


def test_a_payload_cannot_smuggle_values_in() -> None:
    recipes = recipes_of("name: r\nwhen: {message: {}}\nallow: {override: [args.*]}")
    job = built({"recipe": "r", "args": {"x": "{run_id}"}}, recipes)

    assert pools(job)[0]["containerSpec"]["args"] == ["--x=run-1"]
    with pytest.raises(InvalidRequest, match="placeholder"):
        built({"recipe": "r", "args": {"x": "{service_account}"}}, recipes)


def test_a_project_id_that_cannot_be_is_refused_before_the_call() -> None:
    wrong = dataclasses.replace(SETTINGS, project="My First Project")

    assert any(
        line.startswith("project is 'My First Project'; a project id has")
        for line in faults(built, [POOL], settings=wrong)
    )


def test_an_overridden_output_still_belongs_to_one_run() -> None:
    recipes = recipes_of("name: r\nwhen: {message: {}}\nallow: {override: [output]}")

    assert (
        built({"recipe": "r", "output": "gs://acme-ml-models/y/{run_id}"}, recipes).output
        == "gs://acme-ml-models/y/run-1/"
    )
    with pytest.raises(InvalidRequest, match="must hold"):
        built({"recipe": "r", "output": "gs://acme-ml-models/y"}, recipes)
