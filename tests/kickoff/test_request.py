"""Messages in every form; bad ones get every fault at once, in words, and never raise anything else."""

import json
import time
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kickoff.errors import Forbidden, InvalidRequest, PermanentError
from kickoff.faults import MAX_FAULTS
from kickoff.policy import check_policy
from kickoff.request import TrainingRequest, build_request, parse_request
from kickoff.runs import CUSTOM

from tests.kickoff.requests_at_hand import POLICY, POOL, RECIPES, SETTINGS, built, pool, recipes_of
from tests.kickoff.spec_cases import expectations, load_cases, payload_of
from tests.kickoff.spoiling import JUNK, UNSENDABLE, spoil

ANY = recipes_of("""
name: any
when: {message: {}}
allow:
  override: [replicas, ps, machine_type, accelerator, args.*, env.MODE, scheduling.timeout, disk, dataset]
  machine_type: [n1-standard-4, n1-standard-8]
  accelerator: [NVIDIA_TESLA_T4]
""")


def faults(payload: object, attributes: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(PermanentError) as caught:
        parse_request(payload, ANY, attributes)
    return [str(fault) for fault in caught.value.faults]


def overrides(payload: dict[str, Any]) -> dict[str, Any]:
    return parse_request({"recipe": "any", **payload}, ANY).overrides


# The short form --------------------------------------------------------------------------------------------------


def test_a_recipe_alone() -> None:
    request = parse_request({"recipe": "digits"}, RECIPES)

    assert (request.kind, request.recipe, request.form, request.overrides) == ("recipe", "digits", "short form", {})
    assert request.digest == build_request(RECIPES.by_name["digits"]).digest
    assert TrainingRequest.model_validate(json.loads(request.model_dump_json())) == request


def test_overrides_are_normalized() -> None:
    nested = {"replicas": 3, "accelerator": {"type": "NVIDIA_TESLA_T4", "count": 2}, "args": {"epochs": 5}}
    flat = {"replica_count": "3", "acceleratorType": "NVIDIA_TESLA_T4", "accelerator.count": "2", "args.epochs": "5"}

    assert overrides(nested) == overrides(flat)
    assert overrides(nested) == {
        "replicas": 3,
        "accelerator.type": "NVIDIA_TESLA_T4",
        "accelerator.count": 2,
        "args.epochs": "5",
    }


@pytest.mark.parametrize("value", ["3.0", " 3", "3 ", "", "three", True, 3.5, None, [3], "٣", "-1", 0, "1" * 10])
def test_what_is_no_count(value: object) -> None:
    assert any(line.startswith("replicas is ") for line in faults({"recipe": "any", "replicas": value}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epochs": 3}, "epochs is not a known key"),
        ({"machinetype": "n1-standard-4"}, "machinetype is not a known key (did you mean machine_type?)"),
        ({"args": ["--epochs=3"]}, "args is ['--epochs=3']; it must be an object, such as {epochs: 3}"),
        ({"args": {"verbose": True}}, 'args.verbose is True; it must be text or a number (write true as "true")'),
        ({"replicas": 2, "replicaCount": 3}, "replicas is given twice"),
        (
            {"scheduling": {"timeout": "soon"}},
            "scheduling.timeout is 'soon'; it must be a whole number and s, m, h or d",
        ),
        ({"scheduling": {"retries": 3}}, "scheduling.retries is not a known key"),
        ({"args": {"data": "gs://{your-gcs-bucket}/x"}}, "args.data still holds the placeholder '{your-gcs-bucket}'"),
        ({"args": {"data": "{secret}"}}, "args.data still holds the placeholder '{secret}'"),
        ({"dataset": "file:///etc/passwd"}, "dataset is 'file:///etc/passwd'; it must be gs://bucket/root/"),
        ({"labels": {"Team": "x"}}, "labels.Team is not a label key"),
        ({"labels": {"kickoff-run": "x"}}, "labels.kickoff-run begins with kickoff-, which is kept"),
        ({"labels": ["a"]}, "labels is ['a']; it must be an object of strings"),
        ({"labels": {f"k{n}": "v" for n in range(62)}}, "labels has 62 labels; at most 61"),
        ({"idempotency_key": 5}, "idempotency_key is 5; it must be a string of at most 256 characters"),
        ({"idempotency_key": "x" * 257}, "at most 256 characters"),
        ({"worker_pool_specs": [POOL]}, "has recipe and worker_pool_specs; exactly one"),
        ({"region": 5}, "region is 5; it must be a string"),
    ],
)
def test_a_faulty_short_form(changes: dict[str, Any], words: str) -> None:
    assert any(words in line for line in faults({"recipe": "any", **changes})), faults({"recipe": "any", **changes})


def test_every_fault_at_once() -> None:
    found = faults({"recipe": "anny", "replicas": "x", "foo": 1, "labels": {"A": "B"}})

    assert len(found) == 5 and "known are any (did you mean any?)" in found[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": "gcr.io/acme-ml/x"}, "image may not be overridden; recipe any allows replicas, ps"),
        ({"env": {"MODUS": "x"}}, "env.MODUS may not be overridden"),
        ({"scheduling": {"strategy": "SPOT"}}, "scheduling.strategy may not be overridden"),
        ({"machine_type": "a2-highgpu-8g"}, "machine_type is 'a2-highgpu-8g'; recipe any allows n1-standard-4"),
        ({"accelerator": {"type": "NVIDIA_TESLA_V100"}}, "accelerator.type is 'NVIDIA_TESLA_V100'; recipe any allows"),
    ],
)
def test_what_the_recipe_does_not_allow(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Forbidden) as caught:
        parse_request({"recipe": "any", **changes}, ANY)
    assert any(words in str(fault) for fault in caught.value.faults)


