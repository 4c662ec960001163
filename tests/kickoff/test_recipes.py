"""Recipe files: what is read, what is refused and in which words, what an upload matches, and the loop guard."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kickoff.errors import ConfigurationError
from kickoff.recipes import Recipes, load_recipes
from kickoff.templates import VALUES as VALUE_NAMES
from kickoff.templates import TemplateValues

from tests.kickoff.requests_at_hand import RECIPES, ROOT, VALUES, recipes_of

UPLOADS = """
name: {name}
when:
  upload: {{bucket: "{bucket}", root: "{root}", match: "{match}"{complete}}}
job: {{output: "{output}"}}
"""


def watching(
    *,
    name: str = "r",
    bucket: str = "{project}-data",
    root: str = "in/",
    match: str = "**",
    complete: str = "",
    output: str = "gs://{project}-models/{recipe}/{run_id}",
) -> str:
    return UPLOADS.format(name=name, bucket=bucket, root=root, match=match, complete=complete, output=output)


def faults(*texts: str, values: TemplateValues = VALUES) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_recipes({f"r{number}.yaml": text for number, text in enumerate(texts)}, values)
    return [str(fault) for fault in caught.value.faults]


def roles(recipes: Recipes, name: str, bucket: str = "acme-ml-data") -> list[tuple[str, str, str]]:
    return [(match.recipe.name, match.root, match.role) for match in recipes.match_upload(bucket, name)]


def test_the_codelab_systems_and_the_digits_ship() -> None:
    figures = {
        recipe.name: (recipe.job.replicas, recipe.job.machine_type, recipe.job.accelerator, recipe.job.args["epochs"])
        for recipe in RECIPES
    }
    assert set(figures) == {
        "digits",
        "cassava",
        "flowers-multi-gpu",
        "flowers-multi-machine",
        "flowers-parameter-server",
    }
    assert figures["digits"][:3] == (3, "n1-standard-4", None)
    assert figures["flowers-multi-machine"] == (2, "n1-standard-4", None, 10)
    assert figures["cassava"][:2] == (2, "n1-standard-8") and figures["cassava"][3] == 2
    assert RECIPES.by_name["cassava"].job.args["image-size"] == 300
    gpus = RECIPES.by_name["flowers-multi-gpu"].job.accelerator
    assert gpus and (gpus.type, gpus.count) == ("NVIDIA_TESLA_V100", 2)


def test_a_mistake_is_named_with_file_line_key_and_the_nearest_right_key() -> None:
    text = """name: flowers
when:
  uplod: {bucket: acme-ml-data, root: a/}
job:
  machinetype: n1-standard-4
  replicas: "3"
  accelerator: {type: NVIDIA_TESLA_T5, count: 0}
  scheduling: {timeout: 2 hours, strategy: spot}
limits: {max_cost_usd: -1}
"""
    found = faults(text)
    assert "r0.yaml:3: when.uplod is not a known key (did you mean upload?)" in found
    assert "r0.yaml:5: job.machinetype is not a known key (did you mean machine_type?)" in found
    assert any(line.startswith("r0.yaml:6: job.replicas is '3'; it must be a valid integer") for line in found)
    assert any("r0.yaml:7: job.accelerator.type is 'NVIDIA_TESLA_T5'" in line for line in found)
    assert any("r0.yaml:7: job.accelerator.count is 0; it must be greater than or equal to 1" in line for line in found)
    assert any(
        "job.scheduling.timeout is '2 hours'; it must be a whole number and s, m, h or d" in line for line in found
    )
    assert any("job.scheduling.strategy is 'spot'" in line and "SPOT" in line for line in found)
    assert any("r0.yaml:9: limits.max_cost_usd is -1" in line for line in found)


def test_all_files_are_judged_at_once_and_names_are_unique() -> None:
    found = faults("name: A\nwhen: {message: {}}", "name: b\nwhen: {message: {}}", "name: b\nwhen: {message: {}}", "[]")

    assert [line.partition(":")[0] for line in found] == ["r0.yaml", "r3.yaml", "r2.yaml"]
    assert "is 'b', as in r1.yaml; names are unique" in found[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\non: {message: {}}", "what starts a recipe is written when:"),
        ("name: a\nwhen: {}", "names nothing that starts the recipe"),
        ("name: custom-job\nwhen: {message: {}}", "kept for requests that bring their own job"),
        ("name: sweep\nwhen: {message: {}}", "kept for the sweep"),
        (f"name: {'a' * 37}\nwhen: {{message: {{}}}}", "name is"),
        ("name: a\nwhen: {schedule: {cron: 0 3 * *}}", "when.schedule.cron is '0 3 * *', which has 4 fields"),
        ("name: a\nwhen: {schedule: {cron: 0 3 * * 1, timezone: Mars}}", "when.schedule.timezone is 'Mars'"),
        ("name: a\nwhen: {message: {}}\njob: {image: 'gcr.io/{your-project}/x'}", "placeholder '{your-project}'"),
        ("name: a\nwhen: {message: {}}\njob: {image: '{image}'}", "unknown value {image}; known are {project}"),
        ("name: a\nwhen: {message: {}}\njob: {args: {data: 'gs://YOUR_BUCKET/x'}}", "placeholder 'YOUR_BUCKET'"),
        ("name: a\nwhen: {message: {}}\njob: {args: {verbose: true}}", "has verbose True; write the text"),
        ("name: a\nwhen: {message: {}}\njob: {ps: 1, reduction_servers: 1}", "both go to worker pool 2"),
        ("name: a\nwhen: {message: {}}\nallow: {override: [epochs]}", "allow.override[0].epochs is not a known key"),
        (watching(root="in"), "must end with / and not begin with it"),
        (watching(bucket="gs://x"), "write the bucket's name alone"),
        (watching(match="{a"), "when.upload.match is '{a'; an opening brace is never closed"),
        (
            watching(complete=", complete: {marker: _OK, quiet: 2m}"),
            "has marker and quiet of marker, manifest and quiet",
        ),
        (watching(complete=", complete: {}"), "has none of marker, manifest and quiet"),
        (watching(complete=", complete: {marker: /_OK}"), "must name one object below the root"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    assert any(words in line for line in faults(text)), faults(text)


def test_durations_args_and_short_pools_are_read() -> None:
    recipe = recipes_of("""
