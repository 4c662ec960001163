"""The strict parser against the real protobuf JSON parser, over many generated specs."""

from typing import Any

import pytest
from google.cloud.aiplatform_v1.types import custom_job
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.local.job_service.errors import ApiError
from deploy.local.job_service.parsing import parse_body, parse_message
from deploy.local.job_service.schema import ENUMS, MESSAGES, ONEOFS, SCALARS, WELL_KNOWN, camel

_SPEC = custom_job.CustomJob.pb().DESCRIPTOR.fields_by_name["job_spec"].message_type


def described(descriptor: Descriptor, found: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The schema as protobuf has it, in the shape of `MESSAGES`."""
    fields = found.setdefault(descriptor.name, {})
    for field in descriptor.fields:
        fields[field.name] = kind_of(field)
        inner = field.message_type
        if inner and not inner.GetOptions().map_entry and inner.name not in found and inner.name not in WELL_KNOWN:
            described(inner, found)
    return found


def kind_of(field: FieldDescriptor) -> str:
    names = {9: "string", 3: "int64", 5: "int32", 8: "bool"}
    if field.message_type and field.message_type.GetOptions().map_entry:
        return "{}"
    if field.message_type:
        kind = field.message_type.name
    elif field.enum_type:
        outer = field.enum_type.containing_type
        kind = outer.name + field.enum_type.name if field.enum_type.name == "Type" and outer else field.enum_type.name
    else:
        kind = names[field.type]
    return f"[]{kind}" if field.is_repeated else kind


def test_the_schema_is_the_one_of_the_public_protos() -> None:
    assert described(custom_job.CustomJob.pb().DESCRIPTOR, {}) == {name: dict(rows) for name, rows in MESSAGES.items()}


def test_the_enums_are_those_of_the_public_protos() -> None:
    found: dict[str, dict[str, int]] = {}

    def walk(descriptor: Descriptor) -> None:
        for field in descriptor.fields:
            if field.enum_type:
                found[kind_of(field)] = {value.name: value.number for value in field.enum_type.values}
            if field.message_type and field.message_type.name not in WELL_KNOWN:
                walk(field.message_type)

    walk(custom_job.CustomJob.pb().DESCRIPTOR)
    assert found == {name: dict(values) for name, values in ENUMS.items()}
    pool = _SPEC.fields_by_name["worker_pool_specs"].message_type
    oneofs = {oneof.name: tuple(field.name for field in oneof.fields) for oneof in pool.oneofs}
    assert oneofs == ONEOFS["WorkerPoolSpec"]


ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=4),
    st.sampled_from(["3", "3.0", " 3", "3 ", "1_0", "1e3", "0x3", "3600s", "-5s", "1h", "1.5s", ".5s", "-0.5s"]),
    st.sampled_from(["1.1234567891s", "s", "99999999999s"]),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


def of_kind(kind: str) -> st.SearchStrategy[Any]:
    if kind.startswith("[]"):
        return st.lists(one(kind[2:]), max_size=3)
    if kind == "{}":
        return st.dictionaries(st.text(max_size=3), one("string"), max_size=3)
    if kind in ENUMS:
        return st.sampled_from([*ENUMS[kind], *ENUMS[kind].values(), "7", "99", "nope", 99])
    if kind == "Duration":
        return st.one_of(st.integers(-10, 10**12).map(lambda n: f"{n}s"), st.floats(0, 1e6).map(lambda f: f"{f:.4f}s"))
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(max_size=6), "bool": st.booleans(),
        "int32": st.one_of(st.integers(-(2**33), 2**33), st.integers(0, 9).map(str)),
        "int64": st.one_of(st.integers(-(2**65), 2**65), st.integers(0, 9).map(str), st.integers(0, 9).map(float)),
    }  # fmt: skip
    return scalars[kind] if kind in SCALARS else message(kind)


def one(kind: str) -> st.SearchStrategy[Any]:
    """Mostly what fits; sometimes anything.

    But for "" and [] where a message is meant: the Python parser sees nothing to iterate over and takes them.
    """
    odd = ODD.filter(lambda value: value not in ("", [])) if kind in MESSAGES else ODD
    return st.integers(0, 19).flatmap(lambda n: odd if n == 0 else of_kind(kind))


def message(name: str) -> st.SearchStrategy[Any]:
    def fields(names: list[str]) -> st.SearchStrategy[Any]:
        unknown = {"surplus": ODD} if len(names) > 6 else {}
        return st.fixed_dictionaries({spelt: one(MESSAGES[name][plain]) for spelt, plain in spellings(names)} | unknown)

    return st.lists(st.sampled_from(sorted(MESSAGES[name])), max_size=7, unique=True).flatmap(fields)


def spellings(names: list[str]) -> list[tuple[str, str]]:
    return [(camel(name) if index % 2 else name, name) for index, name in enumerate(names)]


def by_protobuf(value: Any) -> Any:
    """What protobuf makes of it, or None where it refuses (it raises TypeError and others besides)."""
    try:
        parsed = json_format.ParseDict(value, custom_job.CustomJobSpec.pb()())
        return json_format.MessageToDict(parsed)
    except Exception:
        return None


@settings(max_examples=150, deadline=None)
@given(message("CustomJobSpec"))
def test_it_takes_and_refuses_what_protobuf_does(value: Any) -> None:
    expected = by_protobuf(value)
    read, violations = parse_message(value, "CustomJobSpec", "job_spec")
    assert bool(violations) == (expected is None), (violations, expected)
    if expected is not None:
        assert read == expected


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"foo": 1}, "Unknown name \"foo\" at 'job_spec': Cannot find field."),
        ({"workerPoolSpecs": [{"replicaCount": 1, "replica_count": 2}]}, "is given again as 'replica_count'"),
        ({"workerPoolSpecs": [{"containerSpec": {}, "pythonPackageSpec": {}}]}, "oneof field 'task' is already set"),
        (
            {"workerPoolSpecs": [{"replicaCount": 1.5}]},
            "job_spec.worker_pool_specs[0].replica_count' (TYPE_INT64), 1.5",
        ),
        ({"workerPoolSpecs": [None]}, "job_spec.worker_pool_specs[0]': null"),
        ({"scheduling": {"timeout": "1h"}}, "duration must end with 's'"),
    ],
)
def test_a_fault_says_where_and_what(spec: Any, words: str) -> None:
    _, violations = parse_message(spec, "CustomJobSpec", "job_spec")
    assert len(violations) == 1
    assert words in violations[0].message


def test_all_faults_are_found_at_once() -> None:
    spec = {"a": 1, "workerPoolSpecs": [{"replicaCount": "x"}, {"machineSpec": {"acceleratorType": "T4"}}]}
    _, violations = parse_message(spec, "CustomJobSpec", "job_spec")
    assert [violation.field for violation in violations] == [
        "job_spec",
        "job_spec.worker_pool_specs[0].replica_count",
        "job_spec.worker_pool_specs[1].machine_spec.accelerator_type",
    ]


@pytest.mark.parametrize(
    "body", [b"{", b"[1,]", b"\xff", b'{"a": NaN}', b"[" * 5000, b"{}x", b'{"a":' * 150 + b"1" + b"}" * 150]
)
def test_a_body_that_is_not_strict_json_gets_400(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_body(body)
    assert caught.value.code == 400
