"""The equations of the site: one text for docstrings, `clew models` and pages."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import markdown
import pytest

from clew.agents import returns
from clew.agents.learners.a2c import a2c_loss
from clew.agents.learners.ppo import ppo_loss
from clew.cli.models import main
from clew.memory import MEMORIES
from clew.memory.arelit import ApproximateLinearAttention
from clew.memory.parts.attention import WindowAttention
from clew.memory.parts.features import GatedFeatures
from clew.memory.parts.gates import GRUGate
from clew.memory.parts.halting import Halting
from clew.memory.relit import GatedLinearAttention
from scripts import script

ROOT = Path(__file__).parents[1]
PARTS = (WindowAttention, GRUGate, GatedFeatures, Halting, GatedLinearAttention)
LOSSES = (a2c_loss, ppo_loss, returns.lambda_returns, returns.vtrace)
SITE = script("tools/site_equations.py")


def shown(text: str) -> ElementTree.Element:
    """What a page shows for a text."""
    html = markdown.markdown(text, extensions=[SITE.Equations()])
    return ElementTree.fromstring(f"<div>{html}</div>")


def first_block(documented: Any) -> str:
    """The first indented block of a docstring."""
    match = re.search(r"\n\n((?:    .*\n)+)", f"{inspect.getdoc(documented)}\n")
    assert match, documented
    return inspect.cleandoc(match[1])


@pytest.mark.parametrize(
    "documented", [*MEMORIES.values(), *PARTS, ApproximateLinearAttention, *LOSSES]
)
def test_a_pages_equation_is_the_docstrings(documented: Any) -> None:
    """The first block of every memory, part and loss is rendered as an equation, unchanged."""
    equations = shown(str(inspect.getdoc(documented))).iter("math")
    assert next(equations).get("alttext", "").split() == first_block(documented).split()


def test_clew_models_prints_the_same_equation(capsys: pytest.CaptureFixture[str]) -> None:
    """`clew models` prints the docstring's block, and words without the site's markup."""
    main(["gru"])
    printed = capsys.readouterr().out
    assert all(line in printed for line in first_block(MEMORIES["gru"]).splitlines())
    assert "$" not in printed


def test_no_page_repeats_a_memorys_equation() -> None:
    """The overview of the memories describes in words what their docstrings have as equations."""
    lines = {line for kind in MEMORIES.values() for line in first_block(kind).splitlines()}
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert not [line for line in lines if line in pages.replace("e = x W + b", "")]


@pytest.mark.parametrize(
    ("text", "mathml"),
    [
        ("h~_t", "<msub><mover><mi>h</mi><mo>~</mo></mover><mrow><mi>t</mi></mrow></msub>"),
        ("relu(x)", "<mtext>relu</mtext><mrow><mo>(</mo><mrow><mi>x</mi></mrow><mo>)</mo></mrow>"),
        ("beta * v (x) k", "<mi>β</mi><mo>⊙</mo><mi>v</mi><mo>⊗</mo><mi>k</mi>"),
        ("2 / r 10 q", "<mn>2</mn><mo>/</mo><mi>r</mi><mn>10</mn><mi>q</mi>"),
        ("q^(2 R)", "<msup><mi>q</mi><mrow><mn>2</mn><mi>R</mi></mrow></msup>"),
        ("x_{t-1}^2", "<msubsup><mi>x</mi><mrow><mi>t</mi><mo>−</mo><mn>1</mn></mrow>"
                      "<mrow><mn>2</mn></mrow></msubsup>"),
    ],
)  # fmt: skip
def test_notation(text: str, mathml: str) -> None:
    """Every notation is rendered as documented."""
    drawn = ElementTree.tostring(SITE.mathml(text), encoding="unicode")
    plain = re.sub(r"<(\w+) [^>]*>", r"<\1>", drawn)
    assert plain == f"<math><mrow>{mathml}</mrow></math>"


def test_a_fraction_is_the_product_before_over_the_factor_after() -> None:
    """1 + a b / (c + d) e is one, plus a b over c + d, times e."""
    row = SITE.mathml("1 + a b / (c + d) e", display=True).find(".//mfrac")
    assert ["".join(part.itertext()) for part in row] == ["ab", "c+d"]


def test_columns_are_split_before_their_relation() -> None:
    """Spaces that align a relation or a sign do not start a column."""
    table = SITE.mathml("s_t    = a  * b  where x\nu = v  w = z", display=True)
    cells = [["".join(cell.itertext()) for cell in row] for row in table.iter("mtr")]
    assert cells == [["st", "=a⊙b", "", "wherex"], ["u", "=v", "w", "=z"]]


def test_code_stays_code() -> None:
    """An indented block without a relation, or with more than the notation, is code."""
    for text in ("    make test", '    x = f("a")', "    x = a.b(c)"):
        assert shown(f"Try:\n\n{text}").find("pre/code") is not None


@pytest.mark.slow
def test_the_built_site_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """No page loads a script, style, picture or font from outside; readers' links may go there."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, check=True, env=environment)
    loads = re.compile(r"""(?:<link[^>]* href|\ssrc)=["']?(?:https?:)?//""")
    for path in tmp_path.rglob("*.html"):
        assert not loads.search(path.read_text()), path
    for path in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", path.read_text()), path
    assert "<math" in (tmp_path / "memories" / "arelit.html").read_text()


@pytest.mark.parametrize("text", ["(a", "a)", "a_", "a # b"])
def test_what_is_no_equation_is_named(text: str) -> None:
    """Text that cannot be parsed is an error that shows it."""
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        SITE.mathml(text)
