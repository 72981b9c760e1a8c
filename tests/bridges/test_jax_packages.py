"""JAX environment packages that are not installed, and what a bridge may declare about a task."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.bridges import jax_packages
from clew.bridges.gymnasium.task import is_gymnasium
from clew.bridges.jax_packages import PACKAGES, Package, import_package, is_packaged
from clew.bridges.make import env_options, make_env
from clew.envs import AutoReset
from clew.envs.spaces import MASK
from clew.errors import UserError
from fake_gymnax import Base, State, discrete

PLACES = {
    "xminigrid": "MiniGrid-MemoryS8",
    "craftax": "Craftax-Symbolic-v1",
    "brax": "ant",
    "jumanji": "Snake-v1",
}


@pytest.mark.parametrize("package", PLACES)
def test_a_package_that_is_missing_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name=name.partition(".")[0])

    monkeypatch.setattr(jax_packages.importlib, "import_module", missing)
    with pytest.raises(UserError, match=f"{package} environments need .* 'clew.{package}.'"):
        import_package(package)


def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "numpy", Package((0, 1), "old"))
    with pytest.raises(UserError, match="clew works with numpy 0.1, got .*pip install 'clew.old.'"):
        import_package("numpy")


@pytest.mark.parametrize("package", PACKAGES)
def test_their_names_are_no_factories(package: str) -> None:
    assert is_packaged(f"{package}:ant") and not is_gymnasium(f"{package}:ant")
    assert not is_packaged(package) and not is_packaged(f"{package}s:ant")


class Masked(Base):
    """Forbids the previous action, and has a picture."""

    def reset(self, key: Any, params: Any) -> Any:
        return jnp.int32(0), State(0.0, 0)

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return action, State(jnp.float32(action), state.time + 1), 1.0, False, {}

    def observation_space(self, params: Any) -> Any:
        return discrete(3)

    def action_space(self, params: Any) -> Any:
        return discrete(3)

    def action_mask(self, state: Any) -> Any:
        return jnp.arange(3) != jnp.asarray(state.label).astype(jnp.int32)

    def render_state(self, state: Any) -> np.ndarray:
        return np.full((2, 2, 3), state.time, np.uint8)


def test_masks_and_pictures_of_an_environment_are_the_tasks() -> None:
    env = make_env("gymnax:test_jax_packages:Masked")
    assert env.masks_actions
    stream = AutoReset(env)
    state, first = stream.reset(jax.random.key(0))
    np.testing.assert_array_equal(first.observation[MASK], [False, True, True])
    state, then = stream.step(state, jnp.int32(2), jax.random.key(1))
    np.testing.assert_array_equal(then.observation[MASK], [True, True, False])
    inner, observation = env.reset(jax.random.key(0))
    picture = env.render_image(inner, np.asarray(observation))
    assert picture is not None and picture.shape == (2, 2, 3)
    assert env_options("gymnax:test_jax_packages:Masked") is not None
