"""Pub/Sub: publish. Effect.

The stock client, which honours ``PUBSUB_EMULATOR_HOST``; imported and made at the first message.
"""

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from kickoff.errors import PublishFailed
from kickoff.points import around

if TYPE_CHECKING:
    from google.cloud import pubsub_v1

_PATIENCE = 20.0
"""Seconds that one message may take, the client's own retries included."""


class Bus:
    """Shared by threads."""

    def __init__(self) -> None:
        self._making = threading.Lock()

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> str:
        """Publish to ``projects/P/topics/T`` and wait for the message's id. Raises PublishFailed."""
        from google.api_core.exceptions import GoogleAPIError
        from google.api_core.retry import Retry
        from google.auth.exceptions import GoogleAuthError

        with self._making:
            client = self._client
        try:
            with around("bus.publish"):
                sent = client.publish(topic, data, retry=Retry(timeout=_PATIENCE), timeout=_PATIENCE, **attributes)
                return str(sent.result(timeout=_PATIENCE + 5))
        except (GoogleAPIError, GoogleAuthError, TimeoutError, ValueError, TypeError) as error:
            raise PublishFailed(f"{topic} did not take a message: {str(error)[:300]}") from error

    @cached_property
    def _client(self) -> "pubsub_v1.PublisherClient":
        from google.cloud import pubsub_v1

        return pubsub_v1.PublisherClient()
