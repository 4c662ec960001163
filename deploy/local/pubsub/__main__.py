"""`python -m deploy.local.pubsub --port 8085`: the emulator until SIGTERM or SIGINT."""

import argparse
import signal
import sys
import threading

from deploy.local.pubsub.broker import DEFAULT_MAX_BYTES
from deploy.local.pubsub.server import PubSubServer


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise ValueError
    return number


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.local.pubsub", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_port, default=8085, help="gRPC; 0: any free one")
    parser.add_argument("--http-port", type=_port, default=0, help="REST, for gcloud; 0: any free one")
    parser.add_argument("--max-bytes", type=int, default=DEFAULT_MAX_BYTES, help="held unacknowledged, at most")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        server = PubSubServer(options.port, options.http_port, options.host, options.max_bytes)
    except OSError as error:
        print(f"pubsub: {error}", file=sys.stderr)
        return 1
    with server:
        print(f"pubsub: grpc {server.endpoint} rest {server.http_url}", flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
