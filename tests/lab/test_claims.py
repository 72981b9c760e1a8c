"""Claims: the verdict of findings, what would decide them, and their tables."""

from clew.lab.claims import (
    HELD,
    NOT_HELD,
    NOT_RUN,
    UNDECIDED,
    VERDICTS,
    Claim,
    Finding,
    counts,
    overall,
    sentence,
    tables,
)


def finding(verdict: str, needed: int | None = None) -> Finding:
    """A finding of which only the verdict matters."""
    return Finding("a > b", verdict, "3 and 3", "+0.10", needed, {"difference": 0.1})


CLAIMS = (
    Claim("Figure 1", "both hold", lambda word: [finding(HELD), finding(word)]),
    Claim("Figure 2", "seeds are missing", lambda word: [finding(word, 7), finding(word, 30)]),
)


def test_a_claim_is_as_good_as_its_findings() -> None:
    for verdict in VERDICTS:
        assert overall([verdict] * 3) == verdict
        assert overall([verdict, NOT_HELD]) == NOT_HELD
    assert overall([HELD, UNDECIDED]) == overall([HELD, NOT_RUN]) == overall([]) == UNDECIDED


def test_the_hardest_finding_says_how_many_seeds_are_needed() -> None:
    open_claim, closed = CLAIMS[1].judge(UNDECIDED), CLAIMS[1].judge(HELD)
    assert (open_claim.verdict, open_claim.needed) == (UNDECIDED, 30)
    assert (closed.verdict, closed.needed) == (HELD, None)
    unknown = Claim("Figure 3", "one is out of reach", lambda _: [finding(UNDECIDED, 7), CLOSE])
    assert unknown.judge("").needed is None
    missing = Claim("Figure 3", "one was not run", lambda _: [finding(UNDECIDED, 7), LEFT])
    assert missing.judge("").needed == 7


CLOSE, LEFT = finding(UNDECIDED), finding(NOT_RUN)


def test_tables_and_sentence_have_every_verdict() -> None:
    judged = [claim.judge(UNDECIDED) for claim in CLAIMS]
    assert sentence(judged) == "0 of 2 claims held, 0 not held, 2 undecided, 0 not run"
    assert [word for _, word in counts(judged)][1:] == list(VERDICTS[1:])
    whole, details = tables(judged, "mine", "Claims", "A rule.")
    assert [row[1].text for row in whole.rows] == [
        "undecided",
        "undecided, 30 seeds would decide",
    ]
    assert [cell.text for cell in whole.rows[0][2:]] == ["1", "0", "1", "0"]
    assert len(details.rows) == len(details.records) == 4
    assert details.records[3]["difference"] == 0.1 and details.records[3]["seeds_needed"] == 30
