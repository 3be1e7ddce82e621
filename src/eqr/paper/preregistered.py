"""What decides each claim, written down before its runs: regime, one primary contrast, checks, secondaries.

A test is about one operator: *structure told* is the mixer that knows rows, columns and boxes, *tokens* the
paper's own. Its regime must be able to show the claim: every check must hold, otherwise there is no verdict.
The primary contrast decides, the secondary ones are reported after Holm's correction. A claim that two things
are alike is decided by two one-sided tests.

Of a test's contrasts the first is the primary one. It is *supported* if its 95% interval lies wholly on the
claimed side, *refuted* if on the other; a claimed difference whose 90% interval lies within the effect of
interest either way is *no effect*.
Four seeds are the least for a verdict; with fewer than planned it is called interim.

Known before: the first round (`results/`, seeds 0 to 7), one pilot seed of each halting rule with the
structure told, and one of `E6`: six iterations of 10,000 puzzles (59% of the test, 68% of the training
puzzles) and two (12 and 19%).
"""

from typing import Any

from eqr.paper.experiment import Check, Claim, Contrast

TOLD, TOKENS, ATTENTION = "structure told", "tokens", "attention"


def more(left: str, right: str, by: float = 0.0, says: str = "") -> Contrast:
    """Return the contrast that one cell exceeds another, by more than `by`."""
    return Contrast(plus=(left,), minus=(right,), above=by, says=says)


def less(left: str, right: str, by: float = 0.0, says: str = "") -> Contrast:
    """Return the contrast that one cell is below another plus `by`."""
    return Contrast(plus=(left,), minus=(right,), below=by, says=says)


def alike(left: str, right: str, within: float) -> Contrast:
    """Return the contrast that two cells differ by less than `within` either way."""
    return Contrast(plus=(left,), minus=(right,), above=-within, below=within)


def single(cell: str, *, above: float | None = None, below: float | None = None, says: str) -> Contrast:
    """Return a contrast of one number."""
    return Contrast(plus=(cell,), above=above, below=below, says=says)


def interaction(plus: tuple[str, str], minus: tuple[str, str], *, says: str) -> Contrast:
    """Return the contrast that a difference of two differences is above 0."""
    return Contrast(plus=plus, minus=minus, above=0.0, says=says)


def check(cell: str, low: float, high: float, says: str, minus: str | None = None) -> Check:
    """Return the check that a cell, or a difference of two, has a mean within bounds."""
    return Check(cell=cell, minus=minus, low=low, high=high, says=says)


def unsaturated(cell: str, most: float = 90.0) -> Check:
    """Return the check that a baseline can both gain and lose."""
    return check(cell, 10.0, most, f"the baseline lies between 10 and {most:g}%")


def not_by_heart(arm: str) -> Check:
    """Return the check that training puzzles are not much better solved than others."""
    says = "training puzzles are solved at most 5 points better than others"
    return check(f"E1 | {arm} | Training puzzles, D=16", -10.0, 5.0, says, minus=f"E1 | {arm} | D=16")


def claim(
    item: str, says: str, operator: str, primary: Contrast, *secondary: Contrast, **fields: Any
) -> Claim:
    """Return a claim with a test for one operator; `also` adds one for another."""
    return Claim(item=item, says=says, tests=()).also(operator, primary, *secondary, **fields)


def onset(item: str) -> tuple[Contrast, ...]:
    """Return the contrasts of where breadth begins to pay."""
    (wide8, one8), (wide4, one4), (wide2, one2) = (
        (f"{item} | EqR | best settled of 8, D={depth}", f"{item} | EqR | one start, D={depth}")
        for depth in (8, 4, 2)
    )
    return (
        interaction((wide8, one2), (one8, wide2), says="gain of 8 starts over one at D=8 minus that at D=2"),
        more(wide4, one4, says="gain at D=4"),
        less(wide2, one2, says="8 starts are worse than one at D=2"),
    )


E1_NONE = "E1 | TRM, no halting | D=16"
TRM, RI, EQR = (f"E1 | {arm} | D=16" for arm in ("TRM", "+ RI", "EqR"))
COMMON_SPURIOUS = check("E4 | TRM | Spurious starts", 5.0, 100.0, "at least 5% of TRM's starts settle wrong")


def _named(*claims: Claim) -> dict[str, Claim]:
    return {claim.item: claim for claim in claims}


