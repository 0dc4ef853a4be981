"""Refits as JSON, both ways, and in files.

What was decided is written: senders and turns, as compressed numbers. Tiles, requests and records follow
from the types and rules, so a reader works them out again, and compares the digest.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from redist.errors import ArgumentError, PlanFormatError, ReadError, RedistError, WriteError
from redist.layout.axes import Ints
from redist.plan.topology import Level, Topology
from redist.refits.pairs import find_pairs
from redist.refits.plan import RefitPlan
from redist.refits.rounds import Turns
from redist.refits.weights_files import weights_from_dict, weights_to_dict

VERSION = 1


def refit_to_json(plan: RefitPlan) -> str:
    """JSON text of a refit."""
    found = {
        "version": VERSION,
        "kind": "refit",
        "source": weights_to_dict(plan.source),
        "target": weights_to_dict(plan.target),
        "limit_bytes": plan.limit_bytes,
        "topology": None if plan.topology is None else astuple(plan.topology),
        "cast": plan.cast,
        "received_bytes": plan.received_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "staging_bytes": plan.staging_bytes,
        "least_sent_bytes": plan.least_sent_bytes,
        "rounds": plan.rounds,
        "turns": [_packed(column) for column in plan.turns.columns],
        "senders": [[list(pair.sender.shape), _packed(pair.sender)] for pair in plan.pairs],
        "digest": plan.digest,
    }
    return json.dumps(found, separators=(",", ":"))


def is_refit(text: str) -> bool:
    """Whether a text begins as JSON of a refit.

    >>> is_refit('{"version": 1, "kind": "refit", "source": {}}'), is_refit('{"version": 1}')
    (True, False)
    """
    return re.match(r'\s*\{\s*"version":\s*\d+,\s*"kind":\s*"refit"', text) is not None


def refit_from_json(text: str) -> RefitPlan:
    """The refit that JSON text spells; its digest must be the one that is written."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("kind") != "refit":
            raise PlanFormatError("cannot read the refit: this is not the JSON of a refit")
        if data["version"] != VERSION:
            raise PlanFormatError(
                f"cannot read the refit: version {data['version']}; known: {VERSION}"
            )
        topology, digest = data["topology"], data["digest"]
        source, target = (weights_from_dict(data[side]) for side in ("source", "target"))
        senders = [_unpacked(numbers).reshape(shape) for shape, numbers in data["senders"]]
        pairs = find_pairs(source, target, data["cast"])
        if [s.shape for s in senders] != [(len(p.names), p.n_requests) for p in pairs]:
            raise ArgumentError("cannot read the refit: its senders belong to other weights")
        plan = RefitPlan(
            source, target, tuple(replace(p, sender=s) for p, s in zip(pairs, senders, strict=True)),
            Turns(*map(_unpacked, data["turns"])), data["limit_bytes"],
            None if topology is None else _topology(*topology), data["cast"], data["least_sent_bytes"],
        )  # fmt: skip
    except PlanFormatError:
        raise
    except (RedistError, ValueError, LookupError, TypeError, AttributeError, zlib.error) as problem:
        raise PlanFormatError(
            f"cannot read the refit: {type(problem).__name__}: {problem}"
        ) from None
    if plan.digest != digest:
        raise PlanFormatError(
            f"cannot read the refit: its digest is {plan.digest}, but it says {digest}; it was "
            "changed, or written by another version of redist"
        )
    return plan


def _topology(levels: Sequence[Sequence[Any]], step_ps: int) -> Topology:
    return Topology(tuple(Level(*level) for level in levels), step_ps)


def _packed(values: Ints) -> str:
    mark, kind = ("", "<i4") if not len(values) or values.max() < 2**31 else ("8", "<i8")
    return mark + base64.b64encode(zlib.compress(values.astype(kind).tobytes(), 1)).decode()


def _unpacked(text: str) -> Ints:
    kind, body = ("<i8", text[1:]) if text[:1] == "8" else ("<i4", text)
    raw = zlib.decompress(base64.b64decode(body, validate=True))
    return np.frombuffer(raw, kind).astype(np.int64)


def save_refit(plan: RefitPlan, path: str | Path) -> None:
    """Write a refit to a file, all of it or nothing; several ranks may write the same file."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        try:
            beside.write_bytes(gzip.compress(plan.to_json().encode(), 1, mtime=0))
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as problem:
        why = problem.strerror or problem
        raise WriteError(f"cannot write the refit to {str(path)!r}: {why}") from None


def load_refit(path: str | Path) -> RefitPlan:
    """The refit in a file."""
    try:
        raw = Path(path).read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise ReadError(f"cannot read the refit in {str(path)!r}: {why}") from None
    return refit_from_json(text)
