"""The site's mathematics: a hook of mkdocs that sets equations as MathML, which browsers draw.

An equation is written once, as plain text that reads well in a terminal: in an indented block of
a docstring or page, or as `$...$` within a sentence. An indented block is an equation if it has a
relation (=, <=, >=, <-) and all of it is in this notation; code beside it needs fences:

    h~_t = W_h x_t + b            letters with tildes, primes, subscripts and superscripts
    relu, beta_t, value_cost      a name of several letters is one name, or Greek
    a * b,  a (x) b,  a . b       elementwise, outer product, dot product
    a b / (c + d)                 a fraction: the product before it over the factor after it
    sum_{i <= t} x_i, max_j       the index below the sign

Two spaces begin a new column. `$...$` that cannot be parsed is a warning; it fails a strict build.
"""

import re
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.util import AtomicString
from mkdocs.plugins import event_priority, get_plugin_logger

GREEK = dict(
    zip(
        "alpha beta gamma delta epsilon zeta eta theta lambda mu nu xi pi rho sigma tau phi psi "
        "omega Phi Psi Lambda Omega".split(),
        "αβγδεζηθλμνξπρστφψωΦΨΛΩ",
        strict=True,
    )
) | {"lam": "λ"}
BELOW = {"sum": "∑", "prod": "∏", "max": "max", "min": "min"}
SIGNS = {
    "(x)": "⊗", "*": "⊙", " . ": "·", "...": "…", "..": "…", "<=": "≤", ">=": "≥", "<-": "←",
    "->": "→", "-+": "∓", "||": "‖", "-": "−",
}  # fmt: skip
RELATIONS = frozenset("=<>≤≥←→")
LOOSE = RELATIONS | frozenset("+−∓,;:|‖…")
"""Signs that end the product to the left of a fraction's line."""
CLOSES = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r"\(Eqs?\. [^)]*\)"  # a number in a paper
    r"|(?<=\s)\(x\)(?=\s)| \. |\.{2,3}|<=|>=|<-|->|-\+|\|\||(?<=\s)\|(?=\s)"
    r"|[A-Za-z]{2,}(?:_[A-Za-z]{2,})*(?:'s\b)?|[A-Za-zα-ωΑ-Ω]|\d+(?:[.,]\d+)*"
    r"|[-+*/=<>,;:|()\[\]{}_^~'!]"
)
_COLUMN = re.compile(r"\s{2,}(?=\S)(?!(?:=|<=|>=|[-+*]) )")
_LOG = get_plugin_logger("equations")


@event_priority(100)  # before mkdocstrings takes the extensions for its docstrings
def on_config(config: Any) -> Any:
    """Enables equations in the pages and the docstrings."""
    config.markdown_extensions.append(Equations())
    return config


class Equations(Extension):
    """Indented blocks and `$...$` as mathematics."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Registers both; the block processor replaces Markdown's indented code."""
        md.parser.blockprocessors.register(_Block(md.parser), "equation", 85)
        dollars = r"(?<![\\$\w])\$(?=\S)([^$]+?)(?<=\S)\$(?!\w)"
        md.inlinePatterns.register(_Inline(dollars, md), "equation", 185)


class _Block(BlockProcessor):
    """An indented block that is an equation; all others remain code."""

    def test(self, parent: Element, block: str) -> bool:
        return block.startswith(" " * self.tab_length) and is_equation(self.detab(block)[0])

    def run(self, parent: Element, blocks: list[str]) -> None:
        block, rest = self.detab(blocks.pop(0))
        ElementTree.SubElement(parent, "div", {"class": "equation"}).append(mathml(block, True))
        if rest:
            blocks.insert(0, rest)


