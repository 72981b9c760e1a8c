"""The command line of benchmarks that are studies: a plan, into a folder."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.options import described

from clew.lab.grid import Study, StudyResult, run_study


def run_plan(
    about: str | None, plans: Mapping[str, Callable[[], Study]], *, first: int = 0, seeds: int = 5
) -> StudyResult:
    """Runs what is missing of the plan that the command line names, by default the first.

    Args:
        about: of `--help`, the benchmark's docstring.
        plans: by name.
        first: of the seeds.
        seeds: how many, unless the command line says so.
    """
    parser = described(about)
    parser.add_argument("folder")
    parser.add_argument("--plan", choices=plans, default=next(iter(plans)))
    parser.add_argument("--models", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    study = replace(plans[given.plan](), seeds=tuple(range(first, first + given.seeds)))
    return run_study(study.only(given.models), given.folder, workers=given.workers)
