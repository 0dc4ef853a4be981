"""Options: the same for ``redist bench`` and inside a job."""

from __future__ import annotations

import argparse

import pytest

from redist.errors import RequestError
from redist.measure.cases import KINDS
from redist.measure.contenders.registry import CONTENDERS, choose_contenders, load_peers
from redist.measure.options import CONTENDER_NAMES, BenchOptions, add_options, names_text


def read(*argv: str) -> BenchOptions:
    return BenchOptions.read(add_options(argparse.ArgumentParser()).parse_args(argv))


def test_defaults() -> None:
    assert read() == BenchOptions(
        (128 * 2**20, 2**20), tuple(KINDS), tuple(CONTENDER_NAMES), 15, (), None, None
    )


def test_names_are_those_of_the_contenders() -> None:
    assert list(CONTENDER_NAMES) == list(CONTENDERS)
    for name in (*KINDS, *CONTENDERS):
        assert f"\n  {name} " in names_text()


def test_arguments_read_as_the_options() -> None:
    options = read(
        "--sizes", "1KiB,2MiB,1KiB", "--cases", "uneven,swap", "--contenders", "redist",
        "--repeat", "3", "--peers", "bench.peers", "--json", "a b.json", "--plot", "p.SVG",
    )  # fmt: skip
    assert options.sizes == (1024, 2 * 2**20)
    assert options.cases == ("uneven", "swap")  # in the order of the list
    assert read(*options.arguments()) == options


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--sizes", "12 apples"), "--sizes: cannot read '12 apples'"),
        (("--sizes", "0"), "--sizes: cannot use '0'"),
        (("--sizes", ","), "--sizes: cannot use ','"),
        (("--cases", "rows"), "--cases: cannot use 'rows'; known: rows-columns"),
        (("--contenders", "me"), "--contenders: cannot use 'me'; known: naive"),
        (("--repeat", "0"), "--repeat: cannot use '0'"),
        (("--repeat", "many"), "--repeat: cannot use 'many'"),
        (("--plot", "figure.doc"), "--plot: cannot draw 'figure.doc'"),
    ],
)
def test_what_is_wrong_is_named(argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(*argv)
    assert str(caught.value).startswith(said)


def test_peers_come_from_modules() -> None:
    peers = {"other": CONTENDERS["naive"]}
    assert list(choose_contenders(("redist",), peers)) == ["redist", "other"]
    assert "heat" in load_peers(["bench.peers"])
    for module in ("no_such_module.peers", "json"):
        with pytest.raises(RequestError, match="run where it can be imported"):
            load_peers([module])