def test_a_recipe_without_messages_takes_none() -> None:
    recipes = recipes_of("name: nightly\nwhen: {schedule: {cron: 0 3 * * *}}")

    with pytest.raises(Forbidden, match="takes no messages"):
        parse_request({"recipe": "nightly"}, recipes)
    assert build_request(recipes.by_name["nightly"]).recipe == "nightly"


def test_attributes_of_an_empty_message_are_the_request() -> None:
    attributes = {
        "recipe": "any",
        "replicas": "2",
        "args.epochs": "3",
        "labels.team": "vision",
        "idempotency_key": "k1",
        "googclient_schemaencoding": "JSON",
        "content-type": "application/json",
    }
    empties: tuple[object, ...] = (None, "", {})
    for empty in empties:
        request = parse_request(empty, ANY, attributes)
        assert request.form == "attributes" and request.idempotency_key == "k1"
        assert request.overrides == {"replicas": 2, "args.epochs": "3"} and request.labels == {"team": "vision"}


def test_the_key_may_be_an_attribute_of_a_message_with_data() -> None:
    assert parse_request({"recipe": "any"}, ANY, {"idempotency_key": "k"}).idempotency_key == "k"
    assert parse_request({"recipe": "any", "idempotencyKey": "k"}, ANY).idempotency_key == "k"
    assert "in the data" in faults({"recipe": "any", "idempotency_key": "a"}, {"idempotency_key": "b"})[0]


def test_the_recipes_own_dataset_is_the_requests_unless_it_names_another() -> None:
    recipe = "name: d\nwhen: {message: {}}\njob: {dataset: 'gs://{project}-data/x/'}\nallow: {override: [dataset]}"
    recipes = recipes_of(recipe)

    assert build_request(recipes.by_name["d"]).dataset == "gs://acme-ml-data/x/"
    assert parse_request({"recipe": "d"}, recipes).dataset == "gs://acme-ml-data/x/"
    assert parse_request({"recipe": "d", "dataset": "gs://acme-ml-data/y/"}, recipes).dataset == "gs://acme-ml-data/y/"


# Raw forms -------------------------------------------------------------------------------------------------------

