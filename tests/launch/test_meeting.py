"""The meeting of processes that become ranks: who is let in, every mistake on all of them, random input."""

from __future__ import annotations

import random
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from redist.errors import LaunchError
from redist.launch import entrance
from redist.launch.entrance import Ticket, addresses_to_bind, enter, job_of, own_token, serve
from redist.launch.hello import GREETING, LONGEST_LINE, Hello, mac_of
from redist.launch.places import FilePlace, Place, read_text
from redist.launch.pmi import node_blocks
from redist.launch.server import STAY_S
from redist.launch.started import Started
from redist.runtime.ranks.joining import _go_in
from tests.tiers import sample

TOKEN = "the token"
SOON_S = 2.0
"""So soon after the mistake, or the end of the time to join, every process has its error."""


class Job:
    """A server here, and processes that go in: threads, as each only waits."""

    def __init__(self, size: int, timeout_s: float = 20.0) -> None:
        self.size, self.timeout_s = size, timeout_s
        name = job_of(str(random.random()))
        doors, self.server = serve(["127.0.0.1"], 0, name, size, TOKEN, timeout_s)
        self.ticket = Ticket(doors, name, TOKEN)

    def hello(self, rank: int, **other: object) -> Hello:
        words = {"size": self.size, "node": "here", "library": "MPICH 5", "problem": "", **other}
        return Hello(rank=rank, name=f"process {100 + rank} on a", **words)  # type: ignore[arg-type]

    def go_in(self, hello: Hello, token: str = TOKEN, timeout_s: float = 5.0) -> str:
        """The error of a process that goes in; empty if it is a rank."""
        ticket = Ticket(self.ticket.doors, self.ticket.job, token)
        try:
            sock, _ = enter(lambda: ticket, hello, timeout_s)
            sock.close()
        except LaunchError as error:
            return str(error)
        return ""

    def all_go_in(
        self, *hellos: Hello, meanwhile: Callable[[], object] = lambda: None
    ) -> list[str]:
        """The errors of processes that come at once."""
        with ThreadPoolExecutor(len(hellos)) as pool:
            waiting = [pool.submit(self.go_in, hello) for hello in hellos]
            meanwhile()
            return [one.result() for one in waiting]


def end(job: Job) -> None:
    with suppress(ProcessLookupError):
        job.server.kill()
    job.server.wait(5)


def test_all_who_come_are_let_in_and_then_nobody() -> None:
    job = Job(4)
    assert job.all_go_in(*(job.hello(rank) for rank in range(4))) == [""] * 4
    late = job.go_in(job.hello(2), timeout_s=0.3)
    assert (
        late.startswith("cannot join as rank 2 of 4: no server within 0.3 s") and "refused" in late
    )
    assert job.server.wait(5) == 0  # nobody is left


def all_say(errors: list[str], words: str) -> None:
    assert all(words in error for error in errors), errors
    assert all("; " in error for error in errors), errors  # and what to do


def test_a_rank_that_never_comes_is_named_to_all() -> None:
    job = Job(4, timeout_s=0.4)
    start = time.monotonic()
    all_say(job.all_go_in(job.hello(0), job.hello(2)), "ranks 1, 3 of 4 did not join within 0.4 s")
    assert time.monotonic() - start < 0.4 + SOON_S
    end(job)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rank": 0}, "two processes are rank 0: process 100 on a and process 100 on a"),
        ({"size": 3}, "wants 3 ranks, the others 4|wants 4 ranks"),
        ({"rank": 4}, "rank 4 (process 104 on a) is out of range; ranks of 4 go from 0 to 3"),
        ({"rank": -1}, "rank -1 (process 99 on a) is out of range"),
        ({"library": "MPICH 4"}, "has MPICH 4"),
        ({"problem": "MPI has started already; do better"}, "MPI has started already; do better"),
    ],
)
def test_one_mistake_is_an_error_on_all(changes: dict[str, object], words: str) -> None:
    job = Job(4)
    start = time.monotonic()
    bad = job.hello(**{"rank": 1, **changes})  # type: ignore[arg-type]
    told = job.all_go_in(job.hello(0), bad, job.hello(2), job.hello(3))
    if "library" in changes:
        words = "install the same everywhere"
    assert all(any(w in one for w in words.split("|")) for one in told), told
    assert time.monotonic() - start < SOON_S
    end(job)


def test_who_comes_after_a_mistake_is_told_too() -> None:
    job = Job(3)
    assert "out of range" in job.go_in(job.hello(9))
    assert "rank 9 (process 109 on a) is out of range" in job.go_in(job.hello(0))
    end(job)


