"""The compared families, and the weights and observations that every library gets."""

from typing import NamedTuple

import numpy as np

from serve import Arrays, Sizes

ACTIONS = 4


class Family(NamedTuple):
    """Memories of one kind; the first subject is clew's. A subject is "library.kind"."""

    name: str
    title: str
    subjects: tuple[str, ...]
    starts: bool = False
    """whether an episode begins in the middle of every chunk"""
    resets: float = 0.0
    """share of all steps at which another episode begins"""
    acting: bool = True
    """whether acting is measured too; a family with starts acts like the one without"""

    @property
    def kind(self) -> str:
        """The arrays that the family needs."""
        return self.subjects[0].split(".")[1]


FAMILIES = (
    Family("lstm", "LSTM", ("clew.lstm", "torch.lstm", "flax.lstm", "memax.lstm", "memorax.lstm")),
    Family("gru", "GRU", ("clew.gru", "torch.gru", "flax.gru", "memax.gru", "memorax.gru")),
    Family(
        "linear_attention",
        "Linear attention",
        ("clew.linear_attention", "memax.linear_attention", "memorax.linear_attention"),
    ),
    Family(
        "gated_delta_net",
        "Gated delta rule",
        ("clew.gated_delta_net", "memax.gated_delta_net", "fla.gated_delta_net"),
    ),
    Family("mlstm", "mLSTM", ("clew.mlstm", "mlstm-kernels.mlstm")),
    Family("min_gru", "minGRU", ("clew.min_gru", "memorax.min_gru", "mambapy.min_gru")),
    Family("lru", "LRU", ("clew.lru", "memax.lru", "memorax.lru")),
    Family(
        "gru-resets",
        "GRU, 3% of all steps begin an episode",
        ("clew.gru", "torchrl-pad.gru", "torchrl-scan.gru", "memorax.gru"),
        resets=0.03,
        acting=False,
    ),
    Family(
        "lstm-resets",
        "LSTM, 3% of all steps begin an episode",
        ("clew.lstm", "torchrl-pad.lstm", "torchrl-scan.lstm", "memorax.lstm"),
        resets=0.03,
        acting=False,
    ),
    Family("policy", "LSTM policy", ("clew.policy", "sb3-contrib.policy")),
    Family(
        "policy-starts",
        "LSTM policy, an episode begins in each chunk",
        ("clew.policy", "sb3-contrib.policy"),
        starts=True,
        acting=False,
    ),
)

DIFFERENT = {
    "memax.lstm": "gives o * c where the LSTM gives o * tanh(c)",
    "memax.gru": "resets h before the product, and z lets in what elsewhere it keeps",
    "memax.linear_attention": "divides by the last key, not by the sum of keys; adds its input",
    "memax.gated_delta_net": "erases along values, not along keys",
    "memorax.linear_attention": "norms what was attended to before the last product",
}
"""Subjects whose function differs from clew's, with the difference; all others must agree."""

WORKERS = {
    "clew": "clew_worker.py",
    "torch": "torch_worker.py",
    "sb3-contrib": "torch_worker.py",
    "flax": "flax_worker.py",
    "memorax": "flax_worker.py",
    "memax": "memax_worker.py",
    "mlstm-kernels": "flax_worker.py",
    "torchrl-pad": "torchrl_worker.py",
    "torchrl-scan": "torchrl_worker.py",
    "fla": "torch_forms_worker.py",
    "mambapy": "torch_forms_worker.py",
}
"""The program in `benchmarks/peers` that runs a library."""


def make_arrays(family: Family, sizes: Sizes, seed: int = 0) -> Arrays:
    """Weights and observations of a family.

    Weights are [in, out], gates side by side: i, f, g, o of the LSTM, r, z, n of the GRU. Head
    size of the linear attention, of the delta rule and of the mLSTM is half its width.

    Returns:
        "inputs" [time, env, width], "starts" [time, env], "cotangent" [time, env, width], for
        policies "actions", "advantages" and "returns" [time, env]; and the weights.
    """
    random = np.random.default_rng(seed)
    width, grid = sizes.width, (sizes.length, sizes.envs)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    starts = np.zeros(grid, bool)
    starts[0] = True
    if family.starts:
        starts[sizes.length // 2] = True
    starts |= np.random.default_rng(seed + 1).random(grid) < family.resets
    arrays = {"inputs": normal(*grid, width), "starts": starts}
    if family.kind == "policy":
        arrays |= {"advantages": normal(*grid), "returns": normal(*grid)}
        arrays["actions"] = random.integers(0, ACTIONS, grid)
    else:
        arrays["cotangent"] = normal(*grid, width)
    weights = _weights(family.kind, width)
    arrays |= {n: normal(*s) / np.float32(max(1, s[0]) ** 0.5) for n, s in weights.items()}
    if family.kind == "lru":  # |lambda| about 0.98
        arrays["nu"] -= np.float32(4.0)
    return arrays


def _weights(kind: str, width: int) -> dict[str, tuple[int, ...]]:
    """Shapes by name."""
    gates = {"lstm": 4, "policy": 4, "gru": 3}.get(kind, 0) * width
    of_heads = {
        "linear_attention": (),
        "gated_delta_net": ("rate", "keep"),
        "mlstm": ("input_gate", "forget_gate"),
    }
    if kind in of_heads:
        head = max(1, width // 2)
        into = {name: (width, head) for name in ("query", "key", "value")}
        into |= {name: (width, 1) for name in of_heads[kind]}
        return into | {"output": (head, width)}
    if kind == "min_gru":
        return {"gate": (width, width), "candidate": (width, width)}
    if kind == "lru":
        of_b_and_c = ("b_real", "b_imag", "c_real", "c_imag")
        rates = {name: (width,) for name in ("nu", "theta", "gamma", "skip")}
        return rates | {name: (width, width) for name in of_b_and_c}
    shapes: dict[str, tuple[int, ...]] = {
        "input_weight": (width, gates),
        "recurrent_weight": (width, gates),
        "bias": (gates,),
    }
    if kind == "gru":
        shapes["candidate_bias"] = (width,)
    if kind == "policy":
        for name, out in (("actor", ACTIONS), ("critic", 1)):
            shapes |= {f"{name}_hidden": (width, width), f"{name}_hidden_bias": (width,)}
            shapes |= {f"{name}_output": (width, out), f"{name}_output_bias": (out,)}
    return shapes
