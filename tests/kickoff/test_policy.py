"""Policy: allow-lists, caps, the worst-case price, and the loop guard for raw requests."""

import dataclasses
from typing import Any

import pytest
from kickoff.errors import ConfigurationError, Forbidden
from kickoff.policy import Policy, check_policy, load_policy, worst_case_cost
from kickoff.recipes import Recipes, load_recipes
from kickoff.request import parse_request
from kickoff.settings import Settings
from kickoff.templates import TemplateValues

from tests.kickoff.requests_at_hand import (
    POLICY,
    POLICY_TEXT,
    POOL,
    RECIPE_FILES,
    RECIPES,
    SETTINGS,
    built,
    pool,
    recipes_of,
)

OPEN = load_policy("unknown_price: allow", SETTINGS)


def refusals(
    payload: object, policy: Policy = OPEN, recipes: Recipes = RECIPES, settings: Settings = SETTINGS
) -> list[str]:
    request = parse_request(payload, recipes)
    job = built(payload, recipes, settings)
    try:
        check_policy(job, recipes.get(request.recipe), policy, settings, request=request, recipes=recipes)
    except Forbidden as error:
        return [str(fault) for fault in error.faults]
    return []


def job(**spec: Any) -> dict[str, Any]:
    return {
        "worker_pool_specs": [POOL],
        "base_output_dir": "gs://acme-ml-models/x",
        "scheduling": {"timeout": "3600s"},
        **spec,
    }


def image(name: str) -> dict[str, Any]:
    return job(worker_pool_specs=[pool(container_spec={"image_uri": name})])


def machine(kind: str, **rest: Any) -> dict[str, Any]:
    return job(worker_pool_specs=[pool(machine_spec={"machine_type": kind, **rest})])


def test_an_ordinary_job_passes_the_shipped_policy() -> None:
    assert refusals(job(), POLICY) == []


@pytest.mark.parametrize("name", [recipe.name for recipe in RECIPES])
@pytest.mark.parametrize("project", ["acme-ml", "kickoff-local"])
def test_shipped_recipes_pass_the_shipped_policy_in_the_cloud_and_on_a_laptop(name: str, project: str) -> None:
    trainer = f"us-central1-docker.pkg.dev/{project}/kickoff/trainer:latest"
    settings = Settings.from_environ({"KICKOFF_PROJECT": project, "KICKOFF_TRAINER_IMAGE": trainer})
    recipes = load_recipes(RECIPE_FILES, TemplateValues.from_settings(settings))

    assert refusals({"recipe": name}, load_policy(POLICY_TEXT, settings), recipes, settings) == []


@pytest.mark.parametrize(
    "name",
    [
        "gcr.io/acme-ml/x",
        "gcr.io/acme-ml/deep/er/x:tag",
        "us-central1-docker.pkg.dev/acme-ml/r/x@sha256:" + "a" * 64,
        "us-central1-docker.pkg.dev/acme-ml/r/x:1@sha256:" + "a" * 64,
    ],
)
def test_the_projects_own_images_are_allowed(name: str) -> None:
    assert refusals(image(name)) == []


@pytest.mark.parametrize(
    "name",
    [
        "gcr.io/acme-ml-evil/x",
        "gcr.io.evil.com/acme-ml/x",
        "docker.io/acme-ml/x",
        "europe-docker.pkg.dev/acme-ml/r/x",
        "evil.com/gcr.io/acme-ml/x",
        "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
    ],
)
def test_other_images_are_not(name: str) -> None:
    assert refusals(image(name))[0].startswith("job_spec.worker_pool_specs[0].containerSpec.imageUri is '")
    assert "policy allows us-central1-docker.pkg.dev/acme-ml/**, gcr.io/acme-ml/** (images)" in refusals(image(name))[0]


def test_images_can_be_wanted_by_digest() -> None:
    pinned = load_policy("require_digest: true\nunknown_price: allow", SETTINGS)

    assert "policy wants it pinned by digest" in refusals(image("gcr.io/acme-ml/x:1"), pinned)[0]
    assert refusals(image("gcr.io/acme-ml/x@sha256:" + "a" * 64), pinned) == []


