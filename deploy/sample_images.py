"""What digits.py and photos.py have in common: class folders of images, and a command that writes them."""

import argparse
from collections.abc import Iterable
from pathlib import Path


def write_images(folder: Path, files: Iterable[tuple[str, bytes]]) -> int:
    """Write every (``class/name``, content) below `folder`, and return how many there are."""
    count = 0
    for name, content in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        count += 1
    return count


def main(description: str, files: Iterable[tuple[str, bytes]]) -> None:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    print(f"{write_images(folder, files)} images in {folder}")
