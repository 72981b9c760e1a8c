"""R2D2's equations in NumPy, one number at a time: returns, errors, priorities, weights."""

import numpy as np

EPSILON = 1e-3


def rescaled(x):
    """h of Pohlen et al. (2018)."""
    return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + EPSILON * x


def unscaled(y):
    """Its inverse, as their Proposition A.2 prints it."""
    root = np.sqrt(1 + 4 * EPSILON * (abs(y) + 1 + EPSILON))
    return np.sign(y) * (((root - 1) / (2 * EPSILON)) ** 2 - 1)


def n_step_return(reward, discount, value, valid, t, n):
    """The sum of up to n discounted rewards of one environment from time t on, and a value."""
    total, factor = 0.0, 1.0
    for step in range(t, t + n):
        if step == len(reward) or not valid[step]:
            return total + factor * value[step]
        total += factor * reward[step]
        factor *= discount[step]
    return total + factor * value[t + n]


def temporal_differences(online, target, action, reward, discount, valid, n, rescale):
    """delta_t of one environment: lists of T, `online` and `target` [T+1, A]."""
    to, back = (rescaled, unscaled) if rescale else (float, float)
    values = [back(target[t][np.argmax(online[t])]) for t in range(len(reward) + 1)]
    found = []
    for t in range(len(reward)):
        goal = to(n_step_return(reward, discount, values, valid, t, n))
        found.append(goal - online[t][action[t]] if valid[t] else 0.0)
    return found


def priority(errors, valid, eta):
    """Of one sequence."""
    sizes = [abs(error) for error, ok in zip(errors, valid, strict=True) if ok]
    return eta * max(sizes) + (1 - eta) * np.mean(sizes)


def probabilities(priorities, alpha):
    """P(i) of Schaul et al. (2016), Eq. 1."""
    powers = [p**alpha for p in priorities]
    whole = sum(powers)
    return [power / whole for power in powers]


def importance(chances, number, beta):
    """w_i of their section 3.4, over the largest of those that were drawn."""
    weights = [(1 / (number * chance)) ** beta for chance in chances]
    largest = max(weights)
    return [weight / largest for weight in weights]
