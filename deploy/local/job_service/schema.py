"""The messages of the JobService API that the emulator reads, as data.

Taken from the public protos (google/cloud/aiplatform/v1); a test compares every row with the descriptors
that google-cloud-aiplatform ships. Kept as data because importing those takes 0.85 s and 108 MB.
"""

from collections.abc import Mapping

from kickoff.machines import ACCELERATORS

Fields = Mapping[str, str]
"""Field name to type. ``[]T`` is a list of T, ``{}`` a map of strings to strings; anything else that is
not a key of SCALARS, ENUMS or WELL_KNOWN names another message."""

SCALARS = {"string": "TYPE_STRING", "int32": "TYPE_INT32", "int64": "TYPE_INT64", "bool": "TYPE_BOOL"}
WELL_KNOWN = frozenset({"Duration", "Timestamp", "Any"})

MESSAGES: Mapping[str, Fields] = {
    "CustomJob": {
        "name": "string",
        "display_name": "string",
        "job_spec": "CustomJobSpec",
        "state": "JobState",
        "create_time": "Timestamp",
        "start_time": "Timestamp",
        "end_time": "Timestamp",
        "update_time": "Timestamp",
        "error": "Status",
        "labels": "{}",
        "encryption_spec": "EncryptionSpec",
        "web_access_uris": "{}",
        "satisfies_pzs": "bool",
        "satisfies_pzi": "bool",
    },
    "CustomJobSpec": {
        "persistent_resource_id": "string",
        "worker_pool_specs": "[]WorkerPoolSpec",
        "scheduling": "Scheduling",
        "service_account": "string",
        "network": "string",
        "reserved_ip_ranges": "[]string",
        "psc_interface_config": "PscInterfaceConfig",
        "base_output_directory": "GcsDestination",
        "protected_artifact_location_id": "string",
        "tensorboard": "string",
        "enable_web_access": "bool",
        "enable_dashboard_access": "bool",
        "experiment": "string",
        "experiment_run": "string",
        "models": "[]string",
    },
    "WorkerPoolSpec": {
        "container_spec": "ContainerSpec",
        "python_package_spec": "PythonPackageSpec",
        "machine_spec": "MachineSpec",
        "replica_count": "int64",
        "nfs_mounts": "[]NfsMount",
        "lustre_mounts": "[]LustreMount",
        "disk_spec": "DiskSpec",
    },
    "ContainerSpec": {"image_uri": "string", "command": "[]string", "args": "[]string", "env": "[]EnvVar"},
    "EnvVar": {"name": "string", "value": "string"},
    "PythonPackageSpec": {
        "executor_image_uri": "string",
        "package_uris": "[]string",
        "python_module": "string",
        "args": "[]string",
        "env": "[]EnvVar",
    },
    "MachineSpec": {
        "machine_type": "string",
        "accelerator_type": "AcceleratorType",
        "accelerator_count": "int32",
        "gpu_partition_size": "string",
        "tpu_topology": "string",
        "reservation_affinity": "ReservationAffinity",
    },
    "ReservationAffinity": {
        "reservation_affinity_type": "ReservationAffinityType",
        "key": "string",
        "values": "[]string",
    },
    "NfsMount": {"server": "string", "path": "string", "mount_point": "string"},
    "LustreMount": {
        "instance_ip": "string",
        "volume_handle": "string",
        "filesystem": "string",
        "mount_point": "string",
    },
    "DiskSpec": {"boot_disk_type": "string", "boot_disk_size_gb": "int32"},
    "Scheduling": {
        "timeout": "Duration",
        "restart_job_on_worker_restart": "bool",
        "strategy": "Strategy",
        "disable_retries": "bool",
        "max_wait_duration": "Duration",
    },
    "PscInterfaceConfig": {"network_attachment": "string", "dns_peering_configs": "[]DnsPeeringConfig"},
    "DnsPeeringConfig": {"domain": "string", "target_project": "string", "target_network": "string"},
    "GcsDestination": {"output_uri_prefix": "string"},
    "EncryptionSpec": {"kms_key_name": "string"},
    "Status": {"code": "int32", "message": "string", "details": "[]Any"},
}

ONEOFS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "WorkerPoolSpec": {"task": ("container_spec", "python_package_spec")},
}

ENUMS: Mapping[str, Mapping[str, int]] = {
    "JobState": {
        "JOB_STATE_UNSPECIFIED": 0,
        "JOB_STATE_QUEUED": 1,
        "JOB_STATE_PENDING": 2,
        "JOB_STATE_RUNNING": 3,
        "JOB_STATE_SUCCEEDED": 4,
        "JOB_STATE_FAILED": 5,
        "JOB_STATE_CANCELLING": 6,
        "JOB_STATE_CANCELLED": 7,
        "JOB_STATE_PAUSED": 8,
        "JOB_STATE_EXPIRED": 9,
        "JOB_STATE_UPDATING": 10,
        "JOB_STATE_PARTIALLY_SUCCEEDED": 11,
    },
    "AcceleratorType": ACCELERATORS,
    "ReservationAffinityType": {
        "TYPE_UNSPECIFIED": 0,
        "NO_RESERVATION": 1,
        "ANY_RESERVATION": 2,
        "SPECIFIC_RESERVATION": 3,
    },
    "Strategy": {"STRATEGY_UNSPECIFIED": 0, "ON_DEMAND": 1, "LOW_COST": 2, "STANDARD": 3, "SPOT": 4, "FLEX_START": 6},
}

OUTPUT_ONLY = frozenset(
    {
        "name", "state", "create_time", "start_time", "end_time", "update_time", "error", "web_access_uris",
        "satisfies_pzs", "satisfies_pzi",
    }
)  # fmt: skip
"""Fields of CustomJob that the service sets; what a request says there is ignored."""


def camel(name: str) -> str:
    """``worker_pool_specs`` to ``workerPoolSpecs``, as protobuf's JSON mapping does."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
