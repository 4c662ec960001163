"""What the emulator can be told at its start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.job_service.images import Image
from deploy.local.job_service.states import PERMANENT_EXITS

REJECT = "reject"
QUEUE = "queue"


@dataclass(frozen=True)
class Options:
    """Every limit off by default but the documented ones that cost nothing."""

    state: Path
    project: str = "kickoff-local"
    region: str = "us-central1"
    images: Mapping[str, Image] = field(default_factory=dict)
    logs_topic: str = ""
    """``projects/P/topics/T`` for the service's log lines, as a Cloud Logging sink sends them; empty: none."""
    numeric_projects: bool = False
    """Answer with ``projects/<number>/…``, as the service does."""
    submissions_per_minute: int = 0
    """Creates a minute, project and region; the service allows 60. 0: no limit."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Quota metric, less ``aiplatform.googleapis.com/``, to limit, e.g. ``custom_model_training_nvidia_t4_gpus``."""
    quota_mode: str = QUEUE
    """``queue``: a job beyond the quota stays QUEUED; ``reject``: its create answers 429."""
    unusable_service_accounts: tuple[str, ...] = ()
    bucket_locations: Mapping[str, str] = field(default_factory=dict)
    """Bucket to location, for the rule that a job's bucket lies in its region; others are not checked."""
    mounts: tuple[str, ...] = ()
    """Buckets that every replica sees at ``/gcs``, for images whose code names them; others need naming in the spec."""
    startup_deadline: float = 600.0
    """Seconds of the emulator's clock that replicas may take until all are up."""
    error_delay: float = 0.0
    """Seconds of the emulator's clock until `error` of a failed job is filled; the service takes about a minute."""
    grace: float = 2.0
    """Wall seconds between SIGTERM and SIGKILL."""
    restart_delay: float = 0.1
    """Wall seconds before a failed replica starts again."""
    permanent_exits: frozenset[int] = PERMANENT_EXITS
    clock_speed: float = 1.0
    verbose: bool = False
