"""The JobService API's CustomJob as data: its messages, fields, types and enums.

From the public protos ``google.cloud.aiplatform.v1``; tests/kickoff/test_spec_reader.py holds them together.
"""

import re
from collections.abc import Mapping

from kickoff.machines import ACCELERATORS

ENUMS: Mapping[str, Mapping[str, int]] = {
    "AcceleratorType": ACCELERATORS,
    "Strategy": {
        "STRATEGY_UNSPECIFIED": 0,
        "ON_DEMAND": 1,
        "LOW_COST": 2,
        "STANDARD": 3,
        "SPOT": 4,
        "FLEX_START": 6,
    },
    "ReservationType": {
        "TYPE_UNSPECIFIED": 0,
        "NO_RESERVATION": 1,
        "ANY_RESERVATION": 2,
        "SPECIFIC_RESERVATION": 3,
    },
}

MESSAGES: Mapping[str, Mapping[str, str]] = {
    "CustomJob": {
        "displayName": "string",
        "jobSpec": "CustomJobSpec",
        "labels": "map",
        "encryptionSpec": "EncryptionSpec",
    },
    "CustomJobSpec": {
        "persistentResourceId": "string",
        "workerPoolSpecs": "WorkerPoolSpec[]",
        "scheduling": "Scheduling",
        "serviceAccount": "string",
        "network": "string",
        "reservedIpRanges": "string[]",
        "pscInterfaceConfig": "PscInterfaceConfig",
        "baseOutputDirectory": "GcsDestination",
        "protectedArtifactLocationId": "string",
        "tensorboard": "string",
        "enableWebAccess": "bool",
        "enableDashboardAccess": "bool",
        "experiment": "string",
        "experimentRun": "string",
        "models": "string[]",
    },
    "WorkerPoolSpec": {
        "containerSpec": "ContainerSpec",
        "pythonPackageSpec": "PythonPackageSpec",
        "machineSpec": "MachineSpec",
        "replicaCount": "int64",
        "nfsMounts": "NfsMount[]",
        "lustreMounts": "LustreMount[]",
        "diskSpec": "DiskSpec",
    },
    "ContainerSpec": {"imageUri": "string", "command": "string[]", "args": "string[]", "env": "EnvVar[]"},
    "EnvVar": {"name": "string", "value": "string"},
    "PythonPackageSpec": {
        "executorImageUri": "string",
        "packageUris": "string[]",
        "pythonModule": "string",
        "args": "string[]",
        "env": "EnvVar[]",
    },
    "MachineSpec": {
        "machineType": "string",
        "acceleratorType": "AcceleratorType",
        "acceleratorCount": "int32",
        "gpuPartitionSize": "string",
        "tpuTopology": "string",
        "reservationAffinity": "ReservationAffinity",
    },
    "ReservationAffinity": {"reservationAffinityType": "ReservationType", "key": "string", "values": "string[]"},
    "NfsMount": {"server": "string", "path": "string", "mountPoint": "string"},
    "LustreMount": {"instanceIp": "string", "volumeHandle": "string", "filesystem": "string", "mountPoint": "string"},
    "DiskSpec": {"bootDiskType": "string", "bootDiskSizeGb": "int32"},
    "Scheduling": {
        "timeout": "duration",
        "restartJobOnWorkerRestart": "bool",
        "strategy": "Strategy",
        "disableRetries": "bool",
        "maxWaitDuration": "duration",
    },
    "PscInterfaceConfig": {"networkAttachment": "string", "dnsPeeringConfigs": "DnsPeeringConfig[]"},
    "DnsPeeringConfig": {"domain": "string", "targetProject": "string", "targetNetwork": "string"},
    "GcsDestination": {"outputUriPrefix": "string"},
    "EncryptionSpec": {"kmsKeyName": "string"},
}
"""Message -> field (camelCase) -> its type; ``T[]`` is repeated, ``map`` is string to string."""

OUTPUT_ONLY = frozenset(
    {"name", "state", "createTime", "startTime", "endTime", "updateTime", "error", "webAccessUris"}
    | {"satisfiesPzs", "satisfiesPzi"}
)
"""Fields of CustomJob that only the service sets."""


def snake(name: str) -> str:
    """``replicaCount`` -> ``replica_count``."""
    return re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), name)
