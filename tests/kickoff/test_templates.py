"""Named values, and placeholders that somebody forgot to fill."""

import time

import pytest
from kickoff.templates import fill, fixed_prefix, left_over, left_over_name, unknown_values


@pytest.mark.parametrize(
    "text",
    [
        "gs://{your-gcs-bucket}/mwms",
        "gcr.io/{YOUR-PROJECT-ID}/multiworker:cassava",
        "us-central1-docker.pkg.dev/{PROJECT_ID}/flower-app/x:multi_machine",
        "gs://{YOUR_BUCKET}",
        "${IMAGE}",
        "{{ image }}",
        "<PROJECT>",
        "<your bucket>",
        "YOUR_PROJECT_ID",
        "gs://your-bucket/x",
        "your-cloud-project",
    ],
)
def test_left_overs_of_codelabs_and_scripts_are_found(text: str) -> None:
    assert left_over(text)


@pytest.mark.parametrize(
    "text", ["MACHINE_TYPE", "gcr.io/PROJECT_ID/x", "gs://BUCKET_NAME/a", "gcr.io/$PROJECT_ID/x", "$IMAGE"]
)
def test_samples_of_the_documentation_are_found_in_names(text: str) -> None:
    assert left_over_name(text) and not left_over(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": {"c": []}}',
        "--pattern={a,b}",
        "ckpt-{epoch:02d}",
        "my data $(id)",
        "a < b > c",
        "gs://acme-your/x",
        "n1-standard-4",
        "NVIDIA_TESLA_T4",
        "gs://b/RAW_DATA/x",
        "behaviour-project",
        "gcr.io/projectx/image",
        "",
    ],
)
def test_what_only_looks_like_one_is_let_through(text: str) -> None:
    assert left_over_name(text) == ""


def test_only_named_values_are_filled() -> None:
    assert fill("gs://{project}-m/{run_id}/{x}", {"project": "p", "run_id": ""}) == "gs://p-m/{run_id}/{x}"
    assert fixed_prefix("gs://p-m/r/{run_id}/x") == "gs://p-m/r/" and fixed_prefix("gs://p") == "gs://p"
    assert unknown_values("{project}{foo}{dataset.uri}{dataset.url}") == ["foo", "dataset.url"]


@pytest.mark.parametrize("piece", ["{{", "${", "<a", "{a", "your-", "AA_", "a.", "gcr.io/"])
def test_a_hostile_text_is_searched_quickly(piece: str) -> None:
    started = time.monotonic()
    left_over_name(piece * 50_000)
    assert time.monotonic() - started < 5
