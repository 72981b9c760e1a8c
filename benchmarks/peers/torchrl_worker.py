"""TorchRL's recurrent modules, in the forms that it has for processors. Runs in .venv-peers.

"pad" cuts a chunk at every start and pads the pieces, "scan" is its loop over time; "triton", its
third form, is only for GPUs.
"""

from typing import Any

import torch
from tensordict import TensorDict
from torchrl.modules import GRUModule, LSTMModule, set_recurrent_mode

from serve import Arrays, Build, Sizes, Subject, serve
from torch_subject import TorchSubject, cell_gradients, fill_cell, on_best_threads

STATES = {"gru": ("h",), "lstm": ("h", "c")}


def of_torchrl(kind: str, backend: str) -> Build:
    """One layer; its inputs and outputs are in a TensorDict."""

    def build(sizes: Sizes, arrays: Arrays) -> Subject:
        make, names = {"gru": GRUModule, "lstm": LSTMModule}[kind], STATES[kind]
        module = make(
            input_size=sizes.width,
            hidden_size=sizes.width,
            in_keys=["x", *names],
            out_keys=["y", *(("next", name) for name in names)],
            recurrent_backend=backend,
        )
        cell = getattr(module, kind)
        fill_cell(cell, arrays)

        def chunk(xs: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
            given = TensorDict({"x": xs, "is_init": starts[..., None]}, batch_size=xs.shape[:2])
            with set_recurrent_mode(True):
                return module(given)["y"]

        def step(state: Any, x: torch.Tensor, start: torch.Tensor) -> tuple[Any, torch.Tensor]:
            if state is None:
                state = {name: torch.zeros(len(x), 1, sizes.width) for name in names}
            given = TensorDict({"x": x, "is_init": start[:, None], **state}, batch_size=len(x))
            found = module(given)
            return {name: found["next", name] for name in names}, found["y"]

        return TorchSubject(
            sizes,
            arrays,
            params=cell,
            chunk=chunk,
            step=step,
            gather=lambda: cell_gradients(cell),
            takes_starts=True,
        )

    return on_best_threads(build)


if __name__ == "__main__":
    serve(
        ("torchrl", "torch"),
        {
            f"torchrl-{backend}.{kind}": of_torchrl(kind, backend)
            for backend in ("pad", "scan")
            for kind in ("gru", "lstm")
        },
    )