CONTAINER = {"imageUri": "gcr.io/acme-ml/x:1"}
CAMEL = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": CONTAINER}


@pytest.mark.parametrize(
    "payload",
    [
        {"worker_pool_specs": [POOL]},
        {"workerPoolSpecs": [CAMEL]},
        [POOL],
        {"job_spec": {"worker_pool_specs": [POOL]}},
        {"jobSpec": {"workerPoolSpecs": [CAMEL]}},
        {"custom_job": {"job_spec": {"worker_pool_specs": [POOL]}}},
        {"customJob": {"jobSpec": {"workerPoolSpecs": [{**CAMEL, "replicaCount": "1"}]}}},
        {"gcloud_config": {"workerPoolSpecs": CAMEL}},
        {"gcloud_config": "workerPoolSpecs:\n- machineSpec: {machineType: n1-standard-4}\n  replicaCount: 1\n"
         "  containerSpec: {imageUri: 'gcr.io/acme-ml/x:1'}"},
        {"worker_pool_spec": "machine-type=n1-standard-4,container-image-uri=gcr.io/acme-ml/x:1"},
        ["machine-type='n1-standard-4',replica-count=1,container-image-uri=\"gcr.io/acme-ml/x:1\""],
        ["gcloud", "beta", "ai", "custom-jobs", "create", "--worker-pool-spec",
         "^;^machine-type=n1-standard-4;container-image-uri=gcr.io/acme-ml/x:1", "--quiet"],
    ],
)  # fmt: skip
def test_one_job_in_all_spellings_is_one_request(payload: object) -> None:
    request = parse_request(payload, ANY)

    assert request.custom_job == {"jobSpec": {"workerPoolSpecs": [CAMEL]}} and request.recipe == CUSTOM
    assert request.digest == parse_request({"worker_pool_specs": [POOL]}, ANY).digest


def test_gcloud_flags_hold_for_every_pool() -> None:
    first, rest = "machine-type=n1-standard-4,container-image-uri=gcr.io/acme-ml/x:1", "machine-type=n1-standard-4"
    payload = ["gcloud", "ai", "custom-jobs", "create", f"--worker-pool-spec={first}", "--worker-pool-spec=",
               f"--worker-pool-spec={rest},replica-count=2,container-image-uri=gcr.io/acme-ml/y",
               "--args=^;^--a=1,2;--b", "--command=python3,t.py", "--labels=team=x,stage=dev", "--region=us-central1",
               "--enable-web-access", "--service-account", "t@acme-ml.iam.gserviceaccount.com"]  # fmt: skip
    request = parse_request(payload, ANY)
    spec = request.custom_job["jobSpec"]

    assert spec["workerPoolSpecs"][1] == {} and spec["workerPoolSpecs"][2]["replicaCount"] == 2
    assert {tuple(pool["containerSpec"]["args"]) for pool in spec["workerPoolSpecs"][::2]} == {("--a=1,2", "--b")}
    assert spec["workerPoolSpecs"][0]["containerSpec"]["command"] == ["python3", "t.py"]
    assert request.labels == {"team": "x", "stage": "dev"} and request.region == "us-central1"
    assert spec["enableWebAccess"] is True and spec["serviceAccount"] == "t@acme-ml.iam.gserviceaccount.com"


def test_mixed_spellings_are_read_and_said() -> None:
    request = parse_request({"worker_pool_specs": [CAMEL]}, ANY)

    assert any("camelCase and snake_case are mixed" in warning for warning in request.warnings)


def test_a_created_job_comes_with_its_parent() -> None:
    job = {"display_name": "x", "job_spec": {"worker_pool_specs": [POOL]}}
    request = parse_request({"parent": "projects/acme-ml/locations/europe-west4", "custom_job": job}, ANY)

    assert (request.project, request.region) == ("acme-ml", "europe-west4")
    assert "must be projects/PROJECT/locations/REGION" in faults({"parent": "acme-ml", "custom_job": job})[0]


