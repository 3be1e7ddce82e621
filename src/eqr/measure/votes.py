"""Votes over variants: what the answers to all turned and recoloured copies of a Mini-ARC puzzle agree on.

Every start of every variant casts its answer, undone to the original; more votes win, then the higher mean
halt score (`eqr.tasks.mini_arc_variants.vote`). ARC allows two tries, so the first two answers are scored.
"""

import numpy as np

from eqr.data import PuzzleSet
from eqr.measure.statistics import Estimate, share
from eqr.solve.candidates import Candidates
from eqr.tasks.mini_arc_variants import Variant, symmetries, vote

TRIES = (1, 2)


def has_variants(puzzles: PuzzleSet) -> bool:
    """Whether rows of this set are variants of one another (`eqr data import --variants`)."""
    return bool(puzzles.facts.get("variant", np.zeros(1)).any())


def variant_votes(candidates: Candidates, puzzles: PuzzleSet) -> dict[str, Estimate]:
    """Score candidates (puzzles, starts) by groups of variants: how often the right answer is voted first."""
    undone = [Variant.from_name(name)[1] for name in puzzles.identity_names]
    order = np.argsort(puzzles.groups, kind="stable")
    places = []
    for rows in np.split(order, np.flatnonzero(np.diff(puzzles.groups[order])) + 1):
        if not puzzles.labels[rows[0]].any():  # padding counts nowhere
            continue
        variants = [undone[identity] for identity in puzzles.identities[rows]]
        right = symmetries(variants[:1]).inverse().apply(puzzles.labels[rows[:1]])[0]
        ballots = candidates[rows]
        voters, starts = np.nonzero(ballots.complete)
        ranked = vote(
            ballots.tokens[voters, starts], [variants[row] for row in voters], ballots.halt[voters, starts]
        )
        agreed = (place for place, one in enumerate(ranked) if np.array_equal(one.answer, right))
        places.append(next(agreed, len(ranked) + max(TRIES)))
    return {f"top_{tries}": share(np.array(places) < tries) for tries in TRIES}
