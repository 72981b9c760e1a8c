"""A report as one self-contained HTML page, including figures, style and sortable tables."""

import re
from collections.abc import Sequence
from html import escape
from importlib import resources

from clew.report.document import Block, Cell, Chart, Column, Heading, Numbers, Table, Text, typeset
from clew.report.figures import Styles, legend_svg, panel_svg

LONG = 16
"""A row name longer than this gets more room on a narrow screen."""


def page(title: str, blocks: Sequence[Block], styles: Styles, made_by: str) -> str:
    """The whole page, with `made_by` at its foot; the styles are for legends."""
    style, script = (
        (resources.files("clew.report") / name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js")
    )
    symbols = "".join(_symbol(index, styles, model) for index, model in enumerate(styles))
    names = {model: f"look-{index}" for index, model in enumerate(styles)}
    body = "\n".join(_block(block, names) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n"
        f'<body><svg class="hidden" aria-hidden="true">{symbols}</svg>\n'
        f"<header><h1>{escape(title)}</h1>{_contents(blocks)}</header>\n"
        f"<main>\n{body}\n</main>\n<footer>{escape(made_by)}</footer>\n"
        f"<script>\n{script}</script></body></html>\n"
    )


def _contents(blocks: Sequence[Block]) -> str:
    lines = []
    for block in blocks:
        if isinstance(block, Heading):
            link = f'<a href="#{escape(block.name)}">{escape(block.text)}</a>'
            if block.level == 1:
                lines.append(f"<b>{link}</b>")
            elif lines:
                lines[-1] += f" {link}"
    return f"<nav>{''.join(f'<div>{line}</div>' for line in lines)}</nav>"


def _symbol(index: int, styles: Styles, model: str) -> str:
    picture = legend_svg(styles[model], f"look-{index}-")
    opening = re.search(r'viewBox="([^"]*)"', picture)
    assert opening is not None
    inner = picture[picture.index(">") + 1 : picture.rindex("</svg>")]
    return f'<symbol id="look-{index}" viewBox="{opening[1]}">{inner}</symbol>'


def _block(block: Block, names: dict[str, str]) -> str:
    if isinstance(block, Heading):
        level = block.level + 1
        return f'<h{level} id="{escape(block.name)}">{escape(block.text)}</h{level}>'
    if isinstance(block, Text):
        return f"<p>{escape(block.text)}</p>"
    if isinstance(block, Numbers):
        cards = (f"<div><b>{escape(n)}</b><span>{escape(w)}</span></div>" for n, w in block.pairs)
        return f'<div class="numbers">{"".join(cards)}</div>'
    return _table(block) if isinstance(block, Table) else _chart(block, names)


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col">{_lines(c)}</th>' for c in table.columns)
    rows = "\n".join(
        f'<tr><th scope="row">{_lines(row[0])}</th>{"".join(map(_cell, row[1:]))}</tr>'
        for row in table.rows
    )
    long = max((len(row[0].text) for row in table.rows), default=0) > LONG
    kind = ' class="words"' if len(table.columns) == 2 else ' class="long"' if long else ""
    body = (
        f'<div class="scroll" tabindex="0"><table{kind}><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )
    if table.note:
        body += f'<p class="note">{escape(table.note)}</p>'
    if table.folded:
        return f'<details class="block"><summary>{escape(table.title)}</summary>{body}</details>'
    return f'<section class="block"><h4>{escape(table.title)}</h4>{body}</section>'


def _lines(entry: Cell | Column) -> str:
    below = entry.below if isinstance(entry, Cell) else ((entry.below,) if entry.below else ())
    mark = entry.mark if isinstance(entry, Cell) else ""
    sign = f'<span class="mark">{mark}</span>' if mark else ""
    small = "".join(f"<small>{escape(typeset(line))}</small>" for line in below)
    return escape(typeset(entry.text)) + sign + small


def _cell(cell: Cell) -> str:
    if cell.verdict:
        return f'<td><span class="verdict {cell.verdict}">{escape(cell.text)}</span></td>'
    if cell.shade is None:
        return f"<td>{_lines(cell)}</td>"
    return f'<td class="shaded" style="--s:{cell.shade:.2f}">{_lines(cell)}</td>'


def _chart(chart: Chart, names: dict[str, str]) -> str:
    entries = "".join(
        f'<span><svg aria-hidden="true"><use href="#{names[model]}"/></svg>{escape(model)}</span>'
        for model in chart.models
    )
    legend = f'<div class="legend">{entries}</div>' if entries else ""
    pictures = "\n".join(
        f"<figure><figcaption>{escape(panel.title)}</figcaption>"
        f"{panel_svg(panel, chart.size, f'{chart.name}-{index}-')}</figure>"
        for index, panel in enumerate(chart.panels)
    )
    width = {1: 900, 2: 420}.get(chart.columns, 330)
    return (
        f'<section class="block"><h4>{escape(chart.title)}</h4>'
        f'<p class="note">{escape(chart.caption)}</p>{legend}'
        f'<div class="panels" style="--panel:{width}px">{pictures}</div></section>'
    )
