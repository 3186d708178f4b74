"""Building blocks of our HTML pages. A page is self-contained and opens offline, light or dark, also when narrow."""

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path

from podnet.io.files import write_atomically

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #8884; }
th[colspan] { text-align: center; }
td { white-space: nowrap; }
th:first-child { text-align: left; min-width: 5.5rem; }
tbody th { font-weight: normal; }
thead th { vertical-align: bottom; }
table.words td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin-bottom: 1.5rem; }
.note, figcaption { font-size: .875rem; color: #555; margin: .3rem 0; }
@media (prefers-color-scheme: dark) { .note, figcaption { color: #bbb; } }
img { max-width: 100%; }
img.chart { background: white; border-radius: 6px; }
figure { margin: 1rem 0; }
.matrices { display: flex; flex-wrap: wrap; gap: 0 2rem; }
.matrices figure { width: 18rem; max-width: 100%; }
.matrices img { image-rendering: pixelated; }
img.matrix { display: block; width: 100%; border: 1px solid #8884; }
img.scale { width: 6rem; height: .7rem; margin: 0 .4rem; }
details { border-top: 1px solid #8884; padding: .5rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: .8rem; background: #8881; border-radius: 6px; font-size: .875rem; }
"""


class Html(str):
    """Text that is already markup; all other text is escaped when it enters a page."""


def escaped(text: object) -> str:
    return text if isinstance(text, Html) else escape(str(text))


def row(cells: Iterable[object], tag: str = "td") -> Html:
    """A table row; its first cell is the row heading."""
    first, *others = cells
    return Html(f"<tr><th>{escaped(first)}</th>{''.join(f'<{tag}>{escaped(cell)}</{tag}>' for cell in others)}</tr>")


def table(head: Html, rows: Iterable[Iterable[object]], caption: str = "", kind: str = "numbers") -> Html:
    """A table that scrolls within itself on narrow screens. `kind` "words" wraps and aligns left."""
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(row(cells) for cells in rows)
    return Html(
        f'<div class="wide"><table class="{kind}">{above}<thead>{head}</thead><tbody>{body}</tbody></table></div>'
    )


def paragraphs(text: str, kind: str = "text") -> Html:
    """Plain text; blank lines separate paragraphs."""
    return Html("".join(f'<p class="{kind}">{escape(part.strip())}</p>' for part in text.split("\n\n") if part.strip()))


def image(png: bytes, description: str, kind: str) -> Html:
    data = base64.b64encode(png).decode()
    return Html(f'<img class="{kind}" src="data:image/png;base64,{data}" alt="{escape(description)}">')


def picture(png: bytes, caption: str) -> Html:
    """A chart with its caption."""
    return Html(f"<figure>{image(png, caption, 'chart')}<figcaption>{escape(caption)}</figcaption></figure>")


def write_document(path: Path, title: str, parts: Iterable[str]) -> Path:
    """One HTML file with these parts below the title."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    body = f"<h1>{escape(title)}</h1>{''.join(parts)}"
    page = f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>\n'
    write_atomically(path, page)
    return path
