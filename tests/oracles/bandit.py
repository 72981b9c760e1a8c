"""A Bernoulli bandit, and the returns of policies in it, as plainly as possible."""

from functools import cache
from itertools import product


def pull(probabilities: list[float], action: int, uniform: float) -> tuple[float, dict[str, float]]:
    """The reward and the metrics of one pull, for a number that is uniform from 0 to 1."""
    action = min(max(action, 0), len(probabilities) - 1)
    reward = 1.0 if uniform < probabilities[action] else 0.0
    best = 1.0 if probabilities[action] == max(probabilities) else 0.0
    return reward, {"best": best, "regret": max(probabilities) - probabilities[action]}


@cache
def best_value(counts: tuple[tuple[int, int], ...], pulls: int) -> float:
    """The best policy's expected return from this many more pulls, by trying every arm each turn.

    Args:
        counts: of every arm, the numbers of pulls that paid and that did not.
        pulls: number of pulls that are left.
    """
    if pulls == 0:
        return 0.0
    values = []
    for arm, (paid, not_paid) in enumerate(counts):
        chance = (paid + 1) / (paid + not_paid + 2)
        after_paid = (*counts[:arm], (paid + 1, not_paid), *counts[arm + 1 :])
        after_not = (*counts[:arm], (paid, not_paid + 1), *counts[arm + 1 :])
        win = 1.0 + best_value(after_paid, pulls - 1)
        values.append(chance * win + (1 - chance) * best_value(after_not, pulls - 1))
    return max(values)


def expected_return(choose, arms: int, pulls: int) -> float:
    """A deterministic policy's expected return, over every possible result of its pulls.

    Args:
        choose: maps counts, see `best_value`, and the pull's number from 0 to an arm.
    """
    total = 0.0
    for outcomes in product((0, 1), repeat=pulls):
        counts, chance = [(0, 0)] * arms, 1.0
        for number, paid in enumerate(outcomes):
            arm = choose(tuple(counts), number)
            wins, losses = counts[arm]
            likely = (wins + 1) / (wins + losses + 2)
            chance *= likely if paid else 1 - likely
            counts[arm] = (wins + paid, losses + 1 - paid)
        total += chance * sum(outcomes)
    return total