def container(**changes: Any) -> dict[str, Any]:
    return {"worker_pool_specs": [pool(container_spec={"image_uri": "gcr.io/acme-ml/x:1", **changes})]}


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"worker_pool_specs": [{}, POOL]}, "worker_pool_specs[0] is empty; pool 0 is the primary replica"),
        ({"worker_pool_specs": [POOL] * 5}, "has 5 pools; at most 4"),
        ({"worker_pool_specs": [pool(replica_count=2)]}, "Replica count for master worker pool"),
        (
            {"worker_pool_specs": [POOL, pool(replica_count=0)]},
            "worker_pool_specs[1].replica_count is 0; it must be at least 1",
        ),
        ({"worker_pool_specs": [POOL, pool(replica_count=-1)]}, "worker_pool_specs[1].replica_count is -1"),
        (
            {"worker_pool_specs": [pool(replica_count=1.5)]},
            "replica_count is 1.5; it must be a whole number of 64 bits",
        ),
        ({"worker_pool_specs": [pool(replica_count=True)]}, "replica_count is True"),
        ({"worker_pool_specs": "gcr.io"}, "worker_pool_specs is 'gcr.io'; it must be a list"),
        (
            {"worker_pool_specs": [pool(env=[])]},
            "env is a field of ContainerSpec and PythonPackageSpec, not of WorkerPoolSpec",
        ),
        (
            {"worker_pool_specs": [pool(disk_spec={"boot_disk_size_gb": 50})]},
            "boot_disk_size_gb is 50; it must be 100 to 64000",
        ),
        ({"worker_pool_specs": [pool(disk_spec={"boot_disk_type": "ssd"})]}, "must be one of pd-ssd, pd-standard"),
        ({"worker_pool_specs": [pool(nfs_mounts=[{"server": "10.0.0.1"}])]}, "nfs_mounts[0].path is missing"),
        (container(image_uri="x"), "it must be an image with its registry"),
        (container(image_uri="gcr.io/acme-ml/../evil/x"), "it must be an image with its registry"),
        (container(image_uri="gcr.io/$PROJECT_ID/x"), "placeholder '$PROJECT_ID'"),
        (container(env=[{"name": "1A", "value": "x"}]), "it must be a C identifier"),
        (container(env=[{"name": "A"}, {"name": "A"}]), "'A', which is set twice"),
        (container(env=[{"name": f"A{n}"} for n in range(101)]), "has 101 variables; at most 100"),
        (container(env=[{"name": "KICKOFF_RUN_ID", "value": "x"}]), "KICKOFF_* is kept for Kickoff's own variables"),
        (container(args="--a"), "args is '--a'; it must be a list of strings"),
        (container(args=["--x=<VALUE>"]), "args[0] still holds the placeholder '<VALUE>'"),
        ({"worker_pool_specs": [POOL], "tensorboard": "tb", "service_account": "x"}, "tensorboard is 'tb'"),
        ({"worker_pool_specs": [POOL], "network": "default"}, "network is 'default'; it must be projects/NUMBER/"),
        ({"worker_pool_specs": [POOL], "service_account_name": "x"}, "did you mean service_account?"),
        ({"worker_pool_specs": [POOL], "base_output_dir": "/tmp/x"}, "is '/tmp/x'; it must be gs://bucket/prefix"),
        ({"worker_pool_specs": [POOL], "display_name": "x" * 129}, "has 129 characters; it must have 1 to 128"),
        ({"worker_pool_specs": [POOL], "scheduling": {"timeout": "0s"}}, "timeout is 0s; it must be at least 1s"),
        (
            {"worker_pool_specs": [POOL], "scheduling": {"timeout": "3600"}},
            "timeout is '3600'; it must be whole seconds",
        ),
        (
            {"worker_pool_specs": [POOL], "scheduling": {"strategy": "FLEX_START"}},
            "is FLEX_START, with accelerator none",
        ),
        ({"worker_pool_specs": [POOL], "encryption_spec": {"kms_key_name": "k"}}, "kms_key_name is 'k'"),
        ({"worker_pool_specs": [POOL], "labels": {"kickoff-nonce": "1"}}, "kept for Kickoff's own labels"),
        (
            {
                "worker_pool_specs": [
                    pool(
                        machine_spec={"machine_type": "cloud-tpu", "accelerator_type": "TPU_V2", "accelerator_count": 8}
                    ),
                    POOL,
                ]
            },
            "a TPU job has one pool with one replica",
        ),
        (
            {
                "worker_pool_specs": [
                    pool(
                        machine_spec={
                            "machine_type": "ct5",
                            "tpu_topology": "2x2",
                            "accelerator_type": 6,
                            "accelerator_count": 1,
                        }
                    )
                ]
            },
            "tpu_topology cannot go with accelerator_type",
        ),
        (
            {"custom_job": {"name": "x", "state": 4, "job_spec": {"worker_pool_specs": [POOL]}}},
            "custom_job.name is set by Vertex AI alone",
        ),
        ({"custom_job": {"job_spec": {"worker_pool_specs": [POOL]}}, "foo": 1}, "foo is not a known key"),
        ({"gcloud_config": "a: ["}, "is not valid YAML"),
        ({"gcloud_config": "#" * 40000}, "has 40000 characters; as text it may have 32768"),
        ({"gcloud_config": 5}, "gcloud_config is 5"),
        ({"worker_pool_spec": [5]}, "worker_pool_spec is [5]; it must be a list of strings"),
        ({"argv": "gcloud ai"}, "argv is 'gcloud ai'; it must be a list of strings"),
        ({"argv": ["gcloud", "run"]}, "it must be gcloud ai custom-jobs create"),
        ({"argv": ["gcloud", "ai", "custom-jobs", "create", "--display-name"]}, "--display-name has no value"),
        (["machine-type=n1-standard-4,image=x"], "worker_pool_spec[0].image is not a known key"),
        ({"worker_pol_specs": []}, "has none of recipe, worker_pool_specs"),
        (
            {"worker_pool_spec": ["machine-type=n1-standard-4,container-image-uri=gcr.io/acme-ml/x"], "args": "--a"},
            "args is '--a'; it must be a list of strings",
        ),
        ({"worker_pool_specs": [POOL, None, pool(replica_count=0)]}, "worker_pool_specs[2].replica_count is 0"),
        (
            {"worker_pool_specs": [{**pool(python_package_spec={"args": [5, "/tmp/x"]}), "container_spec": None}]},
            "python_package_spec.args[0] is 5",
        ),
        ({"gcloud_config": {"workerPoolSpecs": [{}]}}, "gcloud_config.workerPoolSpecs[0] is empty"),
        (
            {"gcloud_config": {"jobSpec": {"workerPoolSpecs": [{}]}}},
            "gcloud_config.jobSpec.workerPoolSpecs[0] is empty",
        ),
        (
            {"worker_pool_specs": [POOL], "labels": {"args": "{x}", "env": "y"}},
            "labels.args still holds the placeholder",
        ),
        (container(args=["a\0b"]), "it must be text without NUL"),
        ({"worker_pool_specs": [POOL], "name": "x"}, "name is set by Vertex AI alone; leave it out"),
        (
            {"worker_pool_specs": [pool(machine_spec={"machine_type": "n1 standard"})]},
            "it must be a machine type such as n1-standard-4",
        ),
        ({"worker_pool_specs": [POOL], "env": []}, "env is a field of ContainerSpec and PythonPackageSpec, not of"),
        ({"worker_pool_specs": [POOL], "scheduling": {"timeout": {"seconds": 1, "nanos": 5}}}, "timeout is"),
        ("recipe", "it must be a JSON object"),
        (5, "it must be a JSON object"),
        ([1], "worker_pool_specs[0] is 1; it must be an object"),
        ({"recipe": "any", "a": float("inf")}, "without NaN and Infinity"),
        ({"recipe": "\ud800"}, "without lone surrogates"),
        ({"recipe": "x" * 300_000}, "at most 262144 are possible"),
    ],
)
def test_what_is_refused(payload: object, words: str) -> None:
    assert any(words in line for line in faults(payload)), faults(payload)


