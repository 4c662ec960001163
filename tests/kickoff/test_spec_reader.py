"""The API's fields as data are those of the installed protos, and the reader reads as protobuf's JSON parser does."""

from typing import Any

import pytest
from google.cloud import aiplatform_v1
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from kickoff.spec_fields import ENUMS, MESSAGES, OUTPUT_ONLY, snake
from kickoff.spec_reader import Reader

JOB = aiplatform_v1.CustomJob.pb()
_ENUM_NAMES = {"Type": "ReservationType"}
_SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}


def kind_of(field: FieldDescriptor) -> str:
    if field.message_type and field.message_type.GetOptions().map_entry:
        return "map"
    if field.message_type:
        kind = "duration" if field.message_type.name == "Duration" else field.message_type.name
    elif field.enum_type:
        kind = _ENUM_NAMES.get(field.enum_type.name, field.enum_type.name)
    else:
        kind = _SCALARS[field.type]
    return f"{kind}[]" if field.is_repeated else kind


def described(descriptor: Descriptor, found: dict[str, dict[str, str]]) -> None:
    fields = {field.json_name: kind_of(field) for field in descriptor.fields}
    if descriptor.name == "CustomJob":
        fields = {name: kind for name, kind in fields.items() if name not in OUTPUT_ONLY}
    found[descriptor.name] = fields
    for field in descriptor.fields:
        if field.message_type and field.json_name in fields and fields[field.json_name] not in ("map", "duration"):
            described(field.message_type, found)


def test_the_field_lists_are_those_of_the_protos() -> None:
    found: dict[str, dict[str, str]] = {}
    described(JOB.DESCRIPTOR, found)

    assert found == MESSAGES


def test_the_enums_are_those_of_the_protos() -> None:
    protos = {
        "AcceleratorType": aiplatform_v1.AcceleratorType,
        "Strategy": aiplatform_v1.Scheduling.Strategy,
        "ReservationType": aiplatform_v1.ReservationAffinity.Type,
    }
    for name, proto in protos.items():
        assert {member.name: member.value for member in proto} == ENUMS[name]


def value_of(kind: str) -> st.SearchStrategy[Any]:
    if kind.endswith("[]"):
        return st.lists(value_of(kind[:-2]), max_size=2)
    if kind in MESSAGES:
        return message_of(kind)
    if kind in ENUMS:
        return st.sampled_from([*ENUMS[kind], *ENUMS[kind].values()])
    return {
        "string": st.text(max_size=5),
        "bool": st.booleans(),
        "int32": st.integers(-(2**31) + 1, 2**31 - 1) | st.integers(0, 99).map(str),
        "int64": st.integers(-(2**53), 2**53) | st.integers(0, 99).map(str),
        "map": st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
        "duration": st.integers(0, 10**6).map(lambda seconds: f"{seconds}s"),
    }[kind]


def message_of(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: value_of(each) for name, each in MESSAGES[kind].items()}
    if kind == "WorkerPoolSpec":  # protobuf takes one of the two alone, which is a rule of spec_rules.py here
        del fields["pythonPackageSpec"]
    spelled = st.sampled_from([lambda name: name, snake])
    whole = st.fixed_dictionaries({}, optional=fields)
    return st.tuples(whole, spelled).map(lambda pair: {pair[1](name): value for name, value in pair[0].items()})


@settings(max_examples=150, deadline=None)
@given(message_of("CustomJob"))
def test_what_protobuf_reads_is_read_the_same(job: dict[str, Any]) -> None:
    reader = Reader()
    read = reader.message("CustomJob", job, ())

    assert reader.faults == []
    theirs, ours = type(JOB())(), type(JOB())()
    json_format.ParseDict(job, theirs)
    json_format.ParseDict(read, ours)
    assert ours == theirs


@pytest.mark.parametrize(
    "job",
    [
        {"foo": 1},
        {"jobSpec": {"workerPoolSpecs": [{"replicaCount": 1.5}]}},
        {"jobSpec": {"workerPoolSpecs": [{"replicaCount": 2**63}]}},
        {"jobSpec": {"workerPoolSpecs": [None]}},
        {"jobSpec": {"workerPoolSpecs": {}}},
        {"jobSpec": {"scheduling": {"strategy": "AUTOMATIC"}}},
        {"jobSpec": {"scheduling": {"timeout": "1h"}}},
        {"jobSpec": {"enableWebAccess": "yes"}},
        {"labels": {"a": 1}},
        {"displayName": 5},
    ],
)
def test_what_protobuf_refuses_is_refused(job: dict[str, Any]) -> None:
    reader = Reader()
    reader.message("CustomJob", job, ())

    assert reader.faults
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict(job, type(JOB())())


def test_null_is_absent_and_names_replace_numbers() -> None:
    reader = Reader()
    spec = {"machine_spec": {"accelerator_type": 7, "machine_type": None}, "disk_spec": None, "replica_count": "2"}

    assert reader.message("WorkerPoolSpec", spec, ()) == {
        "machineSpec": {"acceleratorType": "TPU_V3"},
        "replicaCount": 2,
    }
