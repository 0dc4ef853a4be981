"""Answer other nodes' reads while this rank computes: a thread that sends parts of tiles on request."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.errors import PeerError, TransferError
from redist.layout.tiles import Ints
from redist.runtime.index_sets.part import Part
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import abandon
from redist.runtime.shm.segments import Bytes

LEAST_PAUSE_S, MOST_PAUSE_S = 2e-5, 1e-3
"""An idle thread looks for requests so often: soon after one, seldom when none come."""
ANSWER_BYTES = 2**22
"""The largest answer; larger reads are several requests."""
UNDER_WAY = 8
"""Requests that a rank has under way at once; this many answers, at most, wait at a server."""

Ask = tuple[int, int, Part, NDArray[Any]]
"""Rank, number of the array, part of the rank's tile, where it goes (contiguous)."""


class ReadService:
    """The ranks' readers of each other. Making one is **collective over** ``comm``.

    The thread takes part in MPI beside the program: it needs ``MPI_THREAD_MULTIPLE``. It answers as
    soon as Python lets it run: at once where the program waits or computes in NumPy, within the
    5 ms of Python's switching where it runs Python code.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise TransferError(
                "cannot read arrays of other nodes: MPI was started without MPI_THREAD_MULTIPLE; "
                "start it with threads (mpi4py does unless told otherwise)"
            )
        self._comm = comm.Dup()
        self.tiles: dict[int, NDArray[Any]] = {}
        self._stop = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="redist-service", daemon=True)
        self._thread.start()
        atexit.register(self._end)  # before MPI ends

    def ask(self, asked: Sequence[Ask], wait: Callable[[list[Any]], None]) -> None:
        """**Local.** Fill arrays with what other ranks hold; ``wait`` waits for MPI's requests."""
        with self._one_at_a_time:
            for k in range(0, len(asked), UNDER_WAY):
                self._ask(asked[k : k + UNDER_WAY], wait)

    def _ask(self, asked: Sequence[Ask], wait: Callable[[list[Any]], None]) -> None:
        receives, sends, kept = [], [], []
        verdicts = np.zeros((len(asked), 1), np.int64)
        for verdict, (rank, number, part, out) in zip(verdicts, asked, strict=True):
            words = np.concatenate([np.array([number], dtype=np.int64), part.words()])
            kept.append(words)
            into = out.reshape(-1).view(np.uint8)
            receives.append(self._comm.Irecv(verdict, rank, Tag.READ_VERDICT))
            receives.append(self._comm.Irecv([into, MPI.BYTE], rank, Tag.READ_DATA))
            sends.append(self._comm.Isend(words, rank, Tag.READ_REQUEST))
        try:
            wait([*receives, *sends])
        except BaseException:
            abandon(receives, kept, verdicts, [out for *_, out in asked])
            raise
        for n_bytes, (rank, _, part, out) in zip(verdicts[:, 0].tolist(), asked, strict=True):
            if n_bytes != out.nbytes:
                raise PeerError(f"rank {rank} could not read {part.shape} elements of its tile")

    def _serve(self) -> None:
        pause_s = LEAST_PAUSE_S
        status = MPI.Status()
        answers: list[tuple[Any, Any, Bytes, Ints]] = []
        while not self._stop.is_set():
            if self._comm.Iprobe(MPI.ANY_SOURCE, Tag.READ_REQUEST, status):
                words = np.empty(status.Get_count(MPI.INT64_T), np.int64)
                self._comm.Recv(words, status.source, Tag.READ_REQUEST)
                data = self._answer(words)
                verdict = np.array([len(data)], dtype=np.int64)
                first = self._comm.Isend(verdict, status.source, Tag.READ_VERDICT)
                second = self._comm.Isend([data, MPI.BYTE], status.source, Tag.READ_DATA)
                answers.append((first, second, data, verdict))
                pause_s = LEAST_PAUSE_S
                continue
            answers = [answer for answer in answers if not _is_sent(*answer[:2])]
            time.sleep(pause_s)
            pause_s = LEAST_PAUSE_S if answers else min(MOST_PAUSE_S, pause_s * 1.2)

    def _answer(self, words: Ints) -> Bytes:
        """The bytes of a part; none where the request makes no sense."""
        try:
            tile = self.tiles[int(words[0])]
            part, _ = Part.read(words[1:])
            return np.ascontiguousarray(tile[part.index(tile.shape)]).reshape(-1).view(np.uint8)
        except (KeyError, IndexError, ValueError):
            return np.empty(0, np.uint8)

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()
        atexit.unregister(self._end)

    def close(self) -> None:
        """**Collective.** End the thread and free the communicator."""
        self._end()
        self._comm.Free()


def _is_sent(first: Any, second: Any) -> bool:
    return bool(MPI.Request.Testall([first, second]))