class _Inline(InlineProcessor):
    """An equation within a sentence."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:  # type: ignore[override]
        try:
            shown = mathml(" ".join(m[1].split()))
        except ValueError as error:
            _LOG.warning("%s", error)
            shown = _element("code", text=m[1])
        return shown, m.start(0), m.end(0)


def is_equation(text: str) -> bool:
    """Whether a block has a relation between spaces and nothing outside the notation."""
    try:
        return bool(re.search(r" (=|<=|>=|<-) ", text)) and mathml(text, True) is not None
    except ValueError:
        return False


def mathml(text: str, display: bool = False) -> Element:
    """An equation as a `math` element, whose `alttext` is the text.

    Args:
        text: the equation; if `display` is set with a line for each row.
        display: whether it is a block, with fractions and columns.

    Raises:
        ValueError: for text that is not an equation, with the position.
    """
    if not display:
        return _element("math", _Reader(text, False).read(), alttext=text)
    table = _element("mtable", *(_row(line) for line in text.splitlines()))
    table.set("displaystyle", "true")
    return _element("math", table, alttext=text, display="block")


def _row(line: str) -> Element:
    """A row of a table, in which every column is split before its first relation."""
    cells = []
    for column in _COLUMN.split(line.strip()):
        parts = list(_Reader(column, True).read())
        places = [n for n, part in enumerate(parts) if part.text and part.text in RELATIONS]
        at = places[0] if places else 0
        cells += [_element("mtd", *parts[:at]), _element("mtd", *parts[at:])]
    return _element("mtr", *cells)


class _Reader:
    """Reads one equation from left to right."""

    def __init__(self, text: str, display: bool):
        self.text, self.display = text, display
        self.tokens = list(_TOKEN.finditer(text))
        self.at = 0
        unread = _TOKEN.sub("", text).strip()
        if unread:
            raise self.error(f"{unread[0]!r} is no sign of it")

    def error(self, why: str) -> ValueError:
        """The error for a problem with the text."""
        return ValueError(f"not an equation, {why}: {self.text!r}")

    def read(self) -> Element:
        """The whole text."""
        row = self.row("")
        if self.at < len(self.tokens):
            raise self.error(f"{self.tokens[self.at][0]!r} was not opened")
        return row

    def next(self) -> str:
        """The next sign or name, "" at the end."""
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def spaced(self) -> bool:
        """Whether there is space before the next sign or name."""
        return self.text[self.tokens[self.at].start() - 1].isspace()

    def row(self, close: str) -> Element:
        """The expression before a closing bracket, or before the end."""
        row, product = _element("mrow"), _element("mrow")
        while self.next() and self.next() not in CLOSES.values():
            sign = SIGNS.get(self.next(), self.next())
            if sign == "/" and self.display and len(product):
                self.at += 1
                product = _element("mrow", _element("mfrac", _bare(product), _bare(self.factor())))
            elif sign in LOOSE:
                row.extend([*product, self.sign(sign, not (len(row) or len(product)))])
                product = _element("mrow")
            else:
                gap = len(product) > 0 and self.spaced()
                factor = self.factor()
                if gap and _apart(product[-1], factor):
                    product.append(_element("mspace", width="0.22em"))
                product.append(factor)
        if self.next() != close:
            raise self.error(f"{close!r} is missing")
        row.extend(product)
        return row

    def sign(self, sign: str, first: bool) -> Element:
        """A sign between products; a minus after another sign belongs to what follows."""
        around = (
            0 < self.at and self.spaced() and self.text[self.tokens[self.at].end() :][:1] == " "
        )
        before = SIGNS.get(self.tokens[self.at - 1][0], self.tokens[self.at - 1][0])
        self.at += 1
        if sign in "|‖":
            width = "0.28em" if around and sign == "|" else "0"
            return self.scripts(
                _element("mo", text=sign, stretchy="false", lspace=width, rspace=width)
            )
        unary = sign == "−" and (first or before in LOOSE - {"…"})
        return _element("mo", text=sign, form="prefix" if unary else "infix")

    def factor(self) -> Element:
        """A name, number, sign or bracket, with its attached indices."""
        token = self.next()
        self.at += 1
        if token in CLOSES:
            inner = self.row(CLOSES[token])
            self.at += 1
            ends = (_element("mo", text=token), _element("mo", text=CLOSES[token]))
            return self.scripts(_element("mrow", ends[0], inner, ends[1]))
        if token == "sqrt":
            return _element("msqrt", _bare(self.factor()))
        if token in BELOW:
            return self.scripts(_element("mo", text=BELOW[token], movablelimits="true"), below=True)
        if token in GREEK or (len(token) == 1 and token.isalpha()):
            return self.scripts(_element("mi", text=GREEK.get(token, token)))
        if token[:1].isdigit():
            return self.scripts(_element("mn", text=token))
        if token[:1].isalpha() or len(token) > 4:
            return self.scripts(_element("mtext", text=token))
        return _element("mo", text=SIGNS.get(token, token))

    def scripts(self, base: Element, below: bool = False) -> Element:
        """A base with its tilde, primes, subscript and superscript."""
        if self.next() == "~" and not self.spaced():
            self.at += 1
            base = _element(
                "mover", base, _element("mo", text="~", stretchy="false"), accent="true"
            )
        low, high = _element("mrow"), _element("mrow")
        while self.next() in ("'", "_", "^") and not self.spaced():
            kind = self.next()
            self.at += 1
            if kind == "'":
                high.append(_element("mo", text="′"))
            else:
                (low if kind == "_" else high).extend(self.script(kind == "^"))
        kinds = ("munder", "mover", "munderover") if below else ("msub", "msup", "msubsup")
        if len(low) and len(high):
            return _element(kinds[2], base, low, high)
        if len(low) or len(high):
            return _element(kinds[1 if len(high) else 0], base, low if len(low) else high)
        return base

    def script(self, raised: bool) -> list[Element]:
        """A subscript or superscript: a bracket, or letters and digits without space between."""
        if self.next() == "{":
            self.at += 1
            inner = self.row("}")
            self.at += 1
            return list(inner)
        parts = [self.sign("−", True)] if self.next() == "-" else []
        if self.next() == "(":
            bracket = self.factor()
            inside = _bare(bracket)
            return [*parts, *(inside if raised and inside is not bracket else [bracket])]
        while self.next().replace("_", "").isalnum() and (not parts or not self.spaced()):
            token = self.next()
            self.at += 1
            kind = "mn" if token.isdigit() else "mi"
            parts.append(_element(kind, text=GREEK.get(token, token)))
        if not parts:
            raise self.error("an index is missing")
        return parts


def _bare(element: Element) -> Element:
    """The inside of a bracket that is redundant above or below a fraction's line."""
    while element.tag == "mrow" and len(element) == 1:
        element = element[0]
    bracket = element.tag == "mrow" and len(element) == 3 and element[0].text == "("
    return element[1] if bracket else element


def _apart(left: Element, right: Element) -> bool:
    """Whether two factors need space between: names of several letters and sums, or two numbers."""
    bases = [_base(left), _base(right)]
    signs = [base.tag == "mo" and base.get("movablelimits") is None for base in bases]
    if any(signs):
        return False
    names = any(base.tag == "mtext" or base.get("movablelimits") for base in bases)
    return names or bases[0].tag == bases[1].tag == "mn"


def _base(element: Element) -> Element:
    """The element that carries another's indices and powers."""
    while len(element) and element.tag in ("msub", "msup", "msubsup", "munder", "munderover"):
        element = element[0]
    return element


def _element(tag: str, *parts: Element, text: str = "", **attributes: str) -> Element:
    """An element; Markdown leaves its text as it is."""
    element = Element(tag, attributes)
    element.text = AtomicString(text) if text else None
    element.extend(parts)
    return element
