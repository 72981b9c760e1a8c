"""`python -m faults --minutes 5`: the campaign; exits with 1 if anything was lost."""

import argparse
import sys
from pathlib import Path

from clew.errors import unknown_name
from faults.campaign import run_campaign
from faults.endurance import endure, table
from faults.kinds import KINDS


def main() -> int:
    """Runs the campaign, or the long training, and prints its table."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="of the campaign (0)")
    parser.add_argument("--trials", type=int, default=0, help="end after so many (no limit)")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help=", ".join(KINDS))
    parser.add_argument("--output", type=Path, help="a folder for counts and tables")
    parser.add_argument(
        "--endurance", action="store_true", help="disturb one long training instead"
    )
    parser.add_argument("--every", type=float, default=20.0, help="seconds between its faults (20)")
    given = parser.parse_args()
    for kind in given.kinds:
        if kind not in KINDS:
            parser.error(str(unknown_name("kind", kind, KINDS)))
    if given.endurance:
        runs = endure(given.minutes, every=given.every, seed=given.seed, output=given.output)
        print(table(*runs))
        return 1 if any(made.campaign.bad for made in runs) else 0
    campaign = run_campaign(
        60.0 * given.minutes,
        seed=given.seed,
        kinds=given.kinds,
        trials=given.trials,
        output=given.output,
    )
    print(campaign.table())
    return 1 if campaign.bad else 0


if __name__ == "__main__":
    sys.exit(main())