def test_a_shells_own_variables_are_no_placeholders() -> None:
    script = "echo ${HOME} {{x}} && python train.py --n $(nproc)"
    request = parse_request(container(command=["bash", "-c", script]), ANY)

    assert request.custom_job["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["command"][2] == script
    assert faults(container(command=["python", "${SCRIPT}"]))


def test_arguments_arrive_as_they_were_given() -> None:
    args = ["--name", "my data $(id)", "", 'a "quoted" one', '--json={"a": [1]}', "é 漢"]

    assert built(container(args=args)).custom_job["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["args"] == args


# Anything at all -------------------------------------------------------------------------------------------------

_KEYS = st.sampled_from(
    [
        "recipe",
        "worker_pool_specs",
        "job_spec",
        "customJob",
        "gcloud_config",
        "argv",
        "worker_pool_spec",
        "labels",
        "args",
        "idempotency_key",
        "replicas",
        "machine_spec",
        "containerSpec",
        "env",
        "scheduling",
        "timeout",
        "parent",
        "accelerator",
    ]
)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.sampled_from(["any", "gcloud"])
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(max_size=6), inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(_JSON, st.dictionaries(_KEYS, st.text(max_size=9), max_size=3))
def test_any_payload_is_a_request_or_refused_with_faults(payload: object, attributes: dict[str, str]) -> None:
    try:
        request = parse_request(payload, ANY, attributes)
    except PermanentError as error:
        assert error.faults and all(isinstance(error, InvalidRequest | Forbidden) for _ in error.faults)
    else:
        assert request.digest and json.loads(request.model_dump_json())


_REAL = [payload_of(case, expected) for case in load_cases() for expected in expectations(case)]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_real_requests_with_values_spoiled_are_judged_to_the_end(seed: int) -> None:
    random = Random(seed)
    for _ in range(10):
        payload: Any = deepcopy(random.choice(_REAL))
        for _ in range(random.randint(1, 3)):
            payload = spoil(payload, random, [*JUNK, *UNSENDABLE, random.choice(_REAL)])
        try:
            job = built(payload, ANY)
            check_policy(job, None, POLICY, SETTINGS, recipes=RECIPES)
        except PermanentError as error:
            assert error.faults


@pytest.mark.parametrize(
    "payload",
    [
        {"recipe": "any", **{f"k{n}": 1 for n in range(4900)}},
        {"recipe": "any", "args": {f"k{n}": True for n in range(4900)}},
        {"recipe": "any", "labels": {f"K{n}": "V" for n in range(4900)}},
        {"worker_pool_specs": [{f"k{n}": 1 for n in range(4900)}]},
        {"worker_pool_specs": [{"machine_spec": {"accelerator_type": "A"}}] * 1600},
        container(args=[1] * 4900),
        container(env=[{}] * 4900),
        {"worker_pool_spec": [",".join(f"a{n}=b" for n in range(30_000))]},
        ["gcloud", "ai", "custom-jobs", "create", *(f"--x{n}" for n in range(4900))],
        {"gcloud_config": "a: [" + "a," * 16_000 + "]"},
        {"k" * 200_000: 1},
        {"recipe": "any", "args": {"a": "{" + "a" * 200_000 + "}"}},
        {"worker_pool_specs": [{}] * 60_000},
    ],
)
def test_a_hostile_payload_is_refused_soon_and_briefly(payload: object) -> None:
    started = time.monotonic()
    found = faults(payload)

    assert time.monotonic() - started < 20
    assert len(found) <= MAX_FAULTS + 1 and len("\n".join(found)) < 100_000


def test_a_deep_payload_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    assert "nests too deeply" in faults({"recipe": deep})[0]
