"""Which accelerators a machine type takes, and what an hour of it costs. Dated data.

Accelerator pairs: https://cloud.google.com/vertex-ai/docs/training/configure-compute (2026-09).
Enum numbers: ``google.cloud.aiplatform.v1.AcceleratorType``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ACCELERATORS: Mapping[str, int] = {
    "ACCELERATOR_TYPE_UNSPECIFIED": 0,
    "NVIDIA_TESLA_K80": 1,
    "NVIDIA_TESLA_P100": 2,
    "NVIDIA_TESLA_V100": 3,
    "NVIDIA_TESLA_P4": 4,
    "NVIDIA_TESLA_T4": 5,
    "TPU_V2": 6,
    "TPU_V3": 7,
    "NVIDIA_TESLA_A100": 8,
    "NVIDIA_A100_80GB": 9,
    "TPU_V4_POD": 10,
    "NVIDIA_L4": 11,
    "TPU_V5_LITEPOD": 12,
    "NVIDIA_H100_80GB": 13,
    "NVIDIA_H100_MEGA_80GB": 14,
    "NVIDIA_H200_141GB": 15,
    "NVIDIA_B200": 16,
    "NVIDIA_GB200": 17,
    "NVIDIA_RTX_PRO_6000": 18,
}
"""Every name of the API's enum, with its number."""

_N1_SMALL = {"NVIDIA_TESLA_P4", "NVIDIA_TESLA_P100", "NVIDIA_TESLA_T4"}


def _n1(counts: tuple[int, ...], v100: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {**dict.fromkeys(sorted(_N1_SMALL), counts), "NVIDIA_TESLA_V100": v100}


def _n1_machines() -> dict[str, dict[str, tuple[int, ...]]]:
    small = _n1((1, 2, 4), (1, 2, 4, 8))
    large: dict[str, tuple[int, ...]] = {"NVIDIA_TESLA_P4": (4,), "NVIDIA_TESLA_T4": (4,), "NVIDIA_TESLA_V100": (8,)}
    table = {f"n1-{kind}": small for kind in ("standard-4", "standard-8", "highmem-2", "highmem-4", "highmem-8")}
    for family in ("standard", "highmem", "highcpu"):
        table[f"n1-{family}-16"] = _n1((1, 2, 4), (2, 4, 8))
        table[f"n1-{family}-32"] = _n1((2, 4), (4, 8))
        table[f"n1-{family}-64"] = table[f"n1-{family}-96"] = large
    return table


def _bundled() -> dict[str, dict[str, tuple[int, ...]]]:
    """Machine types that always carry a fixed number of one accelerator."""
    fixed = [(f"g2-standard-{n}", "NVIDIA_L4", 1) for n in (4, 8, 12, 16, 32)]
    fixed += [
        ("g2-standard-24", "NVIDIA_L4", 2),
        ("g2-standard-48", "NVIDIA_L4", 4),
        ("g2-standard-96", "NVIDIA_L4", 8),
    ]
    fixed += [(f"a2-highgpu-{n}g", "NVIDIA_TESLA_A100", n) for n in (1, 2, 4, 8)]
    fixed += [("a2-megagpu-16g", "NVIDIA_TESLA_A100", 16)]
    fixed += [(f"a2-ultragpu-{n}g", "NVIDIA_A100_80GB", n) for n in (1, 2, 4, 8)]
    fixed += [(f"a3-highgpu-{n}g", "NVIDIA_H100_80GB", n) for n in (1, 2, 4, 8)]
    fixed += [("a3-megagpu-8g", "NVIDIA_H100_MEGA_80GB", 8), ("a3-ultragpu-8g", "NVIDIA_H200_141GB", 8)]
    fixed += [("a4-highgpu-8g", "NVIDIA_B200", 8), ("a4x-highgpu-4g", "NVIDIA_GB200", 4)]
    fixed += [(f"g4-standard-{48 * n}", "NVIDIA_RTX_PRO_6000", n) for n in (1, 2, 4, 8)]
    return {machine: {accelerator: (count,)} for machine, accelerator, count in fixed}


CLOUD_TPU: Mapping[str, tuple[int, ...]] = {"TPU_V2": (8, 32, 128, 256, 512), "TPU_V3": (8, 32, 64, 128, 256, 512)}

ACCELERATOR_COUNTS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    **_n1_machines(),
    **_bundled(),
    "cloud-tpu": CLOUD_TPU,
}
"""Machine type -> accelerator -> the counts it may have. A machine type absent here takes none."""

BUNDLED_FAMILIES = ("g2-", "a2-", "a3-", "a4-", "a4x-", "g4-")
"""Families whose machines come with their accelerators, and whose price includes them."""

RETIRED = frozenset({"NVIDIA_TESLA_K80"})
"""Accelerators Google no longer offers; the API's enum still names them."""

FLEX_START_ACCELERATORS = frozenset(
    {"NVIDIA_L4", "NVIDIA_TESLA_A100", "NVIDIA_A100_80GB", "NVIDIA_H100_80GB", "NVIDIA_H100_MEGA_80GB"}
    | {"NVIDIA_H200_141GB", "NVIDIA_B200"}
)
"""https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws"""

BOOT_DISK_TYPES = ("pd-ssd", "pd-standard", "hyperdisk-balanced")


