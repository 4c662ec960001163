"""The demo's dataset: the handwritten digits that scikit-learn carries, as PNG files in class folders.

1,797 images of 8 by 8 pixels in 16 grey levels: the test set of "Optical Recognition of Handwritten
Digits" (E. Alpaydin, C. Kaynak; UCI Machine Learning Repository, CC BY 4.0,
https://archive.ics.uci.edu/dataset/80), as distributed with scikit-learn (BSD 3-Clause,
https://scikit-learn.org/stable/datasets/toy_dataset.html#digits-dataset).
"""

import argparse
import io
from collections.abc import Iterator
from pathlib import Path

COUNT = 1797


def digit_files() -> Iterator[tuple[str, bytes]]:
    """(``7/0042.png``, PNG bytes) of every digit."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for index, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        buffer = io.BytesIO()
        Image.fromarray((pixels * 255 / 16).round().astype("uint8")).save(buffer, format="PNG")
        yield f"{label}/{index:04d}.png", buffer.getvalue()


def write_digits(folder: Path) -> int:
    """Write every digit below `folder`, and return how many there are."""
    count = 0
    for name, png in digit_files():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png)
        count += 1
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the handwritten digits out as images in class folders.")
    parser.add_argument("folder", type=Path)
    target = parser.parse_args().folder
    print(f"{write_digits(target)} images in {target}")
