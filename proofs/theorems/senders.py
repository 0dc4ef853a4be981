"""Senders: requests for one tile are shared out among its holders within one unit.

Statement. Let a tile have h holders in a block of ranks, and let m requests for it be served there.
The holders take turns: request number t goes to holder t mod h. Then every holder serves m / h
requests, rounded down or up, so that no two differ by more than one; no way of sharing out keeps
the busiest below that; and the one chosen does hold the tile and is in the block.

Encoding. ``plan.schedule._choose_senders`` sorts holders by key = tile blocks + block, finds the run
[first, first + h) of those with the key asked for, and takes holder first + t mod h, where t counts
the equal keys before. Loads after m requests are q + 1 for the holders before ``rest`` and q for the
others, where m = q h + rest.

What joins the obligations. "loads: base" and "loads: step" are an induction over the requests m; the
others follow from the loads. That t counts 0, 1, 2, ... for equal keys is what ``_turns`` does; a
test compares it with counting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import z3

from proofs.engine.symbols import Num, below, between, quotient
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.showing import Asked, senders

m, h, q, rest, x, y = z3.Ints("m h q rest x y")
TURNS = (h >= 1, m >= 0, *quotient(m, h, q, rest))
HOLDERS = (*below(x, h), *below(y, h))


def load(q: Num, rest: Num, x: Num) -> Num:
    """Requests that holder x has served after q full turns and ``rest`` requests more.

    >>> [load(2, 1, x) for x in range(3)]       # 7 requests, 3 holders
    [3, 2, 2]
    """
    if isinstance(x, int) and isinstance(rest, int):
        return q + (x < rest)
    return q + z3.If(x < rest, 1, 0)


def key(tile: Num, block: Num, blocks: Num) -> Num:
    """What holders are sorted by."""
    return tile * blocks + block


def holder(first: Num, turn: Num, h: Num) -> Num:
    """The place of the holder whose turn it is, in the sorted list."""
    return first + turn % h


def obligations() -> Iterator[Obligation]:
    """See the module."""
    first, most = z3.Ints("first most")
    yield Obligation(
        "loads: base, nothing is served by nobody",
        (*TURNS, *HOLDERS, m == 0, load(q, rest, x) != 0),
    )
    turns, turn = z3.Ints("turns turn")
    mod = quotient(m, h, turns, turn)
    yield Obligation(
        "loads: step, m mod h is rest",
        (*TURNS, *mod, z3.Not(z3.And(turns == q, turn == rest))),
    )
    again = rest + 1 == h
    q2, rest2 = z3.If(again, q + 1, q), z3.If(again, 0, rest + 1)
    yield Obligation(
        "loads: step, after one request more",
        (*TURNS, z3.Not(z3.And(*quotient(m + 1, h, q2, rest2)))),
    )
    served = load(q, rest, x) + z3.If(x == rest, 1, 0)
    yield Obligation(
        "loads: step, request m goes to holder rest",
        (h >= 1, *below(rest, h), *HOLDERS, served != load(q2, rest2, x)),
    )
    yield Obligation(
        "two holders differ by one at most",
        (*TURNS, *HOLDERS, load(q, rest, x) - load(q, rest, y) > 1),
    )
    rounded = z3.And(load(q, rest, x) * h >= m - h + 1, (load(q, rest, x) - 1) * h < m)
    yield Obligation("a load is m / h, rounded down or up", (*TURNS, *HOLDERS, z3.Not(rounded)))
    yield Obligation(
        "nobody can keep the busiest lower: h holders of at most `most` serve h most requests",
        (*TURNS, *HOLDERS, most * h >= m, load(q, rest, x) > most),
    )
    place = first + turn
    yield Obligation(
        "the one chosen has the key asked for",
        (*TURNS, *mod, first >= 0, z3.Not(z3.And(first <= place, place < first + h))),
    )
    tile, block, blocks, tile2, block2 = z3.Ints("tile block blocks tile2 block2")
    keys = (blocks >= 1, *below(block, blocks), *below(block2, blocks))
    same = z3.And(tile == tile2, block == block2)
    yield Obligation(
        "one key, one tile and one block",
        (*keys, key(tile, block, blocks) == key(tile2, block2, blocks), z3.Not(same)),
    )


# Wrong variants -----------------------------------------------------------------------------

SMALL = (*between(2, h, 4), *between(2, m, 8))


def _asked(v: Mapping[str, int]) -> Asked:
    """h ranks hold one and the same tile, m others ask for it."""
    return Asked("i32[2]", "i32[2]", f"a={v['h']}", f"b={v['m']}@{v['h']}")


def _show(v: Mapping[str, int], said: Mapping[int, int], variant: str) -> Shown:
    """Compare who serves whom with what a variant says; ranks h, h + 1, ... ask in turn."""
    asked = _asked(v)
    found = {rank - v["h"]: by for rank, by in senders(asked).items()}
    loads = Counter(next(iter(by)) for by in found.values())
    differs = any(found[request] != {by} for request, by in said.items())
    plain = all(len(by) == 1 for by in found.values())
    spread = ", ".join(str(loads[holder]) for holder in range(v["h"]))
    return Shown(
        f"{asked.command('simulate')}; {asked.command('plan')} --json | grep sent_worst_bytes",
        differs and plain,
        f"{variant}; tiles filled with their holder's rank arrive so that the holders served {spread}",
    )


def _first_only() -> Obligation:
    served = [z3.If(holder == 0, m, 0) for holder in (x, y)]
    return Obligation("first only", (*SMALL, *HOLDERS, served[0] - served[1] > 1), (h, m, x, y))


def _show_first_only(v: Mapping[str, int]) -> Shown:
    return _show(v, dict.fromkeys(range(v["m"]), 0), "holder 0 would serve all")


def _all_equal() -> Obligation:
    differ = load(q, rest, x) != load(q, rest, y)
    return Obligation("all equal", (*SMALL, *TURNS, *HOLDERS, differ), (h, m, x, y))


def _show_all_equal(v: Mapping[str, int]) -> Shown:
    shown = _show(v, {}, f"holders {v['x']} and {v['y']} would serve as many")
    loads = Counter(next(iter(by)) for by in senders(_asked(v)).values())
    return Shown(shown.command, loads[v["x"]] != loads[v["y"]], shown.text)


def _one_too_many() -> Obligation:
    turn = z3.Int("turn")
    beyond = holder(0, turn, h + 1) >= h
    return Obligation("h + 1", (*SMALL, *below(turn, m), beyond), (h, m, turn))


def _show_one_too_many(v: Mapping[str, int]) -> Shown:
    said = {v["turn"]: holder(0, v["turn"], v["h"] + 1)}
    return _show(v, said, f"request {v['turn']} would go to rank {v['h']}, which holds nothing")


THEOREM = Theorem(
    "senders",
    "Of h holders of a tile in a block, each serves m / h of its m requests, rounded down or up: "
    "loads differ by one request at most, and the busiest holder serves as few as possible.",
    "Induction over the requests; base and step are obligations.",
    "Balance is in requests for one tile at one level of the topology: requests of different sizes "
    "(uneven pieces) count alike, and with several levels a holder serves requests of its own block "
    "and of blocks without a holder, one unit of difference for each. That schedules of more than "
    "300000 pieces, which are not listed, are modelled as evenly loaded.",
    obligations,
    (
        Twin("the first holder serves all", _first_only, _show_first_only),
        Twin("all serve equally many", _all_equal, _show_all_equal),
        Twin("turns over one holder too many", _one_too_many, _show_one_too_many),
    ),
)
