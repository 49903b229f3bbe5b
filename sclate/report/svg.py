"""Inline SVG: elements that escape whatever they are given, and axes with round numbers."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

WIDTH = 1000
"""Of every chart, in its own units; on the page it takes the width there is."""


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """An element; children that are no Markup are text and are escaped. `class_` and `text_anchor` become
    `class` and `text-anchor`; numbers have two decimals."""
    pairs = (
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), Markup("").join(pairs), inner)


def svg(height: float, label: str, *children: Any, class_: str = "chart") -> Markup:
    """A whole chart. `label` is what a screen reader says."""
    return tag(
        "svg", *children, viewBox=f"0 0 {WIDTH} {height:.0f}", class_=class_, role="img", aria_label=label
    )


def rect(x: float, y: float, width: float, height: float, class_: str, title: str = "") -> Markup:
    """A rectangle, with what is shown when one points at it."""
    inner = (tag("title", title),) if title else ()
    return tag("rect", *inner, x=x, y=y, width=max(width, 0), height=max(height, 0), class_=class_)


def text(x: float, y: float, said: str, class_: str = "label", anchor: str = "start") -> Markup:
    return tag("text", said, x=x, y=y, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def ticks(top: float, most: int = 6) -> list[float]:
    """Round numbers from 0 to at most `top`, not more than `most` steps."""
    if not top > 0 or not math.isfinite(top):
        return [0.0]
    raw = top / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    return [i * step for i in range(math.floor(top / step + 1e-9) + 1)]


def second_ticks(top: float, most: int = 6) -> list[float]:
    """The same for seconds: above a minute in steps that are round in minutes or hours."""
    if top < 60:
        return ticks(top, most)
    steps = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
    step = next((s for s in steps if s * most >= top), None)
    if step is None:
        return [at * 86_400 for at in ticks(top / 86_400, most)]
    return [float(i * step) for i in range(int(top / step + 1e-9) + 1)]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)
