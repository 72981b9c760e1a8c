"""Does popjaxrl's PPO earn more in the bandit than clew's with fresh seeds, and which part matters?

    PYTHONPATH=.:TARGET:POPJAXRL python -m benchmarks.popjaxrl results/popgym-popjaxrl/bandit \\
        --tasks multiarmed-bandit --first 3 --seeds 7
    python -m benchmarks.popjaxrl.bandit results/popgym-popjaxrl/bandit --models gru
    python -m benchmarks.popjaxrl.bandit results/popgym-popjaxrl/bandit --seeds 5 \\
        --models gru-encoder gru-heads gru-encoder-settings gru-settings

With seeds 0 to 2 popjaxrl's ends at 0.42 and clew's, the GRU of `clew study popgym`, at 0.36. Of
fourteen intervals this was the nearest to leaving out 0, so seeds 3 to 9 of both decide it. All
that follows was written down before any of them ran; "last" is defined in
results/popgym-popjaxrl.

The rule: there is a difference if Welch's 95% interval of "last", using only the seven fresh seeds
of each, leaves out 0. Expected: there is one, near 0.05.

Only then, clew's agent with one change each, five seeds from 3 on:

- "gru-encoder": popjaxrl's encoder, which reads the observation and the previous action together,
  through two layers with a leaky relu, of 128 and of 64. clew's memory receives the previous action
  unencoded, beside two layers that read only the observation, so that its first layer itself has to
  find out which arm has paid;
- "gru-heads": popjaxrl's actor and critic, each with two hidden layers of 128 with a leaky relu
  instead of one with tanh, and with its first weights, an actor that begins with no preference;
- a third, added when these have been seen: the part of the better one that may matter, or both
  together if neither alone does.

The rule: a change is part of the cause if clew's earns more with it than the seven fresh seeds
without by Welch's test, p below 0.05 after Holm's correction for three, and all of the cause if
it is then not told apart from popjaxrl's. Expected: the encoder is, and heads alone are not told
apart from clew's own.

The third, settled when both had been seen: neither alone is told apart from clew's, 0.37 with the
encoder and 0.32 with the heads beside 0.33, and by the above it would be both together. But with
the encoder clew's learns as fast as popjaxrl's and falls behind only at the end, and the heads
earned no more. So instead it is "gru-encoder-settings": the encoder, and the settings of PPO in
`benchmarks.popjaxrl.their_settings`, which earned no more alone either (0.34), but have no entropy
bonus and gradients that reach back 80 steps instead of 32. Expected: above 0.40, and not told apart
from popjaxrl's.

It is 0.42, beside popjaxrl's 0.42. But three seeds of the settings alone tell little: 0.35, 0.28
and 0.38. So "gru-settings", these settings with the same five seeds as the others, shows what the
encoder adds to them, by Welch's 95% interval. Expected: it adds 0.07, and the interval leaves out
0.

Run it again to resume.
"""

import itertools
import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
from benchmarks.plans import run_plan
from benchmarks.popjaxrl.their_settings import SETTINGS
from gymnasium.spaces import Space
from jaxtyping import Array, Float, PRNGKeyArray

from clew.agents.distributions import Distribution
from clew.agents.encoders import AbstractEncoder, EncoderConfig, make_encoder
from clew.agents.heads import Heads, MakeHeads, PolicyAndValue
from clew.agents.learners.ppo import PPO
from clew.lab.grid import Study
from clew.lab.studies.popgym import grid as popgym
from clew.memory.parts import initial
from clew.memory.parts.blocks import Linear

TASK = "multiarmed-bandit"
FIRST_SEED = 3
HERE = "benchmarks.popjaxrl.bandit"


def layers(sizes: list[int], gains: list[float], key: PRNGKeyArray) -> tuple[Linear, ...]:
    """Products with orthogonal weights of these gains and no biases."""
    made = []
    pairs = zip(itertools.pairwise(sizes), gains, strict=True)
    for ((n, m), gain), k in zip(pairs, jax.random.split(key, len(gains)), strict=True):
        weight = initial.orthogonal(k, (n, m), gain)
        made.append(eqx.tree_at(lambda linear: linear.weight, Linear(n, m, key=k), weight))
    return tuple(made)


def apply(layers: tuple[Linear, ...], x: Float[Array, "*lead in"]) -> Float[Array, "*lead out"]:
    """Products with a leaky relu between them."""
    for layer in layers[:-1]:
        x = jax.nn.leaky_relu(layer(x))
    return layers[-1](x)


class TheirEncoder(AbstractEncoder):
    """Reads all observations, integers one-hot, through two layers with a leaky relu."""

    numbers: AbstractEncoder
    layers: tuple[Linear, ...]
    output_size: int = eqx.field(static=True)

    def __init__(self, space: Space[Any], *, key: PRNGKeyArray):
        self.numbers = make_encoder(space, EncoderConfig(encoder="none"), key=key)
        sizes = [self.numbers.output_size, 128, 64]
        self.layers, self.output_size = layers(sizes, [math.sqrt(2.0)] * 2, key), sizes[-1]

    def __call__(self, x: Any) -> Float[Array, "*lead out"]:
        return jax.nn.leaky_relu(apply(self.layers, self.numbers(x)))


class TheirHeads(Heads):
    """An actor and a critic with two hidden layers each, for one choice of actions."""

    actor: tuple[Linear, ...]
    critic: tuple[Linear, ...]
    distribution: Distribution

    def __init__(
        self, size: int, distribution: Distribution, *, key: PRNGKeyArray, **sizes_of_clew: Any
    ):
        actor_key, critic_key = jax.random.split(key)
        actions = distribution.num_outputs
        self.actor = layers([size, 128, 128, actions], [2.0, 2.0, 0.01], actor_key)
        self.critic = layers([size, 128, 128, 1], [2.0, 2.0, 1.0], critic_key)
        self.distribution = distribution

    def __call__(self, h: Float[Array, "*lead out"], mask: Any = None) -> PolicyAndValue:
        return PolicyAndValue(apply(self.actor, h), apply(self.critic, h)[..., 0])


class PPOWithTheirHeads(PPO):
    """clew's PPO, with popjaxrl's actor and critic."""

    @property
    def make_heads(self) -> MakeHeads:
        return TheirHeads


def bandit() -> Study:
    """clew's agent of the table, and the same with one change each."""
    study, agent = popgym.study(), popgym.agent("gru")
    network = replace(agent.network, encoder=f"{HERE}:TheirEncoder")
    encoder = replace(agent, network=network)
    models = {
        "gru": agent,
        "gru-encoder": encoder,
        "gru-heads": replace(agent, algorithm=f"{HERE}:PPOWithTheirHeads"),
        "gru-encoder-settings": replace(encoder, ppo=SETTINGS),
        "gru-settings": replace(agent, ppo=SETTINGS),
    }
    study = replace(study, name="popgym-popjaxrl/bandit", models=models, weights={})
    return study.only(list(models), [TASK])


if __name__ == "__main__":
    run_plan(__doc__, {"bandit": bandit}, first=FIRST_SEED, seeds=7)
