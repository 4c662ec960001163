"""Peers find each other, or the missing one is named. Without TensorFlow, so it takes no time."""

import socket
import threading
import time

import pytest

from tests.trainer.conftest import free_ports
from trainer.cluster import Cluster
from trainer.errors import InvalidArguments, PeerAbsent
from trainer.rendezvous import wait_for_peers


def clusters(count: int) -> list[Cluster]:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    hosts = {"chief": (addresses[0],), "worker": tuple(addresses[1:])}
    return [Cluster("chief", 0, hosts)] + [Cluster("worker", index, hosts) for index in range(count - 1)]


def test_replicas_that_start_at_different_times_meet() -> None:
    left: list[float] = []

    def replica(cluster: Cluster, delay: float) -> None:
        time.sleep(delay)
        left.append(wait_for_peers(cluster, 30))
        # What TensorFlow does next on this port, and what a late peer then finds there.
        host, port = (cluster.address or "").split(":")
        with socket.create_server((host, int(port))):
            time.sleep(1.5)

    threads = [
        threading.Thread(target=replica, args=(cluster, 0.3 * index)) for index, cluster in enumerate(clusters(3))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(left) == 3 and all(seconds > 20 for seconds in left)


def test_the_peer_that_never_comes_is_named() -> None:
    chief, worker, _ = clusters(3)
    met = threading.Thread(target=gives_up, args=(worker,))
    met.start()
    with pytest.raises(PeerAbsent) as caught:
        wait_for_peers(chief, 1.0)
    met.join(10)
    assert f"worker 1 ({chief.hosts['worker'][1]})" in str(caught.value)
    assert "worker 0" not in str(caught.value)


def gives_up(cluster: Cluster) -> None:
    with pytest.raises(PeerAbsent):
        wait_for_peers(cluster, 1.0)


def test_unequal_numbers_of_accelerators_are_refused() -> None:
    chief, worker, _ = clusters(3)
    said: list[str] = []

    def replica(cluster: Cluster, accelerators: int) -> None:
        try:
            wait_for_peers(cluster, 1.5, accelerators)
        except (InvalidArguments, PeerAbsent) as error:
            said.append(str(error))

    threads = [threading.Thread(target=replica, args=values) for values in ((chief, 2), (worker, 4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert any("accelerators" in words and "all need the same number" in words for words in said), said


def test_a_single_process_waits_for_nobody() -> None:
    assert wait_for_peers(Cluster(), 5) == 5