def test_one_image_can_be_allowed_by_its_digest() -> None:
    digest = "@sha256:" + "a" * 64
    one = load_policy(f"images: ['docker.io/acme/x{digest}']\nunknown_price: allow", SETTINGS)

    assert refusals(image(f"docker.io/acme/x:1{digest}"), one) == []
    assert refusals(image("docker.io/acme/x:1"), one) and refusals(image(f"docker.io/acme/y{digest}"), one)
    assert refusals(image("docker.io/acme/x@sha256:" + "b" * 64), one)


PACKAGE = {
    "executor_image_uri": "gcr.io/acme-ml/x",
    "python_module": "t",
    "package_uris": ["gs://elsewhere/t.tar.gz"],
}


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (job(service_account="owner@acme-ml.iam.gserviceaccount.com"), "policy allows none (service_accounts)"),
        (job(network="projects/1/global/networks/n"), "policy allows none (networks)"),
        (job(persistent_resource_id="r"), "policy allows none (persistent_resources)"),
        (job(enable_web_access=True), "enableWebAccess is true; policy does not allow it"),
        (job(enable_dashboard_access=True), "enableDashboardAccess is true"),
        (job(base_output_dir="gs://elsewhere/x"), "is 'elsewhere'; policy allows acme-ml-* (buckets)"),
        (job(region="europe-west4"), "region is 'europe-west4'; this deployment starts jobs in us-central1"),
        (job(project="other-project"), "project is 'other-project'; this deployment starts jobs in acme-ml"),
        (machine("m1-ultramem-40"), "is 'm1-ultramem-40'; policy allows n1-*"),
        (
            machine("a2-ultragpu-1g", accelerator_type="NVIDIA_A100_80GB", accelerator_count=1),
            "accelerator_type is 'NVIDIA_A100_80GB'",
        ),
        (job(worker_pool_specs=[POOL, pool(replica_count=16)]), "has 17 replicas; policy allows 16"),
        (
            job(worker_pool_specs=[{**pool(python_package_spec=PACKAGE), "container_spec": None}]),
            "packageUris[0] is 'elsewhere'",
        ),
    ],
)
def test_the_shipped_policy_refuses(payload: dict[str, Any], words: str) -> None:
    found = refusals(payload, POLICY)

    assert any(words in line for line in found), found


def test_everything_that_stands_against_a_job_is_said_at_once() -> None:
    payload = {**image("docker.io/x/y"), "network": "projects/1/global/networks/n", "enable_web_access": True}

    assert len(refusals(payload, POLICY)) == 3


def test_raw_requests_can_be_switched_off() -> None:
    closed = load_policy("raw_requests: false\nunknown_price: allow", SETTINGS)

    assert "allows no requests that bring their own job" in refusals(job(), closed)[0]
    assert refusals({"recipe": "digits"}, closed) == []


def test_the_deployments_own_account_needs_no_entry_and_others_do() -> None:
    named = load_policy(
        'service_accounts: ["vision-*@{project}.iam.gserviceaccount.com"]\nunknown_price: allow', SETTINGS
    )

    assert refusals(job(service_account=SETTINGS.service_account)) == []
    assert refusals(job(service_account="vision-1@acme-ml.iam.gserviceaccount.com"), named) == []
    assert refusals(job(service_account="root@acme-ml.iam.gserviceaccount.com"), named)


def test_a_region_outside_the_list_is_refused() -> None:
    far = dataclasses.replace(SETTINGS, region="me-central1")
    policy = load_policy("regions: [us-*, europe-*]\nimages: ['**']\nunknown_price: allow", far)

    assert "region is 'me-central1'; policy allows us-*, europe-* (regions)" in refusals(job(), policy, settings=far)


def test_a_raw_job_may_not_write_where_a_recipe_watches() -> None:
    found = refusals(job(base_output_dir="gs://acme-ml-data/datasets/digits/out"))

    assert "where recipe digits watches for uploads" in found[0]


# Price -----------------------------------------------------------------------------------------------------------


