"""`clew report`: makes one page of studies, with tables and figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from clew.cli.parse import parse
from clew.errors import UserError, counted

ABOUT = """Makes one self-contained page of studies, finished or not: scores with intervals beside
the published ones, scores without memory, tests, claims, figures and costs. Writes report.html,
report.md, tables/*.csv and figures/*.png and .svg."""


@dataclass(frozen=True)
class ReportCommand:
    """Options of `clew report`."""

    folders: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="STUDY ...")
    ] = ()
    """Folders of studies, or their names in runs/; each becomes a section."""
    output: str = ""
    """Folder to write to; by default report/ in the first folder."""
    title: str = ""
    """Title of the page; by default the names of the studies."""
    note: str = ""
    """A remark on how the results were made, for example on which machine."""


def main(args: Sequence[str]) -> int:
    """Makes the report and prints where it is."""
    command = parse(ReportCommand, args, command="report", about=ABOUT)
    if not command.folders:
        raise UserError("which studies? clew report FOLDER ...; clew study makes such folders")
    from clew.lab.studies.report.make import make_report  # start: matplotlib takes 0.4 s

    report = make_report(
        command.folders, command.output or None, command.title or None, command.note
    )
    print(f"report: {report.html} ({report.html.stat().st_size / 1e6:.1f} MB)")
    made = (counted(len(report.tables), "table"), counted(len(report.figures), "figure"))
    print(f"{', '.join(made)} in {report.html.parent}")
    return 0
