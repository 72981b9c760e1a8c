"""`python -m clew.lab.faults --minutes 5`: the campaign; exits with 1 if anything was lost."""

import argparse
import sys

from clew.errors import unknown_name
from clew.lab.faults.campaign import run_campaign
from clew.lab.faults.kinds import KINDS


def main() -> int:
    """Runs the campaign and prints its table."""
    parser = argparse.ArgumentParser(prog="python -m clew.lab.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="of the campaign (0)")
    parser.add_argument("--trials", type=int, default=0, help="end after so many (no limit)")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help=", ".join(KINDS))
    given = parser.parse_args()
    for kind in given.kinds:
        if kind not in KINDS:
            parser.error(str(unknown_name("kind", kind, KINDS)))
    campaign = run_campaign(
        60.0 * given.minutes, seed=given.seed, kinds=given.kinds, trials=given.trials
    )
    print(campaign.table())
    return 1 if campaign.bad else 0


if __name__ == "__main__":
    sys.exit(main())
