"""A trained model from its bucket to a local folder."""

from pathlib import Path


def download_model(endpoint: str, uri: str, folder: Path) -> int:
    """Copy every object below ``gs://bucket/prefix`` into `folder`; how many there were."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project="any", credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint}
    )
    bucket, _, prefix = uri.removeprefix("gs://").partition("/")
    prefix = prefix.rstrip("/") + "/"
    count = 0
    for blob in client.list_blobs(bucket, prefix=prefix):
        path = (folder / blob.name[len(prefix) :]).resolve()
        if not path.is_relative_to(folder.resolve()):
            continue  # an object named `../x` must not leave the folder
        path.parent.mkdir(parents=True, exist_ok=True)
        blob.download_to_filename(str(path))
        count += 1
    return count