CLAIMS = _named(
    claim(
        "C1",
        "Tying the weights of a model's layers beats as many layers of their own",
        TOKENS,
        more("E6 | 6 iterations | Accuracy", "E6 | feedforward | Accuracy"),
        checks=(unsaturated("E6 | 6 iterations | Accuracy"),),
        of_interest=5.0,
        paper=30.0,
    ).also(
        TOLD,
        more("E15 | tied, 15 applications | Accuracy", "E15 | feedforward, 15 blocks | Accuracy"),
        more("E15 | EqR | Accuracy", "E15 | tied, 15 applications | Accuracy"),
        alike("E15 | feedforward, 30 blocks | Accuracy", "E15 | feedforward, 15 blocks | Accuracy", 5.0),
        checks=(unsaturated("E15 | tied, 15 applications | Accuracy"),),
        of_interest=5.0,
        paper=30.0,
    ),
    claim(
        "C2",
        "More iterations of fewer layers raise the error on training puzzles and lower it on others",
        TOKENS,
        more(
            "E6 | 6 iterations, 3,000 puzzles | Training error",
            "E6 | 2 iterations, 3,000 puzzles | Training error",
        ),
        less("E6 | 6 iterations, 3,000 puzzles | Error", "E6 | 2 iterations, 3,000 puzzles | Error"),
        checks=(
            unsaturated("E6 | 6 iterations, 3,000 puzzles | Accuracy"),
            check(
                "E6 | 2 iterations, 3,000 puzzles | Training error",
                0.5,
                20.0,
                "training is nearly finished, and some error is left",
            ),
        ),
        of_interest=2.0,
        paper=2.0,
    ),
    claim(
        "C3",
        "Twice the depth helps; sixteen times with a detached carry gains little more",
        TOKENS,
        less("E9 | 16x, detached | Accuracy", "E9 | 2x | Accuracy", 5.0),
        more("E9 | 2x | Accuracy", "E9 | 1x | Accuracy"),
        checks=(unsaturated("E9 | 2x | Accuracy"),),
        of_interest=5.0,
        paper=0.5,
    ),
    claim(
        "C4",
        "A loss on every segment of a trajectory hurts; losses late in it help",
        TOKENS,
        more("E8 | late anchors, last quarter | Accuracy", "E8 | full anchors | Accuracy"),
        less("E8 | full anchors | Accuracy", "E8 | terminal loss | Accuracy"),
        more("E8 | late anchors, last quarter | Accuracy", "E8 | terminal loss | Accuracy"),
        alike("E8 | late anchors, second half | Accuracy", "E8 | terminal loss | Accuracy", 3.0),
        checks=(unsaturated("E8 | terminal loss | Accuracy"),),
        of_interest=3.0,
        paper=10.4,
    ),
    claim(
        "C5",
        "Training segment by segment beats supervising a trajectory, also at equal segments",
        TOKENS,
        more("E8 | segmented, equal segments | Accuracy", "E8 | full anchors | Accuracy"),
        more("E8 | segmented, equal steps | Accuracy", "E8 | full anchors | Accuracy"),
        checks=(unsaturated("E8 | full anchors | Accuracy"),),
        of_interest=3.0,
        paper=27.6,
    ),
    claim(
        "C6",
        "Tracking only the last cycle hurts a model of one state and helps one of two",
        TOKENS,
        interaction(
            ("E7 | (z_L, z_H), truncated | Accuracy", "E7 | z | Accuracy"),
            ("E7 | (z_L, z_H) | Accuracy", "E7 | z, truncated | Accuracy"),
            says="effect of truncation on two states minus that on one",
        ),
        less("E7 | z, truncated | Accuracy", "E7 | z | Accuracy"),
        more("E7 | (z_L, z_H), truncated | Accuracy", "E7 | (z_L, z_H) | Accuracy"),
        checks=(unsaturated("E7 | (z_L, z_H) | Accuracy"),),
        of_interest=5.0,
        paper=13.1,
    ),
    claim(
        "C7",
        "Learned halting in training beats none; oracle halting collapses; an unused head helps",
        TOLD,
        more(TRM, E1_NONE, says="learned halting minus none, at the trained depth"),
        less("E1 | TRM, oracle halting | D=16", E1_NONE, -20.0, "oracle loses more than 20 points"),
        more("E1 | TRM, head unused | D=16", E1_NONE, says="head trained but unused minus none"),
        more("E1 | TRM | D=64", "E1 | TRM, no halting | D=64", says="learned minus none at D=64"),
        checks=(unsaturated(E1_NONE), not_by_heart("TRM")),
        of_interest=2.0,
        paper=9.4,
    ),
    claim(
        "C8",
        "Random starts, then path noise, raise accuracy at the depth of training",
        TOLD,
        more(RI, TRM, says="random starts minus fixed"),
        more(EQR, RI, says="noise and damping on top"),
        more(
            "E1 | + RI | Training puzzles, D=16",
            "E1 | TRM | Training puzzles, D=16",
            says="random starts, on training puzzles",
        ),
        checks=(unsaturated(TRM), not_by_heart("TRM")),
        of_interest=2.0,
        paper=1.2,
    ),
    claim(
        "C9",
        "Accuracy rises beyond the depth of training",
        TOLD,
        more("E1 | EqR | D=64", EQR, says="EqR, D=64 minus D=16"),
        more("E1 | TRM | D=64", TRM, says="TRM, D=64 minus D=16"),
        interaction(("E1 | EqR | D=64", TRM), (EQR, "E1 | TRM | D=64"), says="gain of EqR minus gain of TRM"),
        checks=(unsaturated(EQR),),
        of_interest=2.0,
        paper=6.6,
    ).also(
        TOKENS,
        more("E16 | EqR | D=64", "E16 | EqR | D=16", says="EqR, D=64 minus D=16"),
        more("E16 | TRM | D=64", "E16 | TRM | D=16", says="TRM, D=64 minus D=16"),
        checks=(unsaturated("E16 | EqR | D=16"),),
        of_interest=2.0,
        paper=6.6,
    ),
    claim(
        "C10",
        "More starts pay, but only from a depth of about four segments on",
        TOLD,
        *onset("E2"),
        checks=(unsaturated("E2 | EqR | one start, D=8"),),
        of_interest=3.0,
    ).also(
        TOKENS,
        *onset("E4"),
        checks=(unsaturated("E4 | EqR | one start, D=8"),),
        of_interest=3.0,
    ),
    claim(
        "C11",
        "The residual tells right answers from wrong ones",
        TOKENS,
        single("E4 | EqR | AUROC, D=16", above=0.8, says="AUROC over starts at D=16, EqR"),
        single("E4 | EqR | Rank correlation", above=0.8, says="rank correlation over budgets"),
        checks=(COMMON_SPURIOUS, unsaturated("E4 | EqR | one start, D=16")),
        of_interest=0.05,
        unit="AUROC",
    ).also(
        TOLD,
        single("E1 | EqR | AUROC, D=16", above=0.8, says="AUROC over puzzles at D=16, EqR"),
        checks=(unsaturated(EQR),),
        of_interest=0.05,
        unit="AUROC",
    ),
    claim(
        "C12",
        "Choosing the best settled start beats the majority for shaped models and loses for TRM",
        TOKENS,
        more(
            "E4 | EqR | AUROC, D=16",
            "E4 | TRM | AUROC, D=16",
            says="AUROC of the residual over starts, EqR minus TRM",
        ),
        more(
            "E4 | EqR | best settled of 4, D=16",
            "E4 | EqR | majority of 4, D=16",
            says="EqR: settled minus majority (points)",
        ),
        less(
            "E4 | TRM | best settled of 4, D=16",
            "E4 | TRM | majority of 4, D=16",
            says="TRM: settled minus majority (points)",
        ),
        checks=(COMMON_SPURIOUS, unsaturated("E4 | TRM | one start, D=16")),
        of_interest=0.05,
        unit="AUROC",
    ),
    claim(
        "C13",
        "Halting by the head saves 3 to 17 times the segments at no more than a point of accuracy",
        TOLD,
        more("E3 | EqR | D=64, halted", "E3 | EqR | D=64", -1.0, "halted minus unhalted, D=64"),
        single("E3 | EqR | Times fewer", above=3.0, says="times fewer segments"),
        checks=(
            # a loss shows from any height, so the bar is higher than elsewhere
            unsaturated("E3 | EqR | D=64", 97.0),
            not_by_heart("EqR"),
        ),
        of_interest=1.0,
        paper=-0.8,
    ).also(
        TOKENS,
        more("E16 | EqR | D=64, halted", "E16 | EqR | D=64", -1.0, "halted minus unhalted, D=64"),
        single("E16 | EqR | Times fewer", above=3.0, says="times fewer segments"),
        checks=(unsaturated("E16 | EqR | D=64", 97.0),),
        of_interest=1.0,
        paper=-0.8,
    ),
    claim(
        "C14",
        "EqR reaches an accuracy with fewer segments than the baseline",
        TOLD,
        less(
            "E1 | EqR | log2 NFE for 85%",
            "E1 | TRM | log2 NFE for 85%",
            says="log2 of the segments for 85%, EqR minus TRM; 7 where 85% is not reached by D=64",
        ),
        checks=(unsaturated(EQR, 85.0),),
        of_interest=0.25,
        paper=-1.91,
        unit="log2",
        unreached=7.0,
    ),
    claim(
        "C15",
        "Random starts make answers depend less on where a trajectory begins",
        TOLD,
        less(
            "E2 | + RI | Path dependence",
            "E2 | TRM | Path dependence",
            says="how far accuracy over starts is from that of the first, log ratio of RI to TRM",
        ),
        less("E2 | EqR | Path dependence", "E2 | + RI | Path dependence", says="the same, EqR to RI"),
        checks=(
            unsaturated("E2 | TRM | one start, D=16"),
            check("E2 | TRM | Path dependence", 1.0, 100.0, "TRM depends on its start"),
        ),
        of_interest=0.2,
        paper=-3.58,
        unit="log",
        log=True,
    ),
    claim(
        "C16",
        "A start predicted from the puzzle adds nothing",
        TOLD,
        alike("E10 | learned start | D=16", "E10 | TRM | D=16", 3.0),
        checks=(unsaturated("E10 | TRM | D=16"),),
        of_interest=3.0,
        paper=-0.07,
    ),
    claim(
        "C17",
        "How far random starts are spread matters little",
        TOLD,
        alike("E10 | + RI, sigma_L=8 | D=16", "E10 | + RI | D=16", 3.0),
        alike("E10 | + RI, sigma_H=8 | D=16", "E10 | + RI | D=16", 3.0),
        checks=(unsaturated("E10 | + RI | D=16"),),
        of_interest=3.0,
        paper=1.27,
    ),
    claim(
        "C18",
        "The scale of path noise matters little",
        TOLD,
        alike("E10 | EqR, beta=0.1 | D=16", "E10 | EqR | D=16", 3.0),
        alike("E10 | EqR, beta=0.05 | D=16", "E10 | EqR | D=16", 3.0),
        more("E10 | EqR | D=16", "E10 | EqR without damping | D=16", says="damping beside noise"),
        checks=(unsaturated("E10 | EqR | D=16"),),
        of_interest=3.0,
        paper=-0.1,
    ),
    claim(
        "C19",
        "The interventions transfer to attention and to Mini-ARC",
        ATTENTION,
        more("E11 | EqR | D=16", "E11 | TRM | D=16"),
        checks=(unsaturated("E11 | TRM | D=16"),),
        of_interest=2.0,
        paper=2.7,
    ),
    claim(
        "C20",
        "The gain of EqR at equal budget is stable over seeds",
        TOLD,
        more(EQR, TRM, says="EqR minus TRM, D=16"),
        checks=(unsaturated(TRM),),
        of_interest=2.0,
        paper=1.85,
    ),
    claim(
        "C21",
        "More depth than trained helps on mazes with one shortest path, not "
        "where the label is one of several",
        TOLD,
        interaction(
            ("E12 | one path | D=64", "E12 | several paths | D=16"),
            ("E12 | one path | D=16", "E12 | several paths | D=64"),
            says="gain from D=16 to 64 with one path minus that with several",
        ),
        checks=(
            unsaturated("E12 | one path | D=16"),
            unsaturated("E12 | several paths | D=16"),
            check(
                "E12 | several paths | One shortest path",
                0.0,
                5.0,
                "at most 5% of the ambiguous mazes have one shortest path",
            ),
        ),
        of_interest=2.0,
    ),
    claim(
        "C22",
        "The landscape mode of a puzzle predicts whether depth or breadth helps",
        TOKENS,
        more(
            "E5 | EqR | (b) breadth over depth",
            "E5 | EqR | (c) breadth over depth",
            says="what 4 starts gain beyond 4 times the depth: mode (b) minus mode (c), on other starts",
        ),
        single("E5 | EqR | (b) breadth over depth", above=0.0, says="mode (b)"),
        single("E5 | EqR | (c) breadth over depth", below=0.0, says="mode (c)"),
        checks=(
            check("E5 | EqR | (b) share", 3.0, 100.0, "3% of the puzzles have mode (b)"),
            check("E5 | EqR | (c) share", 3.0, 100.0, "3% of the puzzles have mode (c)"),
        ),
        of_interest=5.0,
    ),
    claim(
        "C23",
        "Ratings by a search say little about what the model solves; easy puzzles need one to five segments",
        TOLD,
        more(
            "E3 | EqR | Any rating, D=8",
            "E3 | EqR | Rating",
            0.05,
            "AUROC of what other seeds solve minus that of the rating, D=8",
        ),
        single("E3 | EqR | NFE of easy puzzles", below=5.0, says="segments of easy puzzles"),
        checks=(unsaturated("E3 | EqR | Any rating, D=8"),),
        of_interest=0.05,
        unit="AUROC",
        peers=True,
    ),
)
"""In plain words, and a test for each operator, by claim."""