name: a
when: {message: {}, schedule: {cron: 0 3 * * 1, timezone: Europe/Berlin}}
job:
  ps: 2
  evaluators: {replicas: 1, machine_type: n1-standard-8}
  args: {learning-rate: "1e-5", epochs: 3}
  scheduling: {timeout: 2h, max_wait: 90s}
""").by_name["a"]

    assert recipe.job.scheduling.timeout == 7200 and recipe.job.scheduling.max_wait == 90
    assert recipe.job.ps and recipe.job.ps.replicas == 2
    assert recipe.job.args == {"learning-rate": "1e-5", "epochs": 3}
    assert [each.name for each in recipes_of(watching()).scheduled()] == []
    assert RECIPES.get("nothing") is None


def test_the_digest_follows_the_meaning_not_the_spelling() -> None:
    one = recipes_of("name: a\nwhen: {message: {}}\njob: {scheduling: {timeout: 2h}}").by_name["a"]
    same = recipes_of("# why\nname: a\njob:\n  scheduling:\n    timeout: 7200\nwhen: {message: {}}").by_name["a"]
    other = recipes_of("name: a\nwhen: {message: {}}\njob: {scheduling: {timeout: 3h}}").by_name["a"]

    assert one.digest == same.digest != other.digest


# What an upload matches ------------------------------------------------------------------------------------------


def test_members_markers_and_manifests_are_told_apart() -> None:
    marker = recipes_of(watching(match="**/*.png", complete=", complete: {marker: _SUCCESS}"))
    root = "gs://acme-ml-data/in/"

    assert roles(marker, "in/zero/1.png") == [("r", root, "member")]
    assert roles(marker, "in/_SUCCESS") == [("r", root, "marker")]
    assert roles(marker, "in/zero/_SUCCESS") == []
    assert roles(marker, "in/readme.txt") == roles(marker, "in/") == roles(marker, "out/1.png") == []
    assert roles(marker, "in/zero/1.png", bucket="acme-ml-other") == []
    manifest = recipes_of(watching(complete=", complete: {manifest: meta/list.json}"))
    assert roles(manifest, "in/meta/list.json") == [("r", root, "manifest")]


def test_without_complete_every_object_is_a_dataset() -> None:
    assert roles(recipes_of(watching(match="*.csv")), "in/a.csv") == [("r", "gs://acme-ml-data/in/a.csv", "object")]


def test_one_object_may_concern_several_recipes() -> None:
    recipes = recipes_of(watching(name="a"), watching(name="b", match="*.csv"), watching(name="c", root="in/deep/"))

    assert [name for name, _, _ in roles(recipes, "in/a.csv")] == ["a", "b"]
    assert [name for name, _, _ in roles(recipes, "in/deep/a.csv")] == ["a", "c"]


@given(st.text(max_size=40), st.text(min_size=3, max_size=20))
def test_any_name_is_matched_or_not(name: str, bucket: str) -> None:
    for match in RECIPES.match_upload(bucket, name) + RECIPES.match_upload("acme-ml-data", "datasets/digits/" + name):
        assert match.name.startswith("datasets/digits/") and match.role in ("member", "marker")


# The loop guard --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "output",
    [
        "gs://{project}-data/in/models/{run_id}",
        "gs://{project}-data/in/{run_id}",
        "gs://{project}-data/{run_id}",
        "gs://{project}-data/i{run_id}",
    ],
)
def test_an_output_below_what_is_watched_is_refused(output: str) -> None:
    assert any("they would start each other" in line for line in faults(watching(output=output)))


def test_each_run_has_an_output_of_its_own() -> None:
    assert "it must hold {run_id}" in faults(watching(output="gs://{project}-models/r"))[0]
    assert recipes_of(watching(output="")).by_name["r"].job.output == ""


def test_one_recipes_output_may_not_start_another() -> None:
    found = faults(watching(name="a"), watching(name="b", bucket="{project}-models", root="a/"))

    assert any(
        "watches gs://acme-ml-models/a/, and recipe a's jobs write to gs://acme-ml-models/a/" in line for line in found
    )


def test_the_staging_area_may_not_be_watched() -> None:
    assert any("where Kickoff keeps its own" in line for line in faults(watching(bucket="{project}-staging", root="")))


def test_a_neighbour_with_the_same_beginning_is_no_loop() -> None:
    recipes_of(watching(root="in/", output="gs://{project}-data/in-models/{run_id}"))


def test_objects_of_our_own_jobs_start_nothing() -> None:
    guarded = Recipes(recipes_of(watching(root="")).by_name, own=("gs://acme-ml-data/kickoff/",))

    assert roles(guarded, "kickoff/snapshot.json") == [] and roles(guarded, "other.json") != []


def test_the_recipe_in_the_documentation_is_one() -> None:
    text = (ROOT / "docs" / "recipes.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    recipe = recipes_of(example).by_name["flowers"]

    assert recipe.when.upload and recipe.when.message and recipe.when.schedule
    for name in VALUE_NAMES:
        assert f"`{{{name}}}`" in text
