"""`clew sweep`: searches settings, and compares the best with the default on fresh seeds."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clew.cli.study_output import chosen_workers, study_listener
from clew.cli.tables import print_json, show_table
from clew.cli.train import Memories, on_algorithm, parse_training
from clew.errors import UserError
from clew.lab.sweep.page import outcome, settings, write_page
from clew.lab.sweep.space import Range, Vary, known_settings
from clew.lab.sweep.storage import import_optuna
from clew.lab.sweep.sweep import Sweep, SweepResult, run_sweep
from clew.other_names import here, note
from clew.output import say
from clew.pairs import parse_value
from clew.run.config import TrainConfig
from clew.run.folder import slug
from clew.stats.intervals import over_seeds

ABOUT = """Searches settings of clew train: Optuna chooses the settings of each trial. Then the best
and the default are trained with fresh seeds: clew sweep --env ENV --memory lstm --vary
ppo.learning_rate=log:1e-4..1e-2 ppo.entropy_cost=0..0.05 ppo.rollout_length=32,64,128 --trials 40
--steps 3e5 --seeds 2. A setting varies over LOW..HIGH, over log:LOW..HIGH (log-uniform), or over
values separated by commas; every other option of clew train applies to all trials. To resume a
stopped sweep, run the same command again; several processes that run it share the work."""


@dataclass(frozen=True)
class SweepCommand(Memories):
    """Options of `clew sweep`. Those of `clew train` apply to all trials; --seeds is the number of
    agents in each trial."""

    vary: tuple[str, ...] = ()
    """The settings to search: SETTING=LOW..HIGH, SETTING=log:LOW..HIGH or SETTING=VALUE,VALUE."""
    first: tuple[str, ...] = ()
    """Settings to try first, after the defaults, each in quotes: "SETTING=VALUE SETTING=VALUE"."""
    trials: int = 20
    """Number of trials (choices of settings) for every memory; may be raised later. Trials that
    consist of episodes are something else: --wrappers.trial-episodes."""
    fresh_seeds: int = 5
    """Number of fresh seeds with which the best and the default are trained at the end."""
    episodes: int = 100
    """Greedy episodes that each of these agents plays after training."""
    score: str = ""
    """The episode metric to maximise; by default success if the task has it, else return."""
    at_once: int = 0
    """Trials that are chosen before any of them is scored; 0 takes 8 if several can be trained in
    one program, else as many as there are workers."""
    storage: str = ""
    """The URL of a database to use instead of SQLite in the folder, for example
    postgresql://HOST/NAME."""
    workers: int = 0
    """Processes, each with one thread; 0 is one for every core."""
    ray: str = ""
    """Train on a Ray cluster instead of in local processes: auto, local, HOST:PORT or
    ray://HOST:PORT; for tasks written in JAX."""


def main(args: list[str]) -> int:
    """Searches, and prints the result."""
    import_optuna()
    command = parse_training(SweepCommand, args, command="sweep", about=ABOUT)
    for line in on_algorithm(args, command.config):
        say(line)
    config = command.config
    place = Path(config.run_dir) / (config.name or f"sweep-{slug(config.env)}")
    first = [_pairs("first", words.split(), config) for words in command.first]
    sweep = Sweep(
        config=replace(config, name="", run_dir="runs"),
        vary=parse_vary(command.vary, config),
        memories=command.memories,
        trials=command.trials,
        fresh_seeds=command.fresh_seeds,
        first=tuple({n: parse_value(text) for n, text in pairs.items()} for pairs in first),
        score=command.score,
        episodes=command.episodes,
        at_once=command.at_once,
    )
    with chosen_workers(command.ray, command.workers) as workers:
        result = run_sweep(
            sweep,
            place,
            storage=command.storage,
            workers=workers,
            trust=command.trust,
            progress=study_listener(),
            how_to_go_on=f"clew sweep {shlex.join(args)}",
        )
    report = write_page(sweep, result)
    show(result, str(report.html), as_json=command.json)
    return 0


def parse_vary(words: tuple[str, ...], config: TrainConfig) -> Vary:
    """The space that --vary declares.

    Raises:
        UserError: for an unknown setting, with the nearest one, or for text that is neither values
            nor a range.
    """
    if not words:
        raise UserError(
            "what should vary? For example --vary ppo.learning_rate=log:1e-4..1e-2; see clew sweep "
            "--help"
        )
    return {name: _space(name, text) for name, text in _pairs("vary", words, config).items()}


def _space(name: str, text: str) -> Any:
    body = text.removeprefix("log:")
    low, dots, high = body.partition("..")
    if dots:
        try:
            return Range(float(low), float(high), log=text != body)
        except ValueError:
            raise UserError(f"{name} must be LOW..HIGH in numbers, got {text!r}") from None
    values = text.split(",")
    # Brackets of one JSON value are fine; those around all values are cut in two by the commas.
    cut = any(value.count(a) != value.count(b) for value in values for a, b in ("[]", "()", "{}"))
    if text != body or len(values) < 2 or cut:
        example = f", as in --vary {name}={text.strip('[](){} ')}" if cut else ""
        raise UserError(
            f"{name} must be LOW..HIGH, log:LOW..HIGH or values separated by commas{example}, "
            f"got {text!r}"
        )
    return tuple(map(parse_value, values))


def _pairs(option: str, words: Any, config: TrainConfig) -> dict[str, str]:
    """SETTING=TEXT of every word, by the setting's name in the library."""
    pairs: dict[str, str] = {}
    for word in words:
        given, equals, text = word.partition("=")
        if not (equals and given and text):
            raise UserError(f"--{option} needs SETTING=..., got {word!r}")
        name = given.removeprefix("--").replace("-", "_")
        if name in pairs:
            raise UserError(f"--{option} has {name} twice")
        known = known_settings(config)
        if name not in known and name.partition(".")[0] not in ("env_options", "memory_options"):
            _hint(option, given, known, config)
        pairs[name] = text
    return pairs


def _hint(option: str, given: str, known: list[str], config: TrainConfig) -> None:
    """Raises an error with this library's name if another library's was given."""
    last = given.rpartition(".")[2]
    options = [f"--{name.replace('_', '-')}" for name in known]
    meant = here(last, options, f"--{config.algorithm}.")
    if meant:
        names = " or ".join(name.removeprefix("--").replace("-", "_") for name in meant)
        said = note(last, meant[0])
        raise UserError(f"--{option}: unknown setting {given!r}: clew calls it {names}{said}")


def show(result: SweepResult, page: str, *, as_json: bool) -> None:
    """Prints the best, the default and the path of the page."""
    if as_json:
        tried = {memory: [t._asdict() for t in trials] for memory, trials in result.tried.items()}
        winners = {memory: winner._asdict() for memory, winner in result.winners.items()}
        print_json({"score": result.score, "winners": winners, "trials": tried, "page": page})
        return
    if result.winners:
        seeds = next(iter(result.winners.values())).best.scores
        show_table(outcome(result), f"[..] 95% interval, over fresh {over_seeds(len(seeds))}")
        show_table(settings(result))
    print(f"page: {page}")