def test_the_worst_case_is_price_times_replicas_times_timeout() -> None:
    payload = job(worker_pool_specs=[POOL, {}, pool(replica_count=3)])
    cost = worst_case_cost(built(payload).custom_job)
    each = 0.21849885 + 100 * 0.17 / 730 * 1.15

    assert cost.hours == 1 and [line.pool for line in cost.pools] == [0, 2]
    assert cost.hourly_usd == pytest.approx(4 * each) and cost.usd == pytest.approx(4 * each)


def test_no_timeout_costs_seven_days_and_spot_counts_in_full() -> None:
    endless = worst_case_cost(built([POOL]).custom_job)
    spot = worst_case_cost(built({"worker_pool_specs": [POOL], "scheduling": {"strategy": "SPOT"}}).custom_job)

    assert endless.hours == 168 and endless.usd == spot.usd == pytest.approx((endless.hourly_usd or 0) * 168)


def test_a_budget_refuses_what_may_cost_more() -> None:
    policy = load_policy("max_cost_usd: 1", SETTINGS)

    assert refusals(job(), policy) == []
    found = refusals(job(scheduling={"timeout": "36000s"}), policy)
    assert (
        "may cost 0.25 USD an hour x 10 h = 2.45 USD at worst; the limit is 1.00 USD (policy.yaml: max_cost_usd)"
        in found[0]
    )


def test_the_lower_of_two_budgets_counts() -> None:
    recipes = recipes_of("name: r\nwhen: {message: {}}\njob: {scheduling: {timeout: 10h}}\nlimits: {max_cost_usd: 2}")

    assert (
        "(recipe r: limits.max_cost_usd)"
        in refusals({"recipe": "r"}, load_policy("max_cost_usd: 50", SETTINGS), recipes)[0]
    )
    assert (
        "(policy.yaml: max_cost_usd)" in refusals({"recipe": "r"}, load_policy("max_cost_usd: 1", SETTINGS), recipes)[0]
    )


def test_an_unknown_price_is_refused_where_there_is_a_budget_alone() -> None:
    h100 = machine("a3-highgpu-8g", accelerator_type="NVIDIA_H100_80GB", accelerator_count=8)
    cost = worst_case_cost(built(h100).custom_job)

    assert cost.usd is None and "no price is known for a3-highgpu-8g, NVIDIA_H100_80GB (catalogue of 20" in cost.why
    assert "cannot be priced" in refusals(h100, load_policy("max_cost_usd: 9999", SETTINGS))[0]
    assert refusals(h100, load_policy("max_cost_usd: 9999\nunknown_price: allow", SETTINGS)) == []
    assert refusals(h100, load_policy("{}", SETTINGS)) == []


def test_a_tpu_slice_has_no_known_price() -> None:
    tpu = machine("ct5lp-hightpu-4t", tpu_topology="4x4")

    assert worst_case_cost(built(tpu).custom_job).usd is None


# The file --------------------------------------------------------------------------------------------------------


def test_an_empty_policy_has_the_defaults_filled() -> None:
    assert load_policy("", SETTINGS).images == ["us-central1-docker.pkg.dev/acme-ml/**", "gcr.io/acme-ml/**"]
    assert load_policy("# nothing\n", SETTINGS).buckets == ["acme-ml-*"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image: []", "policy.yaml:1: image is not a known key (did you mean images?)"),
        ("max_cost_usd: 0", "policy.yaml:1: max_cost_usd is 0; it must be greater than 0"),
        ("max_cost_usd: '5'", "max_cost_usd is '5'"),
        ("images:\n- gcr.io/{projekt}/**", "policy.yaml:2: images[0] names the unknown value {projekt}"),
        ("images: ['{a']", "images[0] is '{a'; an opening brace is never closed"),
        ("unknown_price: maybe", "unknown_price is 'maybe'"),
        ("[]", "must be a mapping"),
        ("a: 1\na: 2", "a is given twice"),
    ],
)
def test_a_policy_that_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_policy(text, SETTINGS)
    assert words in str(caught.value)
