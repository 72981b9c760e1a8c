"""RWKV-7: Peng et al. (2025), section 4.1, without Eq. 8-10."""

from functools import partial
from typing import Any

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, layer_norm, numbers, sigmoid


class TimeMixing(Mixer):
    """Eq. 3-7, 11-17 and 20-22, head by head, with G_t written out."""

    def forget(self) -> None:
        """wkv_0 = 0, and zeros before the first observation."""
        heads, size = self.weights.bonus.shape
        self.wkv = [np.zeros((size, size)) for _ in range(heads)]
        self.last: Any = 0.0

    def read(self, x: Vector) -> Vector:
        """What the layer adds."""
        w = self.weights
        x = layer_norm(w.norm, x)
        shifted = [x + (self.last - x) * mu for mu in numbers(w.shift.shares)]
        self.last = x
        x_r, x_k, x_v, x_d, x_a, x_g = shifted
        a = sigmoid(affine(w.rate.wide, affine(w.rate.narrow, x_a)))
        k = affine(w.key, x_k)
        kappa = k * numbers(w.removal)
        k_tilde = k * (1.0 + (a - 1.0) * numbers(w.replacement))
        v, r = affine(w.value, x_v), affine(w.receptance, x_r)
        d = affine(w.decay.wide, np.tanh(affine(w.decay.narrow, x_d)))
        decay = np.exp(-np.exp(-0.5) * sigmoid(d))
        g = affine(w.gate[1], sigmoid(affine(w.gate[0], x_g)))
        heads = []
        for h, rho in enumerate(numbers(w.bonus)):
            part = slice(h * len(rho), (h + 1) * len(rho))
            unit = kappa[part] / np.sqrt(kappa[part] @ kappa[part])
            transition = np.diag(decay[part]) - np.outer(unit, a[part] * unit)
            self.wkv[h] = self.wkv[h] @ transition + np.outer(v[part], k_tilde[part])
            u = (r[part] @ (rho * k_tilde[part])) * v[part]
            heads.append(layer_norm(w.output_norm, self.wkv[h] @ r[part], epsilon=64e-5) + u)
        return affine(w.output, g * np.concatenate(heads))


run = partial(run_mixers, TimeMixing)