def test_a_wrong_token_is_said_at_once_and_the_others_learn_of_it() -> None:
    job = Job(2, timeout_s=0.6)
    told_wrong: list[str] = []

    def come_with_another() -> None:
        told_wrong.append(job.go_in(job.hello(1), "another"))

    told = job.all_go_in(job.hello(0), meanwhile=come_with_another)
    assert "the server has another token; set REDIST_JOIN_TOKEN" in told_wrong[0]
    assert "rank 1 of 2 did not join within 0.6 s (1 connections gave a wrong token)" in told[0]
    end(job)


def test_a_process_that_dies_before_all_have_come_is_named() -> None:
    job = Job(4)

    def come_and_go() -> None:
        time.sleep(0.1)
        sock = socket.create_connection(job.ticket.doors[0])
        nonce = sock.recv(200).split()[2].decode()
        text = job.hello(1).text()
        sock.sendall(f"{mac_of(TOKEN, 'rank', nonce, 'mine', text)} mine {text}\n".encode())
        sock.recv(100)
        sock.close()

    told = job.all_go_in(job.hello(0), job.hello(2), meanwhile=come_and_go)
    all_say(told, "rank 1 (process 101 on a) has gone before all")
    end(job)


@pytest.mark.parametrize("how", ["killed", "its starter ended"])
def test_a_server_that_goes_during_the_meeting_is_an_error_on_all(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs: list[str] = []

    def counted(token: str, *words: str) -> str:
        proofs.append(words[0])
        return mac_of(token, *words)

    monkeypatch.setattr(entrance, "mac_of", counted)
    job = Job(3)

    def go() -> None:
        while len(proofs) < 4:  # each makes one, and looks at that of the server once it is let in
            time.sleep(0.01)
        if how == "killed":
            job.server.send_signal(signal.SIGKILL)
        else:
            assert job.server.stdin is not None
            job.server.stdin.close()

    start = time.monotonic()
    told = job.all_go_in(job.hello(0), job.hello(1), meanwhile=go)
    words = (
        "the server has gone" if how == "killed" else "rank 0, or who started the server, has ended"
    )
    all_say(told, words)
    assert time.monotonic() - start < SOON_S
    end(job)


def test_nobody_serves() -> None:
    ticket = Ticket((("127.0.0.1", 9),), "w", TOKEN)
    with pytest.raises(
        LaunchError, match=r"no server within 0.2 s .*127.0.0.1:9: .*refused.* rank 0"
    ):
        enter(lambda: ticket, Hello(1, 2, "", "", "", ""), 0.2)


def test_rank_0_cannot_serve_where_it_is_not() -> None:
    hello = Hello(0, 2, "", "", "", "")
    elsewhere = Started(0, 2, Ticket((("192.0.2.1", 5000),), "w", TOKEN, False))
    with pytest.raises(
        LaunchError, match=r"cannot serve at 192.0.2.1:5000: .*; rank 0 serves, and must"
    ):
        _go_in(elsewhere, hello, "", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = Started(0, 2, Ticket((("127.0.0.1", port),), "w", TOKEN, False))
        entrance.GREET_S, before = 0.2, entrance.GREET_S
        with pytest.raises(LaunchError, match=rf"another program has port {port}; give a free one"):
            _go_in(taken, hello, "", 1.0)
        entrance.GREET_S = before


def test_the_next_port_is_taken_if_another_program_has_the_first() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        doors = (("127.0.0.1", port), ("127.0.0.1", port + 1))
        entrance.GREET_S, before = 0.2, entrance.GREET_S
        started = [Started(rank, 2, Ticket(doors, "w", TOKEN, False)) for rank in range(2)]
        with ThreadPoolExecutor(2) as pool:
            hellos = [Hello(rank, 2, "here", "", "", "") for rank in range(2)]
            both = list(pool.map(lambda s, h: _go_in(s, h, "", 5.0), started, hellos))
        entrance.GREET_S = before
    assert both[0][1] == both[1][1]
    for sock, _ in both:
        sock.close()


# Random input.


def a_message(rng: random.Random, job: Job, nonce: str) -> bytes:
    """What a stranger may send: noise, nested JSON, proofs that are wrong, words of MPI and of ranks."""
    text = job.hello(rng.randrange(4)).text()
    match rng.randrange(9):
        case 0:
            return rng.randbytes(rng.randrange(200)) + b"\n"
        case 1:
            return b"[" * rng.randrange(LONGEST_LINE) + b"\n"
        case 2:
            return b"x" * rng.randrange(2 * LONGEST_LINE)
        case 3:
            mac = mac_of(rng.choice(["", "guess", TOKEN.upper()]), "rank", nonce, "n", text)
            return f"{mac} n {text}\n".encode()
        case 4:  # a proof for another connection
            return f"{mac_of(TOKEN, 'rank', 'another nonce', 'n', text)} n {text}\n".encode()
        case 5:
            mac = mac_of(TOKEN, "rank", nonce, "n", text)
            return f"{mac} n {text.replace('MPICH', 'MPICX')}\n".encode()
        case 6:
            return rng.choice(
                [b"cmd=barrier_in\n", b"cmd=put key=a value=b\n", b'{"abort": 1}\n', b"\n" * 50]
            )
        case 7:
            return f"{GREETING} {nonce}\n\xff {nonce}\n".encode("latin-1")
        case _:
            return f"\N{SNOWMAN} {nonce} {text}\n".encode()


def test_random_input_neither_ends_the_server_nor_gets_in() -> None:
    job = Job(4, timeout_s=120.0)
    rng = random.Random(7)
    open_: list[socket.socket] = []
    for _ in range(sample(300, of=10000)):
        sock = socket.create_connection(job.ticket.doors[0], timeout=5)
        greeting = sock.recv(200).decode()
        nonce = greeting.split()[2]
        with suppress(OSError):
            for _ in range(rng.randrange(1, 3)):
                sock.sendall(a_message(rng, job, nonce))
        if rng.random() < 0.2:  # some stay, in the way of others
            open_.append(sock)
        else:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
                said = sock.recv(200)
                assert said in (b"", b"wrong\n"), said  # nobody is in
            sock.close()
        if len(open_) > 50:
            open_.pop(0).close()
    assert job.server.poll() is None
    assert job.all_go_in(*(job.hello(rank) for rank in range(4))) == [""] * 4
    for sock in open_:
        sock.close()
    assert job.server.wait(5) == 0


# Tokens and places.


def test_a_user_has_one_token_that_nobody_else_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIST_JOIN_TOKEN", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        tokens = {one.result() for one in [pool.submit(own_token) for _ in range(32)]}
    (token,) = tokens
    (file,) = (tmp_path / "redist").iterdir()
    assert len(token) == 64 and file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(LaunchError, match=r"others can read .*; set REDIST_JOIN_TOKEN"):
        own_token()
    monkeypatch.setenv("REDIST_JOIN_TOKEN", "mine")
    assert own_token() == "mine"


def test_a_file_place_is_private_and_says_what_is_missing(tmp_path: Path) -> None:
    place = FilePlace(tmp_path)
    assert isinstance(place, Place)
    place.set("key", "first")
    place.set("key", "second")
    assert read_text(place, "key", 1.0) == "second"
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {"key": 0o600}
    with pytest.raises(
        LaunchError, match=r"rank 0 left no ticket within 0.1 s \(FilePlace: no file other"
    ):
        read_text(place, "other", 0.1)


def test_an_old_ticket_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    place = FilePlace(tmp_path)
    place.set("redist-join", Ticket((("127.0.0.1", 9),), "old", "old").text())
    started = [Started(rank, 2, place) for rank in range(2)]
    hellos = [Hello(rank, 2, "here", "", "", "") for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        second = pool.submit(_go_in, started[1], hellos[1], "more", 10.0)
        time.sleep(0.2)
        first = pool.submit(_go_in, started[0], hellos[0], "more", 10.0)
        both = [first.result(), second.result()]
    assert both[0][1] == both[1][1]
    for sock, _ in both:
        sock.close()


def test_the_server_binds_to_the_address_given_only() -> None:
    assert addresses_to_bind("127.0.0.1") == ["127.0.0.1"]
    job = Job(1)
    table = Path("/proc/net/tcp").read_text()
    port = f"{job.ticket.doors[0][1]:04X}"
    bound = [
        line.split()[1] for line in table.splitlines()[1:] if f":{port} 00000000:0000 0A" in line
    ]
    assert bound == [f"0100007F:{port}"]
    end(job)


@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_nodes_say_who_is_where(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        nodes = [str(rng.randrange(4)) for _ in range(rng.randrange(1, 12))]
        blocks = node_blocks(nodes).removeprefix("(vector,(").removesuffix("))").split("),(")
        told: list[int] = []
        for first, n_nodes, each in (map(int, block.split(",")) for block in blocks):
            told += [first + k for k in range(n_nodes) for _ in range(each)]
        assert len(told) == len(nodes)
        same = [[a == b for b in nodes] for a in nodes]
        assert [[a == b for b in told] for a in told] == same


@pytest.mark.slow("takes 3 s")
def test_a_server_whose_starter_ends_does_not_stay() -> None:
    job = Job(2)
    assert job.server.stdin is not None
    job.server.stdin.close()
    assert job.server.wait(STAY_S + SOON_S) == 0
