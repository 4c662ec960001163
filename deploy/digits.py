"""The demo's dataset: the handwritten digits that scikit-learn carries, as PNG files in class folders.

1,797 images of 8 by 8 pixels in 16 grey levels: the test set of "Optical Recognition of Handwritten
Digits" (E. Alpaydin, C. Kaynak; UCI Machine Learning Repository, CC BY 4.0,
https://archive.ics.uci.edu/dataset/80), as distributed with scikit-learn (BSD 3-Clause,
https://scikit-learn.org/stable/datasets/toy_dataset.html#digits-dataset).
"""

import io
from collections.abc import Iterator

from deploy.sample_images import main

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


if __name__ == "__main__":
    main("Write the handwritten digits out as images in class folders.", digit_files())
