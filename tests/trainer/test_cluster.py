"""Reading CLUSTER_SPEC and TF_CONFIG in the forms that Vertex AI and people write."""

import json
from typing import Any

import pytest

from trainer.cluster import Cluster, parse_cluster, select_strategy
from trainer.errors import InvalidArguments

HOSTS = {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}


def tf_config(cluster: object, task_type: str, index: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}, "job": "{}"})}


def test_one_replica_has_no_tf_config() -> None:
    spec = {"cluster": {"workerpool0": ["a:2222"]}, "environment": "cloud", "task": {"type": "workerpool0", "index": 0}}
    assert parse_cluster({"CLUSTER_SPEC": json.dumps(spec)}) == Cluster()
    assert parse_cluster({}) == Cluster()
    assert Cluster().is_primary


def test_a_worker_of_three() -> None:
    cluster = parse_cluster(tf_config(HOSTS, "worker", "1"))  # the index may be a string of digits
    assert cluster.synchronous == ("a:2222", "b:2222", "c:2222")
    assert (cluster.address, cluster.is_primary, str(cluster)) == ("c:2222", False, "worker 1")
    assert cluster.peers == {"chief 0": "a:2222", "worker 0": "b:2222"}


def test_cluster_spec_alone_names_pools() -> None:
    spec = {
        "cluster": {"workerpool0": ["a:1"], "workerpool1": ["b:1"], "workerpool2": ["p:1"], "workerpool3": ["e:1"]},
        "task": {"type": "workerpool0", "index": 0},
        "job": {"worker_pool_specs": []},
        "open_ports": [3333],
    }
    cluster = parse_cluster({"CLUSTER_SPEC": json.dumps(spec)})
    assert cluster.is_primary and cluster.has_parameter_servers
    assert "evaluator" not in cluster.hosts, "an evaluator in the cluster would be waited for"


def test_an_evaluator_is_in_no_cluster() -> None:
    cluster = parse_cluster(tf_config({**HOSTS, "ps": ["p:1"]}, "evaluator", 0))
    assert cluster.address is None and not cluster.is_primary


def test_ai_platforms_master_is_the_chief() -> None:
    assert parse_cluster(tf_config({"master": ["a:1"], "worker": ["b:1"]}, "master", 0)).is_primary


def test_worker_0_is_primary_where_there_is_no_chief() -> None:
    hosts = {"worker": ["a:1", "b:1"]}
    assert parse_cluster(tf_config(hosts, "worker", 0)).is_primary
    assert not parse_cluster(tf_config(hosts, "worker", 1)).is_primary


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "TF_CONFIG cannot be read"),
        ("[]", "TF_CONFIG cannot be read"),
        ('{"cluster": {"worker": "a:1"}}', "must be a list of host:port"),
        ('{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 3}}', "worker 3"),
        ('{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": "x"}}', "'x'"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, words: str) -> None:
    with pytest.raises(InvalidArguments, match="TF_CONFIG") as caught:
        parse_cluster({"TF_CONFIG": text})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("requested", "hosts", "devices", "expected"),
    [
        ("auto", {}, 0, "none"),
        ("auto", {}, 1, "none"),
        ("auto", {}, 2, "mirrored"),
        ("auto", HOSTS, 2, "multi-worker"),
        ("auto", {**HOSTS, "ps": ["p:1"]}, 0, "parameter-server"),
        ("mirrored", {}, 0, "mirrored"),
    ],
)
def test_strategy_follows_cluster_and_devices(requested: str, hosts: Any, devices: int, expected: str) -> None:
    cluster = Cluster(hosts={name: tuple(addresses) for name, addresses in hosts.items()})
    assert select_strategy(requested, cluster, devices) == expected


def test_strategies_that_would_train_apart_are_refused() -> None:
    cluster = Cluster(hosts={"chief": ("a:1",), "worker": ("b:1",)})
    with pytest.raises(InvalidArguments, match="would each train alone"):
        select_strategy("mirrored", cluster, 0)
    with pytest.raises(InvalidArguments, match="worker pool 2"):
        select_strategy("parameter-server", cluster, 0)
