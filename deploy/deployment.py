"""One deployment on Google Cloud: what is deployed where."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kickoff.settings import Settings


@dataclass(frozen=True)
class Deployment:
    """What is deployed where. `variables` are the module's own (deploy/gcp/variables.tf)."""

    project: str
    region: str
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state_bucket(self) -> str:
        return f"{self.project}-kickoff-state"

    @property
    def trainer_image(self) -> str:
        """The image that was brought along; empty: the deployment builds one."""
        return str(self.variables.get("trainer_image") or "")

    @property
    def settings(self) -> Settings:
        """As the functions will have them, for the checks before a deployment."""
        sample = f"{self.region}-docker.pkg.dev/{self.project}/kickoff/trainer@sha256:{'0' * 64}"
        environ = {"KICKOFF_PROJECT": self.project, "KICKOFF_REGION": self.region}
        return Settings.from_environ({**environ, "KICKOFF_TRAINER_IMAGE": self.trainer_image or sample})
