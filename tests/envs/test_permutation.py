"""The permutation task equals its plain transcription; its masks agree in every form."""

import gymnasium
import jax
import numpy as np
import pytest

from clew.envs import AutoReset, Permutation
from clew.envs.spaces import BARE, MASK
from clew.errors import UserError
from oracles.permutation import PermutationOracle
from streams import BATCH, roll


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("cards", [2, 4])
def test_a_stream_equals_the_transcription(cards, masks):
    """Also if forbidden actions are taken, which a stream does not prevent."""
    env = Permutation(cards, masks=masks, penalty=0.25)
    actions = np.random.default_rng(0).integers(cards + 1, size=(60, BATCH))
    actions[::2] = np.where(np.arange(30)[:, None] % cards < cards // 2, cards, actions[::2])
    steps = roll(env, actions)
    seen = steps.observation[BARE] if masks else steps.observation
    kinds = set()
    for b in range(BATCH):
        t = 0
        while t + 2 * cards <= len(actions):
            order = [int(seen[t + k, b, :cards].argmax()) for k in range(cards)]
            oracle, ended = PermutationOracle(order, 0.25), False
            while not ended:
                np.testing.assert_array_equal(seen[t, b], oracle.observation())
                if masks:
                    assert steps.observation[MASK][t, b].tolist() == oracle.mask()
                reward, ended = oracle.step(int(actions[t, b]))
                t += 1
                assert steps.reward[t, b] == np.float32(reward)
                assert steps.start[t, b] == ended
                kinds.add(np.sign(reward))
            at = {name: float(values[t, b]) for name, values in steps.metrics.items()}
            assert at["forbidden"] == oracle.forbidden
            assert at["correct"] == pytest.approx(oracle.correct / cards)
            assert at["success"] == (oracle.correct == cards and not oracle.forbidden)
    assert kinds == {-1.0, 0.0, 1.0}


def test_gymnasium_has_the_mask_in_info():
    env = gymnasium.make("clew/Permutation-v0", num_cards=3)
    observation, info = env.reset(seed=0, options={"order": [2, 0, 1]})
    oracle = PermutationOracle([2, 0, 1], 0.1)
    for action in (3, 3, 3, 2, 2, 1):
        assert observation.tolist() == oracle.observation()
        assert info[MASK].dtype == np.int8 and info[MASK].tolist() == oracle.mask()
        observation, reward, terminated, _, info = env.step(action)
        assert (reward, terminated) == (pytest.approx(oracle.step(action)[0]), oracle.time == 6)
    assert info["forbidden"] == 1 and info["correct"] == pytest.approx(2 / 3)
    assert MASK not in gymnasium.make("clew/Permutation-v0", masks=False).reset(seed=0)[1]


def test_impossible_settings_are_refused():
    for options in ({"num_cards": 1}, {"penalty": -1.0}, {"masks": 1}):
        with pytest.raises(UserError, match=next(iter(options))):
            Permutation(**options)
    env = gymnasium.make("clew/Permutation-v0", num_cards=3)
    with pytest.raises(UserError, match="every card from 0 to 2 once"):
        env.reset(options={"order": [0, 0, 1]})


def test_what_is_remembered_is_the_order():
    env = Permutation(4)
    state, _ = env.reset(jax.random.key(3))
    assert [int(x) for x in env.remembered(state).values()] == state.order.tolist()
    assert env.render_text(state, np.zeros(9)).startswith("shown ")
    assert AutoReset(env).observation_size == 9
