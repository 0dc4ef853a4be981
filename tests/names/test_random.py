"""Random rules beside a second reader, which walks through the tree for every index of the stored array."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

import numpy as np

from redist.errors import ShapeError
from redist.names import Names, part_view


@dataclass
class Leaf:
    text: str
    size: int
    padding: bool = False


Tree = Leaf | tuple[str, list["Tree"]]
"""A leaf, or trees that are added ('|') or multiplied ('*')."""
Path = tuple[tuple[int, int], ...]
"""The leaves on the way to an index (by identity), with the digit of each."""


def size_of(tree: Tree) -> int:
    if isinstance(tree, Leaf):
        return tree.size
    sizes = [size_of(child) for child in tree[1]]
    return sum(sizes) if tree[0] == "|" else math.prod(sizes)


def text_of(tree: Tree) -> str:
    if isinstance(tree, Leaf):
        return tree.text
    inner = [
        f"({text_of(c)})" if tree[0] == "*" and not isinstance(c, Leaf) else text_of(c)
        for c in tree[1]
    ]
    return tree[0].join(inner)


def leaves_of(tree: Tree) -> list[Leaf]:
    return [tree] if isinstance(tree, Leaf) else [leaf for c in tree[1] for leaf in leaves_of(c)]


def walk(tree: Tree, index: int) -> Path:
    """The leaves that an index goes through, major first."""
    if isinstance(tree, Leaf):
        return ((id(tree), index),)
    op, children = tree
    if op == "|":
        for child in children:
            if index < size_of(child):
                return walk(child, index)
            index -= size_of(child)
        raise AssertionError("out of bounds")
    found: Path = ()
    for child in reversed(children):
        index, digit = divmod(index, size_of(child))
        found = walk(child, digit) + found
    return found


class Maker:
    """Makes trees; every leaf is a number, a letter of its own, or padding."""

    def __init__(self, rng: random.Random, letters: bool) -> None:
        self.rng = rng
        self.letters = letters
        self.n = 0

    def leaf(self) -> Leaf:
        size = self.rng.randint(1, 4)
        if self.rng.random() < 0.15:
            known = not self.letters or self.rng.random() < 0.5
            return Leaf(f"_{size}" if known else "_", size, padding=True)
        self.n += 1
        if self.letters and self.rng.random() < 0.5:
            return Leaf(f"n{self.n}", size)
        return Leaf(str(size), size)

    def tree(self, depth: int) -> Tree:
        if depth == 0 or self.rng.random() < 0.35:
            return self.leaf()
        children = [self.tree(depth - 1) for _ in range(self.rng.randint(2, 3))]
        return (self.rng.choice("|*"), children)


def orders_of(dims: list[Tree]) -> list[list[Leaf]]:
    """The leaves of every segment, in the order of the segments, without those of padding."""

    def options(tree: Tree) -> list[list[Leaf]]:
        if isinstance(tree, Leaf):
            return [[tree]]
        if tree[0] == "|":
            return [one for child in tree[1] for one in options(child)]
        return [list(itertools.chain(*one)) for one in itertools.product(*map(options, tree[1]))]

    every = [list(itertools.chain(*one)) for one in itertools.product(*map(options, dims))]
    return [one for one in every if not any(leaf.padding for leaf in one)]


def regroup(rng: random.Random, leaves: list[Leaf]) -> list[list[Leaf]]:
    """Leaves in another order, and merged into dims; equal texts stay in their order."""
    mixed = leaves[:]
    rng.shuffle(mixed)
    queues = {leaf.text: [one for one in leaves if one.text == leaf.text] for leaf in leaves}
    mixed = [queues[leaf.text].pop(0) for leaf in mixed]
    cuts = sorted(rng.sample(range(1, len(mixed)), rng.randint(0, len(mixed) - 1)))
    return [mixed[a:b] for a, b in itertools.pairwise([0, *cuts, len(mixed)])]


def problem(seed: int, letters: bool) -> tuple[str, list[Tree], dict[str, list[list[Leaf]]]]:
    """A rule, its stored dims, and the leaves of every dim of each part."""
    rng = random.Random(seed)
    while True:
        make = Maker(rng, letters)
        dims = [make.tree(rng.randint(0, 2)) for _ in range(rng.randint(1, 3))]
        orders = orders_of(dims)
        unknown = [[leaf.text for leaf in leaves_of(dim)].count("_") for dim in dims]
        if orders and math.prod(map(size_of, dims)) <= 400 and max(unknown) <= 1:
            break
    parts, texts = {}, []
    for number, leaves in enumerate(orders):
        name = f"p.{number}"
        if rng.random() < 0.5:
            own = [
                [leaf for leaf in leaves_of(dim) if any(leaf is o for o in leaves)] for dim in dims
            ]
            texts.append(name)
        else:
            own = regroup(rng, leaves)
            texts.append(f"{name}[{', '.join('*'.join(leaf.text for leaf in dim) for dim in own)}]")
        parts[name] = own
    return f"w[{', '.join(map(text_of, dims))}] = {', '.join(texts)}", dims, parts


def one(seed: int, *, letters: bool) -> bool:
    """Look at one rule; whether the sizes of its letters could be found."""
    rule, dims, parts = problem(seed, letters)
    shape = tuple(map(size_of, dims))
    stored = np.arange(math.prod(shape)).reshape(shape)
    shapes = {
        name: tuple(math.prod(leaf.size for leaf in dim) for dim in own)
        for name, own in parts.items()
    }
    named = {name: np.full(size, -1) for name, size in shapes.items()}
    by_leaves = {
        frozenset(id(leaf) for dim in own for leaf in dim): name for name, own in parts.items()
    }
    for index in np.ndindex(*shape):
        path = dict(itertools.chain(*map(walk, dims, index)))
        name = by_leaves.get(frozenset(path))
        if name is None:
            continue  # padding
        place = []
        for dim in parts[name]:
            at = 0
            for leaf in dim:
                at = at * leaf.size + path[id(leaf)]
            place.append(at)
        assert named[name][tuple(place)] == -1
        named[name][tuple(place)] = stored[index]
    names = Names(rule)
    try:
        found = names.parts_of("w", shape, shapes)
    except ShapeError as error:
        assert letters and "is not known; write it as a number" in str(error), rule
        return False
    assert [part.name for part in found] == list(named), rule
    for part in found:
        assert part.shape == shapes[part.name], rule
        assert math.prod(part.digits) == math.prod(part.shape), rule
        assert np.array_equal(part_view(part, stored).reshape(part.shape), named[part.name]), rule
    try:
        assert names.stored_from(shapes) == {"w": shape}, rule
    except ShapeError as error:
        assert letters and "is not known; write it as a number" in str(error), rule
    return True


def test_500_random_rules() -> None:
    assert all(one(seed, letters=False) for seed in range(250))
    assert sum(one(seed, letters=True) for seed in range(250)) > 120
