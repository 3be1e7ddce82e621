"""The queue before the slots: nothing is lost or repeated, and no client keeps another one waiting."""

import random

import numpy as np

from eqr.dynamics.halting import parse_halting
from eqr.solve.budget import Budget
from eqr.solve.queue import Puzzle, Queue

TOKENS = np.zeros(4, np.uint8)
RACE = {"race": True, "halting": parse_halting("head")}


def puzzle(index, client, **budget):
    return Puzzle(index, TOKENS, budget=Budget(**budget), client=client)


def drawn_by(line, slots, held=0):
    """Starts that begin now, by puzzle."""
    return {entering.puzzle.index: entering.count for entering in line.draw(slots - held, idle=not held)}


def test_without_clients_a_puzzle_takes_every_slot_in_order_of_arrival():
    line = Queue(Budget(), kept=2)
    line.add(Puzzle(0, TOKENS, budget=Budget(breadth=12)))
    line.add(Puzzle(1, TOKENS, budget=Budget(breadth=12)))
    assert drawn_by(line, 16) == {0: 12, 1: 4}


def test_slots_are_shared_evenly_whatever_each_client_asks_for():
    line = Queue(Budget())
    for index in range(6):
        line.add(puzzle(index, "greedy", breadth=64))
    line.add(puzzle(6, "modest", breadth=64))
    line.add(puzzle(7, "small", breadth=2))
    assert drawn_by(line, 16) == {0: 7, 6: 7, 7: 2}
    line.settle([], [0] * 7)
    assert drawn_by(line, 16, held=9) == {0: 7}, "what a client gave back is its own again"


def test_a_client_that_holds_nothing_begins_at_once_beside_a_greedy_one():
    line = Queue(Budget(), kept=2)
    line.add(puzzle(0, "greedy", breadth=64))
    assert drawn_by(line, 16) == {0: 14}
    line.add(puzzle(1, "small", breadth=64))
    assert drawn_by(line, 16, held=14) == {1: 1}
    line.add(puzzle(2, "other"))
    assert drawn_by(line, 16, held=15) == {2: 1}
    line.settle([], [0, 0, 0])
    assert drawn_by(line, 16, held=13) == {1: 1}, "the one that holds fewest comes first"


def test_cancelling_gives_slots_back():
    line = Queue(Budget(), kept=2)
    line.add(puzzle(0, "greedy", breadth=64))
    assert drawn_by(line, 8) == {0: 6}
    line.cancel(0)
    assert line.starts == 0
    assert line.leaving() == {0}
    line.settle([], [0])  # reported in the turn in which it was cancelled
    line.add(puzzle(1, "greedy", breadth=64))
    assert drawn_by(line, 8) == {1: 6}


def test_a_client_whose_next_heat_does_not_fit_is_not_overtaken_for_ever():
    line = Queue(Budget())
    line.add(puzzle(0, "single", breadth=64))
    assert drawn_by(line, 16) == {0: 16}
    line.add(puzzle(1, "racer", breadth=8, **RACE))
    for held in range(15, 8, -1):
        line.settle([], [0])
        assert drawn_by(line, 16, held=held) == {}
    line.settle([], [0])
    assert drawn_by(line, 16, held=8) == {1: 8}


def test_every_start_begins_once_and_in_the_end_nothing_is_held():
    """Random requests, ends and cancellations of five clients, the fuzzer of this queue."""
    for seed in range(30):
        chance = random.Random(seed)
        slots, kept = chance.choice([(1, 0), (8, 1), (16, 2), (64, 8)])
        line = Queue(Budget(), kept=kept)
        wanted, begun, cancelled, running = {}, {}, set(), []
        for step in range(400):
            if step < 200 and chance.random() < 0.3:
                index, breadth = len(wanted), chance.choice([1, 1, 2, 8, 30])
                races = chance.random() < 0.3
                wanted[index] = breadth
                line.add(
                    puzzle(
                        index,
                        chance.choice("abcd") if chance.random() < 0.9 else None,
                        breadth=breadth,
                        **(RACE if races else {}),
                    )
                )
            if wanted and chance.random() < 0.05:
                index = chance.randrange(len(wanted))
                if begun.get(index, 0) < wanted[index] or index in running:
                    cancelled.add(index)
                    line.cancel(index)
            gone = line.leaving()
            running = [index for index in running if index not in gone]
            for entering in line.draw(slots - len(running), idle=not running):
                index = entering.puzzle.index
                assert index not in cancelled
                assert entering.first == begun.get(index, 0)
                begun[index] = entering.first + entering.count
                running += [index] * entering.count
            assert len(running) <= max(slots, 8)
            ended = [index for index in running if chance.random() < 0.4 or step >= 399]
            for index in ended:
                running.remove(index)
            line.settle([], ended)
        while line.starts:
            for entering in line.draw(slots, idle=True):
                begun[entering.puzzle.index] = entering.first + entering.count
                line.settle([], [entering.puzzle.index] * entering.count)
        assert {index: begun[index] for index in wanted if index not in cancelled} == {
            index: breadth for index, breadth in wanted.items() if index not in cancelled
        }
        assert not line._clients
        assert not line._running
