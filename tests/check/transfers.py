"""Random transfers, and an oracle that carries them out byte by byte."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from redist.check.boxes import Boxes, BoxRow, BufferRow, c_strides

Run = tuple[int, ...]
"""Round, source buffer, offset, target buffer, offset, bytes, count, source step, target step."""
Tag = tuple[int, int, int]
"""What a byte of a buffer is: tensor, element, byte in it."""
Tile = tuple[tuple[int, int], ...]
NOTHING: Tag = (-1, 0, 0)


@dataclass
class Side:
    """A side as plain rows, and what every byte of its buffers is."""

    tensors: dict[str, tuple[int, ...]]
    item: int
    own: dict[str, int] = field(default_factory=dict)
    """Itemsizes of tensors that have others; the same on both sides."""
    buffers: list[BufferRow] = field(default_factory=list)
    boxes: list[BoxRow] = field(default_factory=list)

    def item_of(self, name: str) -> int:
        return self.own.get(name, self.item)

    def made(self) -> Boxes:
        return Boxes.of(self.tensors, self.buffers, self.boxes)

    def tags(self) -> list[list[Tag]]:
        out = [[NOTHING] * n for _, _, n in self.buffers]
        for number, buffer, at, tag in self.elements():
            for byte in range(self.boxes[number][6]):
                out[buffer][at + byte] = (*tag, byte)
        return out

    def elements(self) -> list[tuple[int, int, int, tuple[int, int]]]:
        """Box, buffer, byte, and (tensor, element) of every element, box by box in C order."""
        found = []
        names = list(self.tensors)
        for number, (buffer, name, lo, shape, offset, strides, item) in enumerate(self.boxes):
            steps = c_strides(shape, item) if strides is None else strides
            for place in itertools.product(*map(range, shape)):
                index = tuple(a + b for a, b in zip(lo, place, strict=True))
                flat = int(np.ravel_multi_index(index, self.tensors[name])) if index else 0
                at = offset + sum(a * b for a, b in zip(place, steps, strict=True))
                found.append((number, buffer, at, (names.index(name), flat)))
        return found


@dataclass
class Problem:
    """Two sides and runs between them."""

    source: Side
    target: Side
    runs: list[Run]


def random_problem(rng: random.Random) -> Problem:
    """Tiles of a few tensors on a few ranks, in many ways in memory; a right list of runs in any order."""
    tensors = {
        name: tuple(rng.randint(1, 6) for _ in range(rng.choice([0, 1, 2, 2, 2, 3])))
        for name in "abc"[: rng.randint(1, 3)]
    }
    items = rng.choice([(1, 1), (2, 2), (2, 2), (4, 4), (4, 2), (2, 4)])
    own = {name: rng.choice([1, 2, 4]) for name in tensors if items[0] == items[1]}
    sides = [Side(tensors, item, own) for item in items]
    n_ranks = rng.randint(1, 4)
    for side in sides:
        first = rng.choice([0, 0, n_ranks])
        fill(
            side, rng, range(first, first + n_ranks), copies=side is sides[0] or rng.random() < 0.3
        )
    runs = right_runs(sides[0], sides[1], rng)
    return Problem(sides[0], sides[1], runs)


def fill(side: Side, rng: random.Random, ranks: range, copies: bool) -> None:
    """Cut every tensor into boxes and lay them out on ranks."""
    for name, shape in side.tensors.items():
        edges = [sorted({0, n, *rng.choices(range(n + 1), k=rng.randint(0, 2))}) for n in shape]
        cells = [list(itertools.pairwise(one)) for one in edges]
        tiles = [tuple(cell) for cell in itertools.product(*cells)]
        for copy in range(rng.randint(1, 2) if copies else 1):
            homes = [rng.choice(ranks) for _ in tiles]
            for rank in ranks:
                mine = [t for t, home in zip(tiles, homes, strict=True) if home == rank]
                if mine:
                    lay_out(side, rng, rank, f"{name}{copy}", name, mine)


def lay_out(
    side: Side,
    rng: random.Random,
    rank: int,
    called: str,
    name: str,
    tiles: list[Tile],
) -> None:
    """Put boxes into one buffer: one behind another, rows beside each other, with gaps, transposed."""
    item = side.item_of(name)
    buffer = len(side.buffers)
    pad = rng.choice([0, 0, 1, 2]) * item
    at = rng.choice([0, item, 3])
    shapes = [tuple(hi - lo for lo, hi in tile) for tile in tiles]
    los = [tuple(lo for lo, _ in tile) for tile in tiles]
    beside = len(tiles) > 1 and rng.random() < 0.5 and len({s[0] for s in shapes if s}) == 1
    if beside and len(shapes[0]) > 1:
        widths = [math.prod(s[1:]) * item for s in shapes]
        pitch = sum(widths) + pad
        for lo, shape, width in zip(los, shapes, widths, strict=True):
            beside_step = (pitch, *c_strides(shape[1:], item))
            side.boxes.append((buffer, name, lo, shape, at, beside_step, item))
            at += width
        side.buffers.append((rank, called, at + (shapes[0][0] - 1) * pitch))
        return
    for lo, shape in zip(los, shapes, strict=True):
        order = list(range(len(shape)))
        if rng.random() < 0.3:
            rng.shuffle(order)
        steps, step = [0] * len(shape), item + rng.choice([0, 0, 0, pad])
        for dim in reversed(order):
            steps[dim] = step
            step = step * shape[dim] + rng.choice([0, 0, pad])
        side.boxes.append((buffer, name, lo, shape, at, None if pad < 0 else steps, item))
        at += max(item, step) + pad
    side.buffers.append((rank, called, at))


def right_runs(source: Side, target: Side, rng: random.Random) -> list[Run]:
    """Runs for every element of the target, joined where that is possible and at times not."""
    held: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for _, buffer, at, tag in source.elements():
        held[tag].append((buffer, at))
    cast, names = source.item != target.item, list(source.tensors)
    blocks: list[list[int]] = []
    apart, once = rng.choice([0.0, 0.1, 0.5]), rng.choice([0.0, 0.1, 1.0])
    last_from = None
    asked = sorted(target.elements(), key=lambda one: one[1:3])
    for _, buffer, at, tag in asked:
        near = [one for one in held[tag] if one[0] == last_from]
        come, place = rng.choice(near or held[tag])
        last_from = come
        wire = min(one.item_of(names[tag[0]]) for one in (source, target))
        if blocks and rng.random() >= apart:
            from_, start, to, begin, n = blocks[-1]
            here, there = (n // wire * one.item if cast else n for one in (source, target))
            goes_on = (from_, start + here) == (come, place)
            if goes_on and (to, begin + there) == (buffer, at):
                blocks[-1][4] += wire
                continue
        blocks.append([come, place, buffer, at, wire])
    runs: list[list[int]] = []
    for come, place, to, at, n in blocks:
        if runs and rng.random() >= once:
            r = runs[-1]
            here, there = place - r[2], at - r[4]
            steps = (here, there) if r[6] == 1 else (r[7] * r[6], r[8] * r[6])
            if (r[1], r[3], r[5]) == (come, to, n) and (here, there) == steps:
                if r[6] == 1:
                    r[7], r[8] = here, there
                r[6] += 1
                continue
        runs.append([rng.randint(0, 2), come, place, to, at, n, 1, 0, 0])
    if rng.random() < 0.3:  # the last block first
        runs = [
            [
                *r[:2],
                r[2] + (r[6] - 1) * r[7],
                r[3],
                r[4] + (r[6] - 1) * r[8],
                *r[5:7],
                -r[7],
                -r[8],
            ]
            for r in runs
        ]
    rng.shuffle(runs)
    return [tuple(run) for run in runs]


@dataclass
class Outcome:
    """What carrying runs out showed. Places are (buffer, byte) of the target."""

    out: set[int] = field(default_factory=set)
    reads: dict[int, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    writes: dict[int, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    wrong: dict[int, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    times: Counter[tuple[int, int]] = field(default_factory=Counter)
    never: set[tuple[int, int]] = field(default_factory=set)
    load: Counter[tuple[int, int]] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)
    sent: Counter[int] = field(default_factory=Counter)

    @property
    def twice(self) -> set[tuple[int, int]]:
        return {place for place, n in self.times.items() if n > 1}

    @property
    def is_right(self) -> bool:
        return not (self.out or self.reads or self.writes or self.wrong or self.twice or self.never)


def carry_out(problem: Problem) -> Outcome:
    """Do what the runs say and look at every byte."""
    source, target = problem.source, problem.target
    tags, asked = source.tags(), target.tags()
    wire, found = min(source.item, target.item), Outcome()
    cast = source.item != target.item
    for number, (turn, come, place, to, at, n, count, here, there) in enumerate(problem.runs):
        moves = []
        for block in range(count):
            s, t = place + block * here, at + block * there
            if not cast:
                moves += [((s + byte, 1), (t + byte, 1)) for byte in range(n)]
                continue
            whole = -(-n // wire)
            for elem in range(whole):
                moves.append(
                    ((s + elem * source.item, source.item), (t + elem * target.item, target.item))
                )
        if any(
            s < 0 or s + k > len(tags[come]) or t < 0 or t + m > len(asked[to])
            for (s, k), (t, m) in moves
        ):
            found.out.add(number)
            continue
        for (s, _), (t, wide) in moves:
            read, wanted = tags[come][s], asked[to][t]
            for byte in range(t, t + wide):
                if asked[to][byte] == NOTHING:
                    found.writes[number].add((to, byte))
                else:
                    found.times[to, byte] += 1
            if wanted == NOTHING:
                continue
            if read == NOTHING:
                found.reads[number].add((to, t))
            elif read != wanted or (cast and (read[2] or n % wire)):
                found.wrong[number].add((to, t))
        sender, receiver = source.buffers[come][0], target.buffers[to][0]
        if sender != receiver:
            found.sent[sender] += n * count
            found.received[receiver] += n * count
            for rank in (sender, receiver):
                found.load[turn, rank] += n * count
    for buffer, row in enumerate(asked):
        places = {(buffer, byte) for byte, tag in enumerate(row) if tag != NOTHING}
        found.never |= places - set(found.times)
    return found


def least_bytes(problem: Problem) -> Counter[int]:
    """Bytes that every rank must receive: elements that it asks for, place by place, and does not hold."""
    source, target = problem.source, problem.target
    held = {(source.buffers[buffer][0], tag) for _, buffer, _, tag in source.elements()}
    out: Counter[int] = Counter()
    for _, buffer, _, tag in target.elements():
        rank = target.buffers[buffer][0]
        if (rank, tag) not in held:
            name = list(source.tensors)[tag[0]]
            out[rank] += min(source.item_of(name), target.item_of(name))
    return out
