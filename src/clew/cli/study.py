"""`clew study`: runs a published study's grid of trainings, or resumes it."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clew.cli.parse import option_names, parse, value_before_parsing
from clew.errors import UserError, require_at_least, unknown_name
from clew.lab.studies import COLLECTIONS, STUDIES, find_study, is_own
from clew.lab.studies.published import GridOptions, PublishedStudy

if TYPE_CHECKING:
    from clew.lab.grid import Study

KNOWN = (*STUDIES, *COLLECTIONS)
ABOUT = f"""Runs a study: every model in every setting with every seed, in local worker processes
or on a Ray cluster.
Finished trainings never run again: after Ctrl-C, a kill or a failure, the same command resumes.
Results are lines of results.jsonl in the study's folder, one for every training.
Give a study of your own as FILE.py with one Study in it, or as module:NAME.
The studies: {", ".join(STUDIES)}; clew study NAME --help shows the options of each. Studies of one
publication are also known by --part: clew study {next(iter(COLLECTIONS))} --part PART."""


def main(args: Sequence[str]) -> int:
    """Runs the study, or lists it; 1 if a run failed."""
    study, options = requested(args)
    folder = options.run_dir or f"runs/{study.name.replace('/', '-')}"
    from clew.cli import study_output  # start: rich takes 0.1 s
    from clew.lab.grid import check_study, run_study  # start: JAX takes a second

    if options.list:
        check_study(study)
        study_output.show(study, folder)
        return 0
    with study_output.chosen_workers(options.ray, options.workers) as workers:
        result = run_study(
            study,
            folder,
            workers=workers,
            trust=options.trust,
            progress=study_output.study_listener(),
            how_to_go_on=f"clew study {shlex.join(args)}",
        )
    print(study_output.report(study, result))
    return 1 if result.failures else 0


def requested(args: Sequence[str]) -> "tuple[Study, GridOptions]":
    """The grid of trainings that a command line asks for, and the options.

    Raises:
        UserError: for an unknown study, part, model, setting or option, with the nearest names, an
            option of another study, an impossible value, or options that exclude each other.
    """
    name, rest = _find_name(list(args))
    if {"-h", "--help"} & {*rest} and name not in STUDIES and "--part" not in rest:
        parse(GridOptions, ["--help"], command="study NAME", about=ABOUT)
    if not name:
        raise UserError(f"which study? clew study NAME; known: {', '.join(KNOWN)}")
    if name not in KNOWN and not is_own(name):
        raise unknown_name("study", name, KNOWN)
    command = f"study {name}"
    if name in COLLECTIONS:
        name, rest = _take_part(name, rest)
        command += f" --part {name}"
    published = find_study(name)
    _refuse_options_of_others(name, published, rest)
    options: GridOptions = parse(published.options, rest, command=command, about=ABOUT)
    for option, value in vars(options).items():
        if type(value) is int:
            require_at_least(option.replace("_", "-"), value, 0)
    study = published.grid(options)
    if options.ray and (study.resumable or study.varied):
        raise UserError(f"--ray is for short trainings; those of {name} are resumed from this disk")
    if options.trust and not any(model.start_from for model in study.models.values()):
        raise UserError("--trust is for models that start from a run, and none does")
    return study, options


def _find_name(args: list[str]) -> tuple[str, list[str]]:
    """The name of the study, at any position, and the other words; "" if there is none."""
    if args and is_own(args[0]):
        return args[0], args[1:]
    values = {i + 1 for i, word in enumerate(args) if word == "--part"}
    free = [i for i in range(len(args)) if i not in values]
    named = [i for i in free if args[i] in KNOWN] or [i for i in free if args[i].endswith(".py")]
    place = named[0] if named else 0
    if not args or args[place].startswith("-"):
        return "", args
    return args[place], args[:place] + args[place + 1 :]


def _take_part(collection: str, args: list[str]) -> tuple[str, list[str]]:
    """The study of a collection that --part names, and the other words."""
    part, known = value_before_parsing(args, "--part"), COLLECTIONS[collection]
    if part is None:
        raise UserError(f"which part of {collection}? --part PART; known: {', '.join(known)}")
    if part not in known:
        raise unknown_name(f"part of {collection}", part, known)
    place = next(i for i, word in enumerate(args) if word.split("=")[0] == "--part")
    return part, args[:place] + args[place + (1 if "=" in args[place] else 2) :]


def _refuse_options_of_others(name: str, study: PublishedStudy[Any], args: Sequence[str]) -> None:
    own = {*option_names(study.options)}
    for word in args:
        option = word.split("=")[0].replace("_", "-")
        if option.startswith("--") and option not in own:
            others = [n for n in STUDIES if option in option_names(find_study(n).options)]
            if others:
                raise UserError(f"{option} is for {', '.join(others)}, not for {name}")
