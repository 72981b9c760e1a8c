"""`clew models`: the memory models and their costs."""

import inspect
import re
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import tyro

from clew.cli.parse import parse
from clew.cli.tables import print_json, print_table
from clew.errors import UserError
from clew.names import find, is_reference, resolve

ABOUT = """Lists the memory models with their costs at default sizes: parameters, state size
(floats) of one environment, and multiply-adds per step; nothing is trained or timed. With a name,
shows that model's options and equations."""

INPUT_SIZE = 16
"""The T-Maze's observation."""


@dataclass(frozen=True)
class ModelsCommand:
    """Options of `clew models`."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[NAME]")] = ""
    """A model to show with its options, their defaults and its equations; without one all are
    listed."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of that model, to see its cost with them."""
    input_size: int = INPUT_SIZE
    """Size of one observation; the T-Maze's is 16."""
    layout: bool = False
    """Show the parameters and the state of that model: attribute, axes and shape of each."""
    study: str = ""
    """Show the whole agents of a study instead, with encoder and heads; a name as for clew
    study."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Lists models, shows one, or lists a study's agents."""
    command = parse(ModelsCommand, args, command="models", about=ABOUT)
    if command.study and replace(command, study="", json=False) != ModelsCommand():
        raise UserError("--study takes no other option than --json: leave out the rest")
    for option, given in (("--options", command.options), ("--layout", command.layout)):
        if given and not command.name:
            raise UserError(f"{option} needs the NAME of a model")
    if command.study:
        return _show(
            study_costs(command.study), command.json, f"whole agents of {command.study}, as coded"
        )
    from clew.memory import MEMORIES, options_of  # start: JAX takes a second

    if command.layout:
        return _show_layout(command)
    names = [command.name] if command.name else list(MEMORIES)
    rows = [model_costs(name, command.input_size, command.options) for name in names]
    if command.name:
        kind = find("memory", command.name, MEMORIES)
        rows[0] |= {"options": options_of(kind) | command.options}
        if not command.json:
            text = str(inspect.getdoc(kind)).replace("$", "")  # signs of equations, for the site
            print(f"{command.name}\n\n{text}\n\noptions:")
            said = argument_docs(kind)
            for name, value in rows[0]["options"].items():
                print(f"  {name}={value}: {said.get(name, '')}".rstrip(": "))
            print()
    title = f"{command.input_size} inputs" + ("" if command.name else ", default options")
    return _show(rows, command.json, title)


def argument_docs(kind: Any) -> dict[str, str]:
    """The descriptions of arguments in the docstrings of a class and its constructor, by name."""
    texts = (inspect.getdoc(kind), inspect.cleandoc(kind.__init__.__doc__ or ""))
    said: dict[str, str] = {}
    for section in re.findall(r"^Args:\n((?:    .*\n?|\n)+)", "\n\n".join(map(str, texts)), re.M):
        for name, words in re.findall(r"^    (\w+): (.*(?:\n        .*)*)", section, re.M):
            said.setdefault(name, " ".join(words.split()))
    return said


def model_costs(name: str, input_size: int, options: dict[str, Any]) -> dict[str, Any]:
    """The cost of one memory, from its shapes alone.

    Raises:
        UserError: for an unknown model or option, or an impossible size.
    """
    return _costs(name, _abstract_memory(name, input_size, options), input_size)


def show_costs(names: list[str], input_size: int) -> None:
    """Prints the costs of memories at default sizes."""
    rows = [model_costs(name, input_size, {}) for name in names]
    _show(rows, False, f"cost at default sizes, for {input_size:,} inputs")


def _abstract_memory(name: str, input_size: int, options: dict[str, Any]) -> Any:
    """A memory with shapes in place of its arrays."""
    import equinox as eqx  # start: JAX takes a second
    import jax  # start: JAX takes a second

    from clew.memory import make_memory  # start: JAX takes a second

    kind = resolve(name) if is_reference(name) else name
    return eqx.filter_eval_shape(
        lambda key: make_memory(kind, input_size=input_size, key=key, **options), jax.random.key(0)
    )


def _show_layout(command: ModelsCommand) -> int:
    from clew.memory.parts.layout import (  # start: JAX takes a second
        parameter_layout,
        state_layout,
    )

    memory = _abstract_memory(command.name, command.input_size, command.options)
    parts = {"parameters": parameter_layout(memory), "state": state_layout(memory)}
    if command.json:
        print_json(parts)
        return 0
    for title, leaves in parts.items():
        rows = [[leaf.path, leaf.axes, str(list(leaf.shape))] for leaf in leaves]
        print_table(title, ["", "axes", "shape"], rows)
    print(
        "Weights are [in, out], y = x W + b: transposed against PyTorch's. Gates lie side by side\n"
        f"along the last axis in the order of the equation; clew models {command.name} shows it."
    )
    return 0


def study_costs(study: str) -> list[dict[str, Any]]:
    """The costs of the whole agents of a study, on its task, as they were coded."""
    from clew.lab.studies import study_presets  # start: JAX takes a second
    from clew.run.build import abstract_agent, make_task  # start: JAX takes a second

    rows = []
    for name, preset in study_presets(study).items():
        task = make_task(preset)
        agent = abstract_agent(preset, task)
        rows.append(_costs(name, agent, task.require_stream().observation_size))
    return rows


def _costs(name: str, module: Any, input_size: int) -> dict[str, Any]:
    from clew.lab.costs import (  # start: JAX takes a second
        multiply_adds,
        parameters,
        state_size,
    )

    state, work = state_size(module), multiply_adds(module, input_size)
    row = {
        "name": name,
        "parameters": parameters(module),
        "state_floats": state.floats,
        "state_integers": state.integers,
        "state_bytes": state.bytes,
        "multiply_adds": work.per_step,
        "shared_multiply_adds": work.shared,
    }
    return row | ({"uncounted": list(work.uncounted)} if work.uncounted else {})


def _show(rows: list[dict[str, Any]], as_json: bool, title: str) -> int:
    if as_json:
        print_json(rows)
        return 0
    numbers = ("parameters", "state_floats", "state_integers", "multiply_adds")
    table = [[row["name"], *(f"{row[name]:,}" for name in numbers)] for row in rows]
    columns = ["", "parameters", "state (floats)", "state (integers)", "multiply-adds/step"]
    print_table(title, columns, table, "state size and multiply-adds are for one environment")
    return 0
