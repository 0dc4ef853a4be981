"""PMI-1, as the server of a job speaks it with MPICH: lines of ``cmd=put key=... value=...``."""

from __future__ import annotations

from collections.abc import Sequence

from redist.launch.hello import LONGEST_KEY, LONGEST_VALUE


class Values:
    """What the ranks of a job tell each other while MPI starts; ``name`` is that of the job."""

    def __init__(self, name: str, nodes: Sequence[str]) -> None:
        self.name, self.size = name, len(nodes)
        self.values: dict[str, str] = {}
        blocks = node_blocks(nodes)
        if len(blocks) < LONGEST_VALUE:  # else MPICH compares the names of hosts
            self.values["PMI_process_mapping"] = blocks

    def answer(self, words: dict[str, str]) -> str:
        """What MPI is told, one line. A client that is not answered crashes: whoever asks is.

        >>> Values("w", ["a", "b"]).answer({"cmd": "get", "key": "PMI_process_mapping"})
        'cmd=get_result rc=0 value=(vector,(0,2,1))'
        """
        key, value = words.get("key", ""), words.get("value", "")
        match words.get("cmd"):
            case "init":
                return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
            case "get_maxes":
                most = f"keylen_max={LONGEST_KEY} vallen_max={LONGEST_VALUE}"
                return f"cmd=maxes rc=0 kvsname_max=256 {most}"
            case "get_appnum":
                return "cmd=appnum rc=0 appnum=0"
            case "get_universe_size":
                return f"cmd=universe_size rc=0 size={self.size}"
            case "get_my_kvsname":
                return f"cmd=my_kvsname rc=0 kvsname={self.name}"
            case "put" if len(key) <= LONGEST_KEY and len(value) <= LONGEST_VALUE:
                self.values[key] = value
                return "cmd=put_result rc=0"
            case "get":
                found = self.values.get(key)
                said = "rc=-1 msg=no_such_key" if found is None else f"rc=0 value={found}"
                return f"cmd=get_result {said}"
            case other:
                return f"cmd={other}_result rc=-1 msg=not_supported"


def words_of(line: str) -> dict[str, str]:
    """The words of a line.

    >>> words_of("cmd=put kvsname=w key=a value=b=c")["value"]
    'b=c'
    """
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def node_blocks(nodes: Sequence[str]) -> str:
    """Which ranks share a node, as PMI says it: blocks of (first node, nodes, ranks on each).

    >>> node_blocks("aabb"), node_blocks("abab"), node_blocks("aab")
    ('(vector,(0,2,2))', '(vector,(0,2,1),(0,2,1))', '(vector,(0,1,2),(1,1,1))')
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(nodes))}
    runs: list[tuple[int, int]] = []  # number of the node, ranks on it, one after another
    for name in nodes:
        if runs and runs[-1][0] == numbers[name]:
            runs[-1] = numbers[name], runs[-1][1] + 1
        else:
            runs.append((numbers[name], 1))
    blocks: list[tuple[int, int, int]] = []
    for number, n_ranks in runs:
        first, n_nodes, each = blocks[-1] if blocks else (0, 0, 0)
        if each == n_ranks and first + n_nodes == number:
            blocks[-1] = first, n_nodes + 1, each
        else:
            blocks.append((number, 1, n_ranks))
    return "(vector," + ",".join(f"({a},{b},{c})" for a, b, c in blocks) + ")"
