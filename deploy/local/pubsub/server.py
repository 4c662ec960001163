"""The Pub/Sub emulator as an object: `with PubSubServer() as server: server.endpoint`."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from deploy.local.pubsub.api import Api
from deploy.local.pubsub.broker import DEFAULT_MAX_BYTES, Broker
from deploy.local.pubsub.grpc_server import MAX_CALLS, build_server
from deploy.local.pubsub.rest import RestServer

TICK_SECONDS = 0.1


class PubSubServer:
    """Listens once `start` returns. `port` 0 takes any free port; `http_port` None serves no REST.

    State is in memory: topics, subscriptions and unacknowledged messages are gone after `stop`.
    """

    def __init__(
        self, port: int = 0, http_port: int | None = 0, host: str = "127.0.0.1", max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        self._host = host
        self._broker = Broker(max_bytes)
        self._api = Api(self._broker)
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="pubsub-grpc")
        self._grpc, self._port = build_server(self._api, f"{host}:{port}", self._pool)
        self._rest = None if http_port is None else RestServer(self._api, host, http_port)
        self._threads = [threading.Thread(target=self._tick, name="pubsub-clock", daemon=True)]
        if self._rest is not None:
            self._threads.append(threading.Thread(target=self._rest.serve_forever, args=(0.1,), daemon=True))

    @property
    def endpoint(self) -> str:
        """``host:port`` for PUBSUB_EMULATOR_HOST."""
        return f"{self._host}:{self._port}"

    @property
    def http_url(self) -> str:
        """``http://host:port/`` for CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB; empty without REST."""
        return f"http://{self._host}:{self._rest.server_address[1]}/" if self._rest else ""

    def start(self) -> Self:
        self._grpc.start()
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Ends every stream, pull and push, and frees the ports. Can be called twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._api.close()
        self._broker.close()
        if self._rest is not None:
            self._rest.shutdown()
            self._rest.server_close()
        self._grpc.stop(grace=0.2).wait(1.0)
        self._pool.shutdown(wait=False)
        self._threads[0].join(1.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _tick(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            self._broker.tick()
