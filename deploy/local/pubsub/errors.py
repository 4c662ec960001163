"""The emulator's errors: Google's canonical codes, rendered for gRPC and for REST from one place.

https://cloud.google.com/pubsub/docs/reference/error-codes
"""

import grpc

HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}


class PubSubError(Exception):
    """What a call answers when it does not succeed; `code` is a key of HTTP_STATUS."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def grpc_code(self) -> grpc.StatusCode:
        return grpc.StatusCode[self.code]

    @property
    def http_status(self) -> int:
        return HTTP_STATUS[self.code]

    def as_json(self) -> dict[str, object]:
        return {"error": {"code": self.http_status, "message": self.message, "status": self.code}}


def invalid(message: str) -> PubSubError:
    return PubSubError("INVALID_ARGUMENT", message)


def not_found(name: str) -> PubSubError:
    return PubSubError("NOT_FOUND", f"Resource not found (resource={name.rpartition('/')[2]}).")


def already_exists(name: str) -> PubSubError:
    return PubSubError(
        "ALREADY_EXISTS", f"Resource already exists in the project (resource={name.rpartition('/')[2]})."
    )
