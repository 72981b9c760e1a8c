"""PyTorch modules as JAX memories: values, gradients, batches; skipped without PyTorch."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import clew

torch = pytest.importorskip("torch")

from benchmarks.conformance.torch_modules import (  # noqa: E402  after the question whether it is there
    TorchCalls,
    TorchModule,
    cut_at_starts,
)

SIZE = 4


def memory(read: Any = None) -> TorchModule:
    """PyTorch's own GRU."""
    torch.manual_seed(0)
    module = torch.nn.GRU(SIZE, SIZE, batch_first=True)

    def whole(module: Any, state: Any, xs: Any) -> Any:
        ys, after = module(xs, state[0][None])
        return [after[0]], ys

    def step(module: Any, state: Any, x: Any) -> Any:
        after, ys = whole(module, state, x[:, None])
        return after, ys[:, 0]

    calls = cut_at_starts(lambda module, batch: [torch.zeros(batch, SIZE)], whole, step)
    calls = calls if read is None else TorchCalls(calls.begin, read(calls), calls.step)
    return TorchModule(module, calls, SIZE, SIZE)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_sound_module_obeys_the_laws(precision: Any) -> None:
    assert clew.check(memory(), lengths=(1, 5), precision=precision).passed


def test_a_gradient_is_that_of_pytorch() -> None:
    gru = memory()
    xs = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    state, starts = jnp.ones(SIZE), jnp.zeros(5, bool)

    def loss(gru: Any, state: Any, xs: Any) -> Any:
        return (gru.unroll((state,), xs, starts)[1] ** 2).sum()

    found = jax.grad(loss, argnums=(0, 1, 2), allow_int=True)(gru, state, jnp.asarray(xs))
    module = gru.host.modules["float32"]
    before = torch.ones(1, 1, SIZE, requires_grad=True)
    given = torch.from_numpy(xs[None]).requires_grad_()
    (module(given, before)[0] ** 2).sum().backward()
    np.testing.assert_allclose(found[1], before.grad[0, 0], rtol=1e-5)
    np.testing.assert_allclose(found[2], given.grad[0], rtol=1e-5)
    for actual, parameter in zip(found[0].parameters, module.parameters(), strict=True):
        np.testing.assert_allclose(actual, parameter.grad, rtol=1e-4, atol=1e-6)


def test_a_reset_one_step_late_and_a_state_that_is_not_carried_are_found() -> None:
    def late(calls: Any) -> Any:
        def read(module: Any, state: Any, xs: Any, starts: Any) -> Any:
            return calls.read(module, state, xs, torch.roll(starts, 1, 1))

        return read

    def forgets(calls: Any) -> Any:
        def read(module: Any, state: Any, xs: Any, starts: Any) -> Any:
            after, ys = calls.read(module, state, xs, starts)
            return [0 * leaf for leaf in after], ys

        return read

    for wrong, law in ((late, "causal"), (forgets, "stream")):
        report = clew.check(memory(wrong), lengths=(1, 5), raise_on_failure=False)
        assert law in [failure.law for failure in report.failures]


def test_a_library_that_breaks_for_one_member_is_found() -> None:
    def shy(calls: Any) -> Any:
        def read(module: Any, state: Any, xs: Any, starts: Any) -> Any:
            after, ys = calls.read(module, state, xs, starts)
            return after, ys * (1.5 if len(xs) == 1 else 1.0)

        return read

    report = clew.check(memory(shy), lengths=(1, 5), raise_on_failure=False)
    assert [failure.law for failure in report.failures] == ["batch"]