QUESTIONS = _named(
    claim(
        "Q1",
        "Does more noise at test time than in training help?",
        TOLD,
        more("E14 | noise 0.1 | D=16", "E14 | as trained | D=16"),
        more("E14 | noise 0 | D=16", "E14 | as trained | D=16"),
        more("E14 | damping 0.2 | D=16", "E14 | as trained | D=16"),
        checks=(unsaturated("E14 | as trained | D=16"),),
        of_interest=2.0,
    ).also(
        TOKENS,
        more("E16 | EqR, noise 0.1 | D=16", "E16 | EqR | D=16"),
        more("E16 | EqR, noise 0 | D=16", "E16 | EqR | D=16"),
        more("E16 | EqR, damping 0.2 | D=16", "E16 | EqR | D=16"),
        checks=(unsaturated("E16 | EqR | D=16"),),
        of_interest=2.0,
    ),
    claim(
        "Q2",
        "Do random starts help on training puzzles too?",
        TOLD,
        more("E1 | + RI | Training puzzles, D=16", "E1 | TRM | Training puzzles, D=16"),
        more("E1 | EqR | Training puzzles, D=16", "E1 | + RI | Training puzzles, D=16"),
        checks=(unsaturated("E1 | TRM | Training puzzles, D=16"),),
        of_interest=2.0,
    ),
    claim(
        "Q3",
        "Does noise need damping beside it?",
        TOLD,
        more("E10 | EqR | D=16", "E10 | EqR without damping | D=16"),
        checks=(unsaturated("E10 | EqR | D=16"),),
        of_interest=2.0,
    ),
    claim(
        "Q4",
        "Is oracle halting worse where puzzles are learned by heart?",
        TOKENS,
        interaction(
            ("E13 | 10,000 puzzles, oracle | Accuracy", "E13 | 300 puzzles, none | Accuracy"),
            ("E13 | 10,000 puzzles, none | Accuracy", "E13 | 300 puzzles, oracle | Accuracy"),
            says="oracle minus no halting: with 10,000 puzzles minus with 300",
        ),
        interaction(
            ("E13 | 10,000 puzzles, learned | Accuracy", "E13 | 300 puzzles, none | Accuracy"),
            ("E13 | 10,000 puzzles, none | Accuracy", "E13 | 300 puzzles, learned | Accuracy"),
            says="the same for learned halting",
        ),
        checks=(
            unsaturated("E13 | 10,000 puzzles, none | Accuracy"),
            unsaturated("E13 | 300 puzzles, none | Accuracy"),
        ),
        of_interest=3.0,
    ),
    claim(
        "Q5",
        "Is the ceiling of depth higher for EqR than for TRM?",
        TOLD,
        more("E1 | EqR | D=64", "E1 | TRM | D=64"),
        checks=(unsaturated("E1 | TRM | D=64", 97.0),),
        of_interest=2.0,
    ),
    claim(
        "Q6",
        "Does the residual tell right from wrong better in EqR than in TRM where the structure is told?",
        TOLD,
        more("E1 | EqR | AUROC, D=16", "E1 | TRM | AUROC, D=16"),
        checks=(unsaturated(TRM),),
        of_interest=0.05,
        unit="AUROC",
    ),
    claim(
        "Q7",
        "Are two states better than one when nothing is truncated?",
        TOKENS,
        more("E7 | (z_L, z_H) | Accuracy", "E7 | z | Accuracy"),
        checks=(unsaturated("E7 | z | Accuracy"),),
        of_interest=3.0,
        paper=-4.9,
    ),
)
"""Questions the paper does not ask, decided alike: *supported* is yes."""
