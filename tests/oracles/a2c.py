"""Advantage actor-critic in NumPy, one number at a time, from the equations."""

import numpy as np


def lambda_returns(reward, discount, value, valid, lam):
    """G_t of one environment; lists of length T, `value` of T+1."""
    steps = len(reward)
    later = value[steps]
    returns = [0.0] * steps
    for t in reversed(range(steps)):
        if valid[t]:
            later = reward[t] + discount[t] * ((1 - lam) * value[t + 1] + lam * later)
        else:
            later = value[t]
        returns[t] = later
    return returns


def a2c_loss(logits, values, trajectory, config):
    """The loss and its parts, from logits [T+1, B, A] and values [T+1, B]."""
    steps, batch = np.shape(trajectory.action)
    squares, entropies, seen = [], [], []
    advantages, log_probs = [], []
    for b in range(batch):
        valid = [not last for last in trajectory.last[:steps, b]]
        discount = [config.gamma * d for d in trajectory.discount[:, b]]
        returns = lambda_returns(trajectory.reward[:, b], discount, values[:, b], valid, config.lam)
        if config.return_normalisation:
            kept = [g for g, ok in zip(returns, valid, strict=True) if ok]
            if np.std(kept) > 0:
                returns = [(g - np.mean(kept)) / np.std(kept) for g in returns]
        for t in range(steps):
            if not valid[t]:
                continue
            p = np.exp(logits[t, b] - np.max(logits[t, b]))
            p = p / p.sum()
            advantages.append(returns[t] - values[t, b])
            log_probs.append(np.log(p[trajectory.action[t, b]]))
            squares.append((returns[t] - values[t, b]) ** 2)
            entropies.append(-np.sum(p * np.log(p)))
            seen.append(values[t, b])
    if config.advantage_normalisation:
        advantages = (advantages - np.mean(advantages)) / (np.std(advantages) + 1e-8)
    policy = [-lp * a for lp, a in zip(log_probs, advantages, strict=True)]
    parts = {
        "policy_loss": np.mean(policy),
        "value_loss": np.mean(squares),
        "entropy": np.mean(entropies),
        "value": np.mean(seen),
    }
    loss = (
        parts["policy_loss"]
        + config.value_cost * parts["value_loss"]
        - config.entropy_cost * parts["entropy"]
    )
    if config.loss_over_time == "sum":
        loss *= len(policy) / batch
    return loss, parts
