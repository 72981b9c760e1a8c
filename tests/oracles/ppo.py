"""Proximal policy optimisation and V-trace in NumPy, one number at a time, from the equations."""

import numpy as np


def ppo_loss(logits, values, batch, config):
    """The loss and its parts, from logits [S, N, A] and values [S, N] of the present network."""
    steps, number = np.shape(batch.valid)
    kept = [(s, n) for s in range(steps) for n in range(number) if batch.valid[s, n]]
    advantages = [batch.advantage[i] for i in kept]
    if config.advantage_normalisation:
        advantages = (advantages - np.mean(advantages)) / (np.std(advantages) + 1e-8)
    upper = 1 + config.clip_ratio
    lower = 1 - config.clip_ratio if config.lower_clip == "symmetric" else 1 / upper
    rows = []
    for i, advantage in zip(kept, advantages, strict=True):
        p = np.exp(logits[i] - np.max(logits[i]))
        p = p / p.sum()
        ratio = p[batch.action[i]] / np.exp(batch.log_prob[i])
        clipped = min(max(ratio, lower), upper)
        error = (values[i] - batch.target[i]) ** 2
        if config.value_clip is not None:
            moved = np.clip(values[i] - batch.value[i], -config.value_clip, config.value_clip)
            error = max(error, (batch.value[i] + moved - batch.target[i]) ** 2)
        rows.append(
            {
                "policy_loss": -min(ratio * advantage, clipped * advantage),
                "value_loss": error,
                "entropy": -np.sum(p * np.log(p)),
                "value": values[i],
                "kl": ratio - 1 - np.log(ratio),
                "clip_fraction": float(ratio != clipped),
            }
        )
    parts = {name: np.mean([row[name] for row in rows]) for name in rows[0]}
    loss = (
        parts["policy_loss"]
        + config.value_cost * parts["value_loss"]
        - config.entropy_cost * parts["entropy"]
    )
    return loss, parts


def vtrace(reward, discount, value, valid, log_ratio, lam, clip):
    """G_t and A_t of one environment, by the sum over later times of Espeholt et al.'s Eq. 1.

    Lists of T, `value` of T+1. An episode's sum ends before what is not valid.
    """
    steps = len(reward)
    weight = [min(np.exp(x), clip) for x in log_ratio]
    difference = [reward[t] + discount[t] * value[t + 1] - value[t] for t in range(steps)]
    targets = list(value)
    for s in range(steps):
        if not valid[s]:
            continue
        product = 1.0
        for t in range(s, steps):
            if not valid[t]:
                break
            targets[s] += product * weight[t] * difference[t]
            product *= discount[t] * lam * weight[t]
    advantages = [
        reward[t] + discount[t] * ((1 - lam) * value[t + 1] + lam * targets[t + 1]) - value[t]
        if valid[t]
        else 0.0
        for t in range(steps)
    ]
    return targets[:-1], advantages
