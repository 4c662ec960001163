"""Members, digest, snapshot, manifest and completeness: the pure part of settling."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kickoff.completeness import Empty, Waiting, decide, format_span
from kickoff.datasets import (
    Complete,
    Listing,
    Mode,
    Rule,
    StoredObject,
    build_dataset,
    build_digest,
    build_key,
    build_rule,
    build_snapshot,
    select_members,
)
from kickoff.manifests import Entry, Manifest, parse_manifest
from kickoff.recipes import load_recipes
from kickoff.templates import TemplateValues

T0 = datetime(2026, 12, 1, 12, tzinfo=UTC)
QUIET = Rule("flowers", "acme-data", "d/", Mode.QUIET, timedelta(minutes=2))
MARKER = replace(QUIET, mode=Mode.MARKER, final="d/_SUCCESS")
MANIFEST = replace(QUIET, mode=Mode.MANIFEST, final="d/manifest.json")
ROOT = "gs://acme-data/d/"


def made(name: str, at: float = 0, *, crc32c: str = "AAAAAQ==", size: int = 1, run: str = "") -> StoredObject:
    """An object below d/, created `at` seconds after T0."""
    return StoredObject(f"d/{name}", int(at * 10) + 1, crc32c, size, T0 + timedelta(seconds=at), run)


def listed(*objects: StoredObject, at: float = 10) -> Listing:
    return Listing(T0 + timedelta(seconds=at), objects)


def manifest(*files: object) -> Manifest:
    return parse_manifest(json.dumps({"files": files}).encode(), ROOT)


# Members ------------------------------------------------------------------------------------------------------------


def test_members_are_the_data_files_that_the_recipe_takes() -> None:
    rule = replace(MARKER, matches=lambda name: name.endswith(".jpg"))
    objects = [
        made("b.jpg"),
        made("a/x.jpg"),
        made("_SUCCESS"),
        made("notes.txt"),
        made("empty.jpg", size=0),
        made("folder.jpg/"),
        made("old_$folder$"),
        made("gcloud/tmp/parallel_composite_uploads/see_gcloud_storage_cp_headers_for_info/1_part.jpg"),
        made("winner.jpg", run="flowers-0123"),
        StoredObject("elsewhere/c.jpg", 1, "AAAAAQ==", 1, T0),
    ]
    assert [m.name for m in select_members(objects, rule)] == ["d/a/x.jpg", "d/b.jpg"]


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), unique=True))
def test_members_come_in_the_order_of_their_utf8_bytes(names: list[str]) -> None:
    kept = [m.name.encode() for m in select_members([made(name) for name in names], QUIET)]
    assert kept == sorted(kept)


def test_a_recipe_becomes_a_rule() -> None:
    recipes = load_recipes({f"{mode}.yaml": RECIPE.format(mode=mode, how=how) for mode, how in HOWS.items()}, VALUES)
    rules = {}
    for mode in HOWS:
        recipe = recipes.get(mode)
        assert recipe is not None
        rules[mode] = build_rule(recipe, f"gs://acme-data/{mode}/")
    assert rules["quiet"].quiet == timedelta(seconds=90)
    assert (rules["marker"].final, rules["marker"].quiet) == ("marker/_SUCCESS", timedelta(minutes=5))
    assert (rules["manifest"].final, rules["manifest"].quiet) == ("manifest/meta/files.json", timedelta(minutes=2))
    assert [rule.mode.value for rule in rules.values()] == list(HOWS)
    assert rules["marker"].matches("marker/a/b.jpg")
    assert not rules["marker"].matches("marker/a/b.txt")
    assert not rules["marker"].matches("marker/_SUCCESS")
    assert len({rule.id for rule in rules.values()}) == 3


VALUES = TemplateValues("acme", "us-central1", "us-central1-docker.pkg.dev/acme/kickoff/trainer:latest")
HOWS = {
    "quiet": "{quiet: 90s}",
    "marker": "{marker: _SUCCESS, settle: 5m}",
    "manifest": "{manifest: meta/files.json}",
}
RECIPE = """
name: {mode}
when: {{upload: {{bucket: acme-data, root: {mode}/, match: "**/*.jpg", complete: {how}}}}}
job: {{args: {{data: "{{dataset.snapshot}}"}}}}
"""

# Digest, key, snapshot ----------------------------------------------------------------------------------------------


def test_the_digest_is_of_names_and_bytes_alone() -> None:
    members = [made("a", crc32c="AAAAAQ=="), made("b", crc32c="AAAAAg==")]
    again = [m._replace(generation=m.generation + 5, created=T0 + timedelta(days=1)) for m in members]
    moved = [m._replace(name="e" + m.name[1:]) for m in members]
    assert build_digest(members, "d/") == build_digest(again, "d/") == build_digest(moved, "e/")
    swapped = [made("a", crc32c="AAAAAg=="), made("b", crc32c="AAAAAQ==")]
    renamed = [members[0], members[1]._replace(name="d/c")]
    assert len({build_digest(each, "d/") for each in (members, swapped, renamed, members[:1])}) == 4


def test_where_no_crc32c_is_shown_the_generation_counts() -> None:
    secret = made("a", crc32c="")
    assert build_digest([secret], "d/") != build_digest([secret._replace(generation=99)], "d/")
    assert build_digest([made("a", crc32c="generation 1")], "d/") == build_digest([secret], "d/"), "crc32c is base64"


@given(st.lists(st.tuples(st.text('ab\n"[],', max_size=3), st.text('ab\n"[],', max_size=3)), max_size=3).map(tuple))
def test_no_two_lists_of_pairs_have_one_text(pairs: tuple[tuple[str, str], ...]) -> None:
    """Neither a quote nor a line break in a name can make two datasets look like one."""
    members = [StoredObject(name, 1, crc, 1, T0) for name, crc in pairs if crc]
    seen = _DIGESTS.setdefault(build_digest(members, ""), [(m.name, m.crc32c) for m in members])
    assert seen == [(m.name, m.crc32c) for m in members]


_DIGESTS: dict[str, list[tuple[str, str]]] = {}


def test_key_record_and_snapshot_of_a_complete_dataset() -> None:
    members = (made("a/ä.jpg", 3, size=7), made('b"\n.jpg', 4, size=5))
    complete = Complete(members, build_digest(members, "d/"), T0)
    record = build_dataset(QUIET, complete)
    assert (record.uri, record.digest, record.objects, record.bytes) == (ROOT, complete.digest, 2, 12)
    assert build_key(QUIET, record.digest) == ("flowers", "upload", ROOT, complete.digest)
    assert json.loads(build_snapshot(QUIET, complete)) == {
        "schema": "kickoff.dataset-snapshot.v1",
        "uri": ROOT,
        "digest": complete.digest,
        "members": [
            {"name": "d/a/ä.jpg", "generation": "31", "crc32c": "AAAAAQ==", "size": 7},
            {"name": 'd/b"\n.jpg', "generation": "41", "crc32c": "AAAAAQ==", "size": 5},
        ],
    }


# Quiet --------------------------------------------------------------------------------------------------------------


def test_quiet_is_judged_by_the_listing_s_own_date() -> None:
    files = [made("a", 0), made("b", 30)]
    early = decide(QUIET, listed(*files, at=149))
    assert early == Waiting("2m without a new file; the newest of 2 is b", timedelta(seconds=1))
    late = decide(QUIET, listed(*files, at=150))
    assert isinstance(late, Complete)
    assert late.newest == files[1].created


def test_an_object_that_came_while_paging_is_younger_than_the_listing() -> None:
    assert decide(QUIET, listed(made("a", 20), at=10)) == Waiting(
        "2m without a new file; the newest of 1 is a", timedelta(seconds=130)
    )


@pytest.mark.parametrize("rule", [QUIET, MARKER, MANIFEST])
def test_nothing_there_waits_for_nothing(rule: Rule) -> None:
    assert decide(rule, listed(made("empty", size=0), made("winner", run="r"))) == Empty()


def test_too_many_objects_are_held_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kickoff.completeness.MAX_MEMBERS", 1)
    found = decide(QUIET, listed(made("a"), made("b"), at=1e6))
    assert isinstance(found, Waiting)
    assert found.waiting_for == f"at most 1 objects below {ROOT}; there are more"


# Marker -------------------------------------------------------------------------------------------------------------


def test_no_marker_is_waited_for_by_name_and_looked_for_less_and_less() -> None:
    waits = [decide(MARKER, listed(made("a", 0), at=at)) for at in (1, 100, 1e6)]
    assert all(isinstance(w, Waiting) and w.waiting_for == "the marker gs://acme-data/d/_SUCCESS" for w in waits)
    spans = [w.look_again.total_seconds() for w in waits if isinstance(w, Waiting)]
    assert spans == [10, 25, 300]


def test_a_marker_that_is_no_older_than_its_files_completes_at_once() -> None:
    found = decide(MARKER, listed(made("a", 1), made("b", 5), made("_SUCCESS", 5, size=0), at=5))
    assert isinstance(found, Complete)
    assert [m.name for m in found.members] == ["d/a", "d/b"]


def test_an_early_marker_names_the_files_that_are_newer() -> None:
    late = [made(f"late{i}", 10 + i) for i in range(5)]
    found = decide(MARKER, listed(made("a", 1), made("_SUCCESS", 5), *late, at=20))
    assert found == Waiting(
        "a newer marker, or 2m without a new file: "
        "5 of 6 files are newer than _SUCCESS: late0, late1, late2 and 2 more",
        timedelta(seconds=114),
    )


def test_an_early_marker_is_released_by_a_newer_one_or_by_quiet() -> None:
    files = [made("a", 1), made("b", 10)]
    assert isinstance(decide(MARKER, listed(*files, made("_SUCCESS", 11), at=11)), Complete)
    assert isinstance(decide(MARKER, listed(*files, made("_SUCCESS", 5), at=129.9)), Waiting)
    assert isinstance(decide(MARKER, listed(*files, made("_SUCCESS", 5), at=130)), Complete)


def test_the_marker_s_date_counts_as_the_newest() -> None:
    """So that a new marker after deletions is news."""
    found = decide(MARKER, listed(made("a", 1), made("_SUCCESS", 5)))
    assert isinstance(found, Complete)
    assert found.newest == T0 + timedelta(seconds=5)


def test_a_marker_without_files_waits_for_them() -> None:
    found = decide(MARKER, listed(made("_SUCCESS", 5)))
    assert isinstance(found, Waiting)
    assert "no object below gs://acme-data/d/ matches" in found.waiting_for


# Manifest -----------------------------------------------------------------------------------------------------------


def test_the_members_are_what_the_manifest_names() -> None:
    objects = listed(made("z", 3), made("a", 1), made("extra", 2), made("manifest.json", 4))
    found = decide(MANIFEST, objects, manifest("z", {"name": f"{ROOT}a", "crc32c": "AAAAAQ==", "size": 1}))
    assert isinstance(found, Complete)
    assert [m.name for m in found.members] == ["d/a", "d/z"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("b", "b is missing"),
        ({"name": "a", "generation": "12"}, "a has generation 11, not 12"),
        ({"name": "a", "generation": 11, "crc32c": "AAAAAg=="}, "a has crc32c AAAAAQ==, not AAAAAg=="),
        ({"name": "a", "size": 2}, "a has 1 bytes, not 2"),
        ("empty", "empty is empty"),
    ],
)
def test_what_is_missing_or_changed_is_named(entry: object, says: str) -> None:
    objects = listed(made("a", 1), made("empty", size=0), made("manifest.json", 4))
    found = decide(MANIFEST, objects, manifest(entry))
    assert isinstance(found, Waiting)
    assert found.waiting_for == f"1 of the 1 files in manifest.json: {says}"


def test_an_empty_file_counts_where_the_manifest_vouches_for_it() -> None:
    objects = listed(made("a", 1, size=0), made("manifest.json", 4))
    assert isinstance(decide(MANIFEST, objects, manifest({"name": "a", "size": 0})), Complete)


def test_an_early_manifest_waits_for_bytes_it_does_not_pin() -> None:
    objects = listed(made("a", 8), made("manifest.json", 4))
    assert isinstance(decide(MANIFEST, objects, manifest("a")), Waiting)
    assert isinstance(decide(MANIFEST, objects, manifest({"name": "a", "crc32c": "AAAAAQ=="})), Complete)
    assert isinstance(decide(MANIFEST, listed(*objects.objects, at=128), manifest("a")), Complete)


def test_a_wrong_manifest_says_all_that_is_wrong_with_it() -> None:
    wrong = manifest(
        3,
        {"name": "a", "crc32c": "abc", "size": -1, "generation": 1.5, "md5": "x"},
        {"name": "gs://other/b"},
        "c",
        "c",
        {},
        {"name": "\ud800"},
    )
    text = "\n".join(wrong.faults)
    for part in (
        "files[0] is 3; it must be a name, or an object with a name",
        "files[1] has 'md5', which is not known; known are crc32c, generation, name, size",
        "files[1].generation is 1.5; it must be a whole number of at least 0",
        "files[1].crc32c is 'abc'; it must be 4 bytes in base64",
        "files[1].size is -1;",
        "files[2].name is 'gs://other/b'; it must lie below gs://acme-data/d/",
        "files[4].name 'c' is named twice",
        "files[5].name is None;",
        "files[6].name is '\\ud800'; it must be UTF-8 text",
    ):
        assert part in text
    found = decide(MANIFEST, listed(made("a"), made("manifest.json")), wrong)
    assert isinstance(found, Waiting)
    assert found.waiting_for.startswith("a valid manifest gs://acme-data/d/manifest.json: files[0] is 3")
    found.waiting_for.encode()


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b"3", b"{}", b"[]", b'{"files": {}}', b"[" * 100_000])
def test_no_manifest_at_all(data: bytes) -> None:
    assert parse_manifest(data, ROOT).faults
    assert not parse_manifest(data, ROOT).entries


_SCALARS = st.none() | st.booleans() | st.floats() | st.integers() | st.text()
_KEYS = st.sampled_from(["name", "size", "crc32c", "generation", "files", "x"])


@given(st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(_KEYS, inner)))
def test_any_json_is_entries_or_faults(value: object) -> None:
    found = parse_manifest(json.dumps(value).encode(), ROOT)
    assert bool(found.entries) != bool(found.faults)
    "".join(found.faults).encode(errors="strict")


def test_many_faults_are_counted() -> None:
    assert manifest(*range(30)).faults[-1] == "and 20 more"


@given(st.permutations([Entry("a"), Entry("b"), Entry("c")]))
def test_the_order_of_a_manifest_makes_no_other_version(entries: list[Entry]) -> None:
    objects = listed(made("a", 1), made("b", 1), made("c", 1), made("manifest.json", 4))
    found = decide(MANIFEST, objects, Manifest(tuple(entries)))
    assert isinstance(found, Complete)
    assert found.digest == build_digest(objects.objects[:3], "d/")


def test_the_order_of_uploads_makes_no_other_version() -> None:
    objects = [made(f"{i}.jpg", i) for i in range(50)]
    first = decide(QUIET, listed(*objects, at=1e4))
    random.Random(1).shuffle(objects)
    assert decide(QUIET, listed(*objects, at=1e4)) == first


@pytest.mark.parametrize(("seconds", "text"), [(120, "2m"), (90, "90s"), (7200, "2h"), (0.5, "0.5s"), (0, "0s")])
def test_spans_read_as_in_a_recipe(seconds: float, text: str) -> None:
    assert format_span(timedelta(seconds=seconds)) == text
