"""Choose a colour for every rank, the same in the whole picture."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable


def rank_colours(ranks: Iterable[int]) -> dict[int, str]:
    """Hues around the circle, in two shades where there are many ranks.

    >>> sorted(rank_colours([4, 9]))
    [4, 9]
    """
    ordered = sorted(ranks)
    return {rank: nth_colour(place, len(ordered)) for place, rank in enumerate(ordered)}


def nth_colour(place: int, n: int) -> str:
    """The colour number ``place`` of ``n`` that are easy to tell apart.

    >>> nth_colour(0, 2) == nth_colour(1, 2)
    False
    """
    hue = (0.59 + place / n * (1 if n < 8 else 0.94)) % 1
    dark = n > 10 and place % 2 == 1
    red, green, blue = colorsys.hls_to_rgb(hue, 0.40 if dark else 0.57, 0.62)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def text_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour.

    >>> text_on("#ffee00"), text_on("#202060")
    ('#000000', '#ffffff')
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
