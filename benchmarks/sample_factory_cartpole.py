"""Sample Factory's asynchronous PPO on CartPole, for `async_rates.py`, in its own environment.

Takes Sample Factory's own options. Needs `pip install torch sample-factory` (numpy below 2).
"""

import sys
from typing import Any

import gymnasium
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl


def make(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> gymnasium.Env:
    """One CartPole."""
    return gymnasium.make(name, render_mode=render_mode)


def main() -> int:
    """Trains; its worker processes import this module, and must not start a training too."""
    register_env("CartPole-v1", make)
    parser, _ = parse_sf_args(sys.argv[1:])
    return run_rl(parse_full_cfg(parser, sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
