"""What `kickoff demo` shows of each recipe: a dataset small enough for a laptop, and what starts its run."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from deploy import digits, photos
from deploy.local.stack import PROJECT

BUCKET = f"{PROJECT}-data"
_UPLOADERS = 16


@dataclass(frozen=True)
class Scene:
    """One recipe's demo."""

    dataset: str
    """What the images are."""
    count: int
    files: Callable[[], Iterator[tuple[str, bytes]]]
    root: str
    """Where below the data bucket they go, with the slash at its end."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """What a message changes of the recipe, so that a laptop can train it; none: the marker alone starts the run."""
    least: float = 0.0
    """The validation accuracy that the demo promises."""

    @property
    def starts_by_upload(self) -> bool:
        return not self.args

    def request(self, recipe: str) -> dict[str, Any]:
        """The message that asks for the run."""
        return {"recipe": recipe, "dataset": f"gs://{BUCKET}/{self.root}", "args": dict(self.args)}


def _photos(least: float, **args: Any) -> Scene:
    # Below no recipe's root, so that the upload starts nothing.
    what = "cuts of scikit-learn's two photographs, half of them a temple and half a flower"
    return Scene(what, photos.COUNT, photos.photo_files, "demo/photos/", args, least)


SCENES: Mapping[str, Scene] = {
    "digits": Scene(
        "handwritten digits (scikit-learn's copy of the UCI set, CC BY 4.0)",
        digits.COUNT,
        digits.digit_files,
        "datasets/digits/",
        least=0.93,  # the recipe fixes the seed, and reaches about 0.98
    ),
    # These learn to tell the two apart without fault; synchronous ones, from a seed, the same way each time.
    "flowers-multi-gpu": _photos(0.9, **{"epochs": 15, "batch-size": 8}),
    "flowers-multi-machine": _photos(0.9, **{"epochs": 15, "batch-size": 8}),
    "flowers-parameter-server": _photos(0.7, **{"epochs": 15, "batch-size": 8}),
    # One epoch of a ResNet50 from nothing learns nothing: this one shows the road, not the model.
    "cassava": _photos(0.0, **{"epochs": 1, "batch-size": 8, "image-size": 64, "weights": "none"}),
}


def upload(endpoint: str, scene: Scene) -> Iterator[None]:
    """Write the dataset into the data bucket with the stock client, its marker last; yields as each image is there."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project=PROJECT, credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint}
    )
    bucket = client.bucket(BUCKET)

    def put(item: tuple[str, bytes]) -> None:
        name, content = item
        kind = "image/png" if name.endswith(".png") else "image/jpeg"
        bucket.blob(scene.root + name).upload_from_string(content, content_type=kind)

    with ThreadPoolExecutor(_UPLOADERS) as pool:
        yield from pool.map(put, scene.files())
    if scene.starts_by_upload:
        bucket.blob(f"{scene.root}_SUCCESS").upload_from_string(b"")


def publish_request(address: str, payload: Mapping[str, Any]) -> None:
    """Send a training request to the Pub/Sub emulator at `address` with the stock client."""
    import grpc
    from google.pubsub_v1 import PublisherClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    with grpc.insecure_channel(address) as channel:
        client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        message = {"data": json.dumps(payload).encode()}
        client.publish(topic=f"projects/{PROJECT}/topics/training-requests", messages=[message], timeout=30)
