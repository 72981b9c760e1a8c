"""Training a memory with complex parameters and a complex state, `own_lru:LRU`."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import clew
from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.base import LearnerState, adam, apply_gradient
from clew.agents.learners.ppo import PPOConfig
from clew.cli import run
from clew.run.build import make_parts
from clew.run.progress import Quiet
from clew.run.updates import init_run
from own_lru import LRU
from small_run import assert_same_run, last_state, small_config

pytestmark = pytest.mark.usefixtures("ordinary_promotion")
OWN: dict[str, Any] = {"memory": LRU, "memory_options": {"hidden_size": 4}}


def test_the_optimiser_takes_absolute_values() -> None:
    """Adam after clipping, with real and imaginary parts of different gradients, in plain NumPy."""
    config = A2CConfig(learning_rate=0.05, max_grad_norm=0.5)
    target, weights = np.array([0.3 - 1j, 2j]), np.array([1.0, 3.0])
    begun = np.array([1 + 2j, -3 + 0.5j])

    def loss(agent: Any) -> Any:
        off: Any = agent["turn"] - target.astype(np.complex64)
        return jnp.sum(weights[0] * off.real**2 + weights[1] * off.imag**2) + agent["size"] ** 2

    optimiser = adam(config)
    agent: Any = {"turn": jnp.asarray(begun, jnp.complex64), "size": jnp.float32(2)}
    state = LearnerState(optimiser.init(agent))
    p, mean, square = np.array([*begun, 2.0]), np.zeros(3, complex), np.zeros(3)
    for i in range(1, 6):
        found = jax.value_and_grad(lambda agent: loss(agent))(agent)
        agent, state, metrics = apply_gradient(agent, state, (found[0], {}), found[1], optimiser)
        off: Any = p[:2] - target
        rise = np.array([*(2 * (weights[0] * off.real + 1j * weights[1] * off.imag)), 2 * p[2]])
        size = np.sqrt(np.sum(np.abs(rise) ** 2))
        assert metrics["grad_norm"] == pytest.approx(size, rel=1e-5)
        rise *= min(1.0, 0.5 / size)
        mean = 0.9 * mean + 0.1 * rise
        square = 0.999 * square + 0.001 * np.abs(rise) ** 2
        step = mean / (1 - 0.9**i) / (np.sqrt(square / (1 - 0.999**i)) + 1e-8)
        p = p - 0.05 * step
    np.testing.assert_allclose(np.array([*agent["turn"], agent["size"]]), p, rtol=1e-4)


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """With complex numbers in parameters, optimiser and states of two seeds."""
    steps = 16 * 2 * 4
    a2c = A2CConfig(num_envs=2, rollout_length=4)
    changes: dict[str, Any] = {"steps": steps, "a2c": a2c, **OWN}
    whole = clew.train(small_config(tmp_path, "whole", **changes), progress=Quiet())
    half = small_config(tmp_path, "half", **changes)
    clew.train(half, progress=Quiet(), callbacks=[lambda report: report.steps >= steps // 2])
    clew.resume_run(tmp_path / "half", progress=Quiet())
    assert_same_run(whole.path, tmp_path / "half")
    kinds = {name.split("/")[2] for name, x in last_state(whole.path).items() if x.dtype == "c8"}
    assert kinds == {"agent", "learner", "actor"}


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["sync", "async"])
def test_hosted_and_asynchronous_runs_learn(tmp_path: Path, runner: str) -> None:
    """The parameters that reach the actors' processes are complex too."""
    config = clew.TrainConfig(
        env="gymnasium:CartPole-v1",
        algorithm="ppo",
        ppo=PPOConfig(num_envs=4, rollout_length=8, sequence_length=8),
        steps=640,
        runner=runner,
        run_dir=str(tmp_path),
        **OWN,
    )
    trained: Any = last_state(clew.train(config, progress=Quiet()).path)["/seed/agent/memory/B"]
    first: Any = np.asarray(init_run(make_parts(config)).seed.agent.memory.B)
    assert trained.dtype == np.complex64 and np.isfinite(trained).all()
    assert (trained.imag != first.imag).all()


@pytest.mark.slow
def test_every_command_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checked in double precision, counted, trained, evaluated, inspected, filmed, exported."""
    steps = "--steps 2048 --env-options corridor_length=2 --name own"
    for words in (
        f"train --memory own_lru:LRU {steps} --run-dir {tmp_path}",
        f"evaluate {tmp_path}/own --episodes 5",
        f"inspect {tmp_path}/own --episodes 40 --influence-episodes 2",
        f"watch {tmp_path}/own",
        f"export {tmp_path}/own",
        f"export {tmp_path}/own/export --verify",
        "check own_lru:LRU --lengths 1 7 --precision float64",
        "cost --memories own_lru:LRU --compiled",
        "models own_lru:LRU",
    ):
        assert run(words.split()) == 0, words
    assert "552" in capsys.readouterr().out
