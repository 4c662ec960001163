"""Decoding: what the model sees of an encoded image, whatever its format and size."""

import io

import numpy as np
import pytest
from PIL import Image

from trainer.images import decode


def encoded(width: int, height: int, form: str, mode: str = "RGB") -> bytes:
    """A smooth picture: red grows to the right, green downwards; what scaling it must give is plain."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    pixels = np.stack([across, down, np.full_like(across, 128)], axis=-1).round().astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(content, form, **({"quality": 95} if form == "JPEG" else {}))
    return content.getvalue()


@pytest.mark.parametrize("width, height", [(64, 64), (320, 240), (127, 400), (128, 129), (1030, 517), (40, 30)])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "BMP", "GIF"])
def test_any_size_and_format_gives_the_same_picture(width: int, height: int, form: str) -> None:
    image = decode(encoded(width, height, form), 64).numpy().astype(int)
    assert image.shape == (64, 64, 3)
    ramp = (np.arange(64) + 0.5) / 64 * 255
    tolerance = 60 if form == "GIF" else 12  # GIF has 256 colours; blocks at the border cost JPEG a little
    assert np.abs(image[:, :, 0] - ramp[np.newaxis, :]).max() <= tolerance
    assert np.abs(image[:, :, 1] - ramp[:, np.newaxis]).max() <= tolerance


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_colour_spaces_of_jpeg_come_as_three_channels(mode: str) -> None:
    assert decode(encoded(300, 200, "JPEG", mode), 64).numpy().shape == (64, 64, 3)


def test_fine_stripes_of_a_large_jpeg_do_not_turn_into_a_pattern() -> None:
    """At full size, bilinear sampling of every eighth pixel would give black or white; decoded smaller it is grey."""
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, ::2] = 255
    content = io.BytesIO()
    Image.fromarray(stripes).save(content, "JPEG", quality=95)
    image = decode(content.getvalue(), 64).numpy().astype(int)
    assert np.abs(image - 128).max() <= 20
