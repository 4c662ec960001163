"""The catalogue: accelerator pairs as Vertex AI names them, and prices that are dated or unknown."""

import pytest
from google.cloud import aiplatform_v1
from kickoff.machines import ACCELERATOR_COUNTS, ACCELERATORS, accelerator_fault, machine_price, replica_price


def test_accelerators_have_the_apis_numbers() -> None:
    assert {member.name: member.value for member in aiplatform_v1.AcceleratorType} == ACCELERATORS
    assert {name for counts in ACCELERATOR_COUNTS.values() for name in counts} <= set(ACCELERATORS)


@pytest.mark.parametrize(
    ("machine", "accelerator", "count"),
    [
        ("n1-standard-4", "NVIDIA_TESLA_T4", 4),
        ("n1-standard-4", "NVIDIA_TESLA_V100", 2),
        ("n1-standard-16", "NVIDIA_TESLA_V100", 2),
        ("n1-highmem-2", "NVIDIA_TESLA_P4", 1),
        ("a2-megagpu-16g", "NVIDIA_TESLA_A100", 16),
        ("a3-ultragpu-8g", "NVIDIA_H200_141GB", 8),
        ("g4-standard-384", "NVIDIA_RTX_PRO_6000", 8),
        ("cloud-tpu", "TPU_V3", 8),
        ("z9-supergpu-8g", "NVIDIA_GB200", 8),
    ],
)
def test_pairs_that_exist_or_may(machine: str, accelerator: str, count: int) -> None:
    assert accelerator_fault(machine, accelerator, count) == ""


@pytest.mark.parametrize(
    ("machine", "accelerator", "count", "words"),
    [
        ("n1-standard-4", "NVIDIA_TESLA_T4", 3, "are: [1, 2, 4]."),
        ("n1-standard-16", "NVIDIA_TESLA_V100", 1, "are: [2, 4, 8]."),
        ("n1-standard-2", "NVIDIA_TESLA_T4", 1, "not supported for machine type"),
        ("n1-standard-4", "NVIDIA_TESLA_K80", 1, "not supported for machine type"),
        ("z9-any-8", "NVIDIA_TESLA_K80", 1, "not supported for machine type"),
        ("e2-standard-4", "NVIDIA_TESLA_T4", 1, "not supported for machine type"),
        ("g2-standard-24", "NVIDIA_L4", 1, "are: [2]."),
        ("a2-highgpu-1g", "NVIDIA_A100_80GB", 1, "not supported for machine type"),
    ],
)
def test_pairs_that_do_not_exist(machine: str, accelerator: str, count: int, words: str) -> None:
    assert words in accelerator_fault(machine, accelerator, count)


def test_prices_are_those_of_vertex_ais_table() -> None:
    assert machine_price("n1-standard-4") == pytest.approx(0.21849885)
    gpu = replica_price("n1-standard-4", "NVIDIA_TESLA_T4", 1, "pd-ssd", 100)
    assert gpu.usd == pytest.approx(0.21849885 + 0.4025 + 100 * 0.17 / 730 * 1.15)
    v100 = replica_price("n1-standard-8", "NVIDIA_TESLA_V100", 2, "pd-standard", 100)
    assert v100.usd == pytest.approx(2 * 0.21849885 + 2 * 2.852 + 100 * 0.04 / 730 * 1.15)


def test_a_machine_that_carries_its_accelerators_costs_them_unasked() -> None:
    asked = replica_price("g2-standard-24", "NVIDIA_L4", 2, "pd-ssd", 100)

    assert asked.usd and asked == replica_price("g2-standard-24", "", 0, "pd-ssd", 100)
    assert replica_price("a2-highgpu-1g", "", 0, "pd-ssd", 100).usd == pytest.approx(4.2244 + 0.0268, abs=0.001)


@pytest.mark.parametrize(
    ("machine", "accelerator", "disk", "unknown"),
    [
        ("z9-any-8", "", "pd-ssd", ("z9-any-8",)),
        ("n1-standard", "", "pd-ssd", ("n1-standard",)),
        (
            "a3-highgpu-8g",
            "NVIDIA_H100_80GB",
            "hyperdisk-balanced",
            ("a3-highgpu-8g", "NVIDIA_H100_80GB", "hyperdisk-balanced disk"),
        ),
        ("g2-unheard-4", "", "pd-ssd", ("g2-unheard-4", "accelerators of g2-unheard-4")),
        ("", "", "pd-ssd", ("a machine without a type",)),
    ],
)
def test_an_unknown_price_is_unknown_and_never_nothing(
    machine: str, accelerator: str, disk: str, unknown: tuple[str, ...]
) -> None:
    price = replica_price(machine, accelerator, 8, disk, 100)

    assert price.usd is None and price.unknown == unknown
