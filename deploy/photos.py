"""A small image dataset for the recipes that train on photographs: cuts of the two that scikit-learn carries.

Two classes, a temple and a flower. The photographs are by their authors under CC BY
(https://scikit-learn.org/stable/datasets/loading_other_datasets.html#sample-images).
"""

import io
from collections.abc import Iterator

from deploy.sample_images import main

COUNT = 96
_SIDE = 160
_KINDS = ("temple", "flower")


def photo_files() -> Iterator[tuple[str, bytes]]:
    """(``temple/00.jpg``, JPEG bytes of 160 by 160 pixels) of every cut, the same ones each time."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    for kind, photo in zip(_KINDS, load_sample_images().images, strict=True):
        height, width = photo.shape[0] - _SIDE, photo.shape[1] - _SIDE
        for index in range(COUNT // len(_KINDS)):
            x, y = index % 8 * width // 7, index // 8 * height // 5
            jpeg = io.BytesIO()
            Image.fromarray(photo[y : y + _SIDE, x : x + _SIDE]).save(jpeg, format="JPEG")
            yield f"{kind}/{index:02}.jpg", jpeg.getvalue()


if __name__ == "__main__":
    main("Write cuts of two photographs out as images in class folders.", photo_files())
