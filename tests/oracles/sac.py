"""SAC's equations in NumPy, one number at a time: soft values, targets, losses."""

import math


def softmax(logits):
    """Probabilities of one choice."""
    powers = [math.exp(x - max(logits)) for x in logits]
    return [power / sum(powers) for power in powers]


def entropy_of_choice(logits):
    """-sum_a p_a log p_a, over actions with a positive probability."""
    return -sum(p * math.log(p) for p in softmax(logits) if p > 0)


def log_density(mean, log_std, u):
    """log pi of the action tanh(u), Haarnoja et al. (2018), appendix C, Eq. 21."""
    total = 0.0
    for m, s, x in zip(mean, log_std, u, strict=True):
        total += -0.5 * ((x - m) / math.exp(s)) ** 2 - s - 0.5 * math.log(2 * math.pi)
        total -= math.log(1 - math.tanh(x) ** 2)
    return total


def target(reward, discount, gamma, next_value):
    """y of Haarnoja et al. (2018), Eqs. 2 and 3."""
    return reward + gamma * discount * next_value


def soft_value_of_choice(logits, first, second, alpha):
    """V of Christodoulou (2019): an expectation over all actions."""
    p = softmax(logits)
    lower = [min(a, b) for a, b in zip(first, second, strict=True)]
    quality = sum(chance * q for chance, q in zip(p, lower, strict=True) if chance > 0)
    return quality + alpha * entropy_of_choice(logits)


def mean_over(values, valid):
    """The mean over valid steps."""
    return sum(v for v, ok in zip(values, valid, strict=True) if ok) / sum(valid)


def losses(taken, y, soft, entropy, goal, alpha, valid):
    """The losses of critics, policy and temperature, from lists over all times and sequences."""
    squares = [sum((q - to) ** 2 for q in pair) / 2 for pair, to in zip(taken, y, strict=True)]
    gaps = [alpha * (h - g) for h, g in zip(entropy, goal, strict=True)]
    return (
        mean_over(squares, valid),
        mean_over([-v for v in soft], valid),
        mean_over(gaps, valid),
    )
