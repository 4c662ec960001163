"""What an entry point works with, each part made when it is first needed: a cold start pays for no other."""

import threading
from functools import cached_property
from typing import TYPE_CHECKING

from kickoff.settings import Settings

if TYPE_CHECKING:
    from kickoff.bus import Bus
    from kickoff.ledger.protocol import Ledger
    from kickoff.policy import Policy
    from kickoff.recipes import Recipes
    from kickoff.storage import Storage
    from kickoff.vertex import Vertex


class Clients:
    """Lazily made clients of one deployment, shared by the threads of a process.

    Recipes and policy are files beside the code: read once a process. Raises ConfigurationError where they are wrong.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._making = threading.RLock()

    @cached_property
    def ledger(self) -> "Ledger":
        from kickoff.ledger import open_ledger

        with self._making:
            return self.__dict__.get("ledger") or open_ledger(self.settings.ledger)

    @cached_property
    def vertex(self) -> "Vertex":
        from kickoff.vertex import Vertex

        return Vertex(self.settings)

    @cached_property
    def storage(self) -> "Storage":
        from kickoff.storage import Storage

        return Storage(self.settings.project)

    @cached_property
    def bus(self) -> "Bus":
        from kickoff.bus import Bus

        return Bus()

    @cached_property
    def recipes(self) -> "Recipes":
        from kickoff.recipes import load_recipes
        from kickoff.templates import TemplateValues

        files = {path.name: path.read_text() for path in sorted(self.settings.recipes.glob("*.yaml"))}
        return load_recipes(files, TemplateValues.from_settings(self.settings))

    @cached_property
    def policy(self) -> "Policy":
        from kickoff.policy import load_policy

        text = self.settings.policy.read_text() if self.settings.policy.exists() else ""
        return load_policy(text, self.settings)
