"""Which deployment a command speaks to: the one that ``KICKOFF_*`` names, else the local stack that runs."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kickoff.clients import Clients
from kickoff.errors import ConfigurationError
from kickoff.settings import Settings

from deploy.local.processes import answers
from deploy.local.stack import PROJECT, REGION, TRAINER_IMAGE, default_state, running_environ


@dataclass(frozen=True)
class Target:
    """Settings and clients of one deployment."""

    settings: Settings

    @cached_property
    def clients(self) -> Clients:
        return Clients(self.settings)


def connect(state: Path | None = None) -> Target:
    """The target of this command. Raises ConfigurationError that says what to start or to set.

    Puts a local stack's variables into this process's environment, where the official clients read them.
    """
    gone = dead_emulator(os.environ)
    if gone or "KICKOFF_PROJECT" not in os.environ:
        environ = running_environ(state or default_state())
        if environ is None and gone:
            raise ConfigurationError(
                f"PUBSUB_EMULATOR_HOST is {gone}, where nothing listens: these are the variables of a local stack "
                "that has ended. Start one with `kickoff local`"
            )
        if environ is None:
            raise ConfigurationError(
                "no local stack is running and KICKOFF_PROJECT is not set. Start one with `kickoff local`, "
                "or set KICKOFF_PROJECT and KICKOFF_REGION to reach a deployment on Google Cloud"
            )
        os.environ.update(environ)
    return Target(Settings.from_environ(os.environ))


def dead_emulator(environ: Mapping[str, str]) -> str:
    """The local Pub/Sub emulator that these variables name, if nothing listens there; else an empty string."""
    address = environ.get("PUBSUB_EMULATOR_HOST", "")
    local = address.startswith(("127.0.0.1:", "localhost:"))
    return address if local and not answers(address) else ""


def offline_settings(state: Path | None = None) -> Settings:
    """Settings for what needs recipes and policy alone: the target's, else those that a local stack would have."""
    environ = os.environ if "KICKOFF_PROJECT" in os.environ else running_environ(state or default_state())
    return Settings.from_environ(
        environ or {"KICKOFF_PROJECT": PROJECT, "KICKOFF_REGION": REGION, "KICKOFF_TRAINER_IMAGE": TRAINER_IMAGE}
    )
