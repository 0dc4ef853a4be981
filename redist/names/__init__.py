"""Names of weights: rules that say which named tensors a stored tensor is made of.

>>> names = Names("*.qkv[q|k|v, :] = *.q, *.k, *.v")
>>> known = {"a.q": (8, 3), "a.k": (2, 3), "a.v": (2, 3), "norm": (3,)}
>>> names.stored_from(known)
{'a.qkv': (12, 3), 'norm': (3,)}
>>> [(part.name, part.shape, part.starts) for part in names.parts_of("a.qkv", (12, 3), known)]
[('a.q', (8, 3), (0, 0)), ('a.k', (2, 3), (8, 0)), ('a.v', (2, 3), (10, 0))]
"""

from redist.names.names import Names
from redist.names.part import Part, part_view, whole

__all__ = ["Names", "Part", "part_view", "whole"]
