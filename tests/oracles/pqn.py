"""PQN in NumPy, one number at a time: Peng's Q(lambda) as a sum over n-step returns."""

import numpy as np


def greedy_values(action_values, allowed):
    """V of every observation: the largest value of the allowed actions."""
    rows = zip(action_values, allowed, strict=True)
    return [max(q for q, ok in zip(*row, strict=True) if ok) for row in rows]


def peng_returns(reward, discount, value, last, lam):
    """G_t of one environment, grouped by the number of reward steps in each part.

        R_n = r_t + d_t r_{t+1} + ... + d_t .. d_{t+n-2} r_{t+n-1} + d_t .. d_{t+n-1} V_{t+n}
        G_t = (1 - lam) (R_1 + lam R_2 + ...) + lam^{K-1} R_K

    after K steps the sequence is over, or the final observation of a truncated episode is reached.
    Lists have length T, `value` and `last` T+1. Entries after a final observation are undefined.
    """
    steps = len(reward)
    found = [None] * steps
    for t in range(steps):
        if last[t]:
            continue
        longest = next(n for n in range(1, steps + 1) if t + n == steps or last[t + n])
        parts = []
        for n in range(1, longest + 1):
            rewards = sum(np.prod(discount[t : t + i]) * reward[t + i] for i in range(n))
            parts.append(rewards + np.prod(discount[t : t + n]) * value[t + n])
        found[t] = lam ** (longest - 1) * parts[-1]
        found[t] += (1 - lam) * sum(lam ** (n - 1) * parts[n - 1] for n in range(1, longest))
    return found


def pqn_loss(action_values, allowed, trajectory, gamma, lam):
    """The loss, its parts, and its derivative by the action values [T+1, B, A]."""
    steps, batch = np.shape(trajectory.action)
    rows, places = [], []
    for b in range(batch):
        values = greedy_values(action_values[:, b], allowed[:, b])
        discount = [gamma * d for d in trajectory.discount[:, b]]
        last = trajectory.last[:, b]
        returns = peng_returns(trajectory.reward[:, b], discount, values, last, lam)
        for t in range(steps):
            if not last[t]:
                action = trajectory.action[t, b]
                taken = action_values[t, b, action]
                rows.append(
                    {
                        "value_loss": (returns[t] - taken) ** 2,
                        "action_value": taken,
                        "value": values[t],
                        "greedy_fraction": float(taken == values[t]),
                    }
                )
                places.append((t, b, action, taken - returns[t]))
    gradient = np.zeros(np.shape(action_values))
    for t, b, action, error in places:
        gradient[t, b, action] = error / len(rows)
    parts = {name: np.mean([row[name] for row in rows]) for name in rows[0]}
    return parts["value_loss"] / 2, parts, gradient


def epsilon_greedy(action_values, allowed, epsilon):
    """The probability of every action, from the policy's docstring."""
    n = len(action_values)
    open_to = [a for a in range(n) if allowed[a]]
    best = max(open_to, key=lambda a: (action_values[a], -a))
    return [(a in open_to) * epsilon / len(open_to) + (a == best) * (1 - epsilon) for a in range(n)]
