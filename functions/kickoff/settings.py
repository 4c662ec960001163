"""All settings, from the environment: the only module that knows the variables' names.

Local and cloud differ in these values alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kickoff.errors import ConfigurationError, Fault

SOURCE = Path(__file__).resolve().parents[1]
"""The folder that is uploaded as the functions' source."""


@dataclass(frozen=True)
class Settings:
    project: str
    region: str
    ledger: str
    """``sqlite:///absolute/path.db`` or ``firestore://project/database``."""
    recipes: Path
    policy: Path
    vertex_endpoint: str
    """``https://…`` in the cloud; an ``http://`` endpoint is never sent credentials."""
    staging: str
    """``gs://bucket/prefix``: dataset snapshots are written below it."""
    trainer_image: str
    events_topic: str
    """``projects/P/topics/T``: the trainer publishes its progress here; empty: not at all."""
    finished_topic: str
    """``projects/P/topics/T``: `dev.kickoff.run.finished.v1` goes here; empty: not published."""
    service_account: str
    """The account that jobs run as; empty: Vertex AI's default agent."""
    create_timeout: float
    """Seconds that CreateCustomJob may take."""
    lease_margin: float
    """Seconds beyond the create deadline before another process may resolve a submission."""
    webhook: str
    """Where the end of a run is told to people, in Slack's form; empty: nowhere."""
    dashboard_url: str
    page_actions: bool = False
    """Whether the dashboard may cancel and rerun."""
    logging_endpoint: str = "https://logging.googleapis.com"
    """Cloud Logging; an ``http://`` endpoint is never sent credentials."""

    @property
    def lease(self) -> float:
        """Seconds that a submission is its holder's alone."""
        return self.create_timeout + self.lease_margin

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read ``KICKOFF_*``. Raises ConfigurationError naming every variable that is wrong."""
        faults: list[Fault] = []
        project = environ.get("KICKOFF_PROJECT") or environ.get("GOOGLE_CLOUD_PROJECT", "")
        if not project:
            faults.append(_fault("KICKOFF_PROJECT", "is not set; set it to the Google Cloud project id"))
        region = environ.get("KICKOFF_REGION", "us-central1")
        settings = cls(
            project=project,
            region=region,
            ledger=_ledger(environ, project, faults),
            recipes=Path(environ.get("KICKOFF_RECIPES", SOURCE / "recipes")),
            policy=Path(environ.get("KICKOFF_POLICY", SOURCE / "policy.yaml")),
            vertex_endpoint=environ.get("KICKOFF_VERTEX_ENDPOINT", f"https://{region}-aiplatform.googleapis.com"),
            staging=environ.get("KICKOFF_STAGING", f"gs://{project}-staging/kickoff"),
            trainer_image=environ.get("KICKOFF_TRAINER_IMAGE", ""),
            events_topic=environ.get("KICKOFF_EVENTS_TOPIC", ""),
            finished_topic=environ.get("KICKOFF_FINISHED_TOPIC", ""),
            service_account=environ.get("KICKOFF_SERVICE_ACCOUNT", ""),
            create_timeout=_seconds(environ, "KICKOFF_CREATE_TIMEOUT", 60.0, faults),
            lease_margin=_seconds(environ, "KICKOFF_LEASE_MARGIN", 120.0, faults),
            webhook=environ.get("KICKOFF_WEBHOOK", ""),
            dashboard_url=environ.get("KICKOFF_DASHBOARD_URL", ""),
            page_actions=environ.get("KICKOFF_PAGE_ACTIONS", "") == "allow",
            logging_endpoint=environ.get("KICKOFF_LOGGING_ENDPOINT", cls.logging_endpoint),
        )
        if faults:
            raise ConfigurationError.from_faults(faults)
        return settings


def _ledger(environ: Mapping[str, str], project: str, faults: list[Fault]) -> str:
    url = environ.get("KICKOFF_LEDGER", f"firestore://{project}/(default)")
    if not url.startswith(("sqlite:///", "firestore://")):
        faults.append(
            _fault("KICKOFF_LEDGER", f"is {url!r}; it must be sqlite:///PATH or firestore://PROJECT/DATABASE")
        )
    return url


def _seconds(environ: Mapping[str, str], name: str, default: float, faults: list[Fault]) -> float:
    text = environ.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 3600:
        faults.append(_fault(name, f"is {text!r}; it must be a number of seconds above 0 and at most 3600"))
    return value


def _fault(name: str, rest: str) -> Fault:
    return Fault(name, f"{name} {rest}")