def accelerator_fault(machine_type: str, accelerator: str, count: int) -> str:
    """Why this machine type cannot have `count` of `accelerator`, in Vertex AI's words; empty: it can.

    A family that the table does not know at all is let through: Google adds machines faster than this file does.
    """
    counts = ACCELERATOR_COUNTS.get(machine_type, {})
    if accelerator in counts:
        if count in counts[accelerator]:
            return ""
        allowed = ", ".join(map(str, counts[accelerator]))
        return (
            f'The accelerator count "{count}" is not allowed. The allowed numbers of accelerator "{accelerator}" '
            f'to use with machine type "{machine_type}" are: [{allowed}].'
        )
    known = machine_type in ACCELERATOR_COUNTS or machine_type.startswith(_WITHOUT_OTHERS)
    if known or accelerator in RETIRED:
        return f'Accelerator "{accelerator}" is not supported for machine type "{machine_type}"'
    return ""


_WITHOUT_OTHERS = ("e2-", "n1-", "n2-", "n2d-", "c2-", "c2d-", "c3-", "m1-", "g2-", "a2-")
"""Families that are listed whole above: what is not in the table is not offered."""


# Prices ----------------------------------------------------------------------------------------------------------

PRICES_DATE = "2026-09"
PRICES_REGION = "us-central1"
PRICES_SOURCE = "https://cloud.google.com/vertex-ai/pricing"

_VERTEX_FEE = 1.15
"""Vertex AI's table is Compute Engine's list price plus 15 % (checked: n1-standard-4, T4, V100)."""

_CORE_AND_GB: Mapping[str, tuple[float, float]] = {
    "n1": (0.031611, 0.004237),
    "n2": (0.031611, 0.004237),
    "e2": (0.021811, 0.002923),
    "a2": (0.031611, 0.004237),
    "g2": (0.02499, 0.002927),
}
"""Family -> USD per vCPU hour and per GB hour, Compute Engine's list price."""

_GB_PER_CORE: Mapping[str, Mapping[str, float]] = {
    "n1": {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9},
    "n2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "e2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "g2": {"standard": 4.0},
}

_A2_CORES_AND_GB: Mapping[str, tuple[int, int]] = {
    "a2-highgpu-1g": (12, 85),
    "a2-highgpu-2g": (24, 170),
    "a2-highgpu-4g": (48, 340),
    "a2-highgpu-8g": (96, 680),
    "a2-megagpu-16g": (96, 1360),
}

_ACCELERATOR_LIST_PRICES: Mapping[str, float] = {
    "NVIDIA_TESLA_T4": 0.35,
    "NVIDIA_TESLA_V100": 2.48,
    "NVIDIA_TESLA_P100": 1.46,
    "NVIDIA_TESLA_P4": 0.60,
    "NVIDIA_TESLA_A100": 2.933908,
    "NVIDIA_L4": 0.56004,
}
"""USD an hour each. What is missing here is unknown, never free."""

_DISK_GB_MONTH: Mapping[str, float] = {"pd-ssd": 0.17, "pd-standard": 0.04}
_HOURS_A_MONTH = 730


def machine_price(machine_type: str) -> float | None:
    """USD an hour for the vCPUs and memory of one machine; None: not in the catalogue."""
    if machine_type in _A2_CORES_AND_GB:
        cores, gb = _A2_CORES_AND_GB[machine_type]
        return _vm_price("a2", cores, gb)
    family, _, rest = machine_type.partition("-")
    kind, _, size = rest.partition("-")
    gb_per_core = _GB_PER_CORE.get(family, {}).get(kind)
    if gb_per_core is None or not size.isdecimal():
        return None
    return _vm_price(family, int(size), int(size) * gb_per_core)


def _vm_price(family: str, cores: float, gb: float) -> float:
    core_price, gb_price = _CORE_AND_GB[family]
    return (cores * core_price + gb * gb_price) * _VERTEX_FEE


def accelerator_price(accelerator: str) -> float | None:
    """USD an hour for one accelerator; None: not in the catalogue."""
    price = _ACCELERATOR_LIST_PRICES.get(accelerator)
    return None if price is None else price * _VERTEX_FEE


def disk_price(disk_type: str, gb: int) -> float | None:
    """USD an hour for a boot disk; None: not in the catalogue."""
    price = _DISK_GB_MONTH.get(disk_type)
    return None if price is None else price * gb / _HOURS_A_MONTH * _VERTEX_FEE


@dataclass(frozen=True)
class HourlyPrice:
    """What one replica costs an hour; `usd` is None when any part is unknown, and `unknown` names the parts."""

    usd: float | None
    unknown: tuple[str, ...] = ()


def replica_price(machine_type: str, accelerator: str, count: int, disk_type: str, disk_gb: int) -> HourlyPrice:
    """The list price of one replica in PRICES_REGION, without Spot, flexible or committed-use discounts."""
    parts: list[tuple[str, float | None]] = [(machine_type or "a machine without a type", machine_price(machine_type))]
    bundled = machine_type.startswith(BUNDLED_FAMILIES)
    if bundled and not accelerator:
        accelerator, count = _bundled_accelerator(machine_type)
    if accelerator:
        each = accelerator_price(accelerator)
        parts.append((accelerator, None if each is None else each * count))
    parts.append((f"{disk_type} disk", disk_price(disk_type, disk_gb)))
    unknown = tuple(name for name, price in parts if price is None)
    return HourlyPrice(None if unknown else sum(price for _, price in parts if price is not None), unknown)


def _bundled_accelerator(machine_type: str) -> tuple[str, int]:
    for accelerator, counts in ACCELERATOR_COUNTS.get(machine_type, {}).items():
        return accelerator, counts[0]
    return "accelerators of " + machine_type, 1
