"""Inner orders: inside a package too, imports point down only.

``INNER`` names a package's children, lowest first. A module may import from children that stand lower
than its own child of that package, and from its own child; the order inside that child is a table of its
own. What ``__init__.py`` says is the package's face: it may import all children, and no child imports it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

INNER: dict[str, str] = {
    "redist.text": "columns units svg parser progress extras call_site",
    "redist.layout": "dtype mesh axes cuts array_type notation interop tiles lower_bound",
    "redist.plan": (
        "topology schedule steps rules dual traffic pieces certificate memory request plan table serial"
    ),
    "redist.program": "tasks memory_graph memory_certificate",
    "redist.synth": (
        "chains graph astar beam rank_traffic type_space blocks block_mates alike word_pairs plan_figures "
        "named_steps objective_costs routes candidates axis_moves two_step_search collective_prices "
        "shape_bounds prime_shapes pattern_steps patterns narrowing collective_routes collective_edges "
        "collective_search find"
    ),
    "redist.check": (
        "holdings figures delivery replay families prove memory_credits memory_contents memory_graphs flow "
        "worst_order certify_memory"
    ),
    "redist.runtime": (
        "mpi_library copies shm schedule ranks lanes index_sets elements onesided request arguments host "
        "cuda simulator started transfer redistribute"
    ),
    "redist.runtime.copies": "strided addresses gpu_arrays script library kernels reduce copy_list",
    "redist.runtime.shm": "first_fit mappings segments pages processes process_reads",
    "redist.runtime.schedule": "direction pieces stages rounds slots compiler",
    "redist.runtime.ranks": (
        "background long_wait waiting tokens agreement node control_page failure leaving meeting world links "
        "neighbours "
        "free_memory collectives"
    ),
    "redist.runtime.lanes": (
        "stores file_io spill_file policies vertex_table timeline residencies ready "
        "loop run_graph together"
    ),
    "redist.runtime.index_sets": "positions held shared part",
    "redist.runtime.elements": "block_copies by_index by_position",
    "redist.runtime.onesided": "records read_service window publish intervals delivery",
    "redist.runtime.host": (
        "report datatypes messages own_tiles message_needs staging places stage executor recorded_stages "
        "recorded_ends recorded"
    ),
    "redist.runtime.cuda": (
        "arrays recording donation pinned_store loops products kernels transports stage executor arguments"
    ),
    "redist.runtime.cuda.kernels": (
        "records extents bits blocking cells chains pieces rows tables launch copies reductions rounds"
    ),
    "redist.runtime.cuda.transports": (
        "carriers all_gather nccl mpi_aware mpi_aware_child choice ipc peers shared_gpu"
    ),
    "redist.draw": "colours view arrows panels matrix memory_bars picture page",
    "redist.lower": (
        "digits calls rows lowering memory hlo words rank_text mpi4py_text torch_text jax_text"
    ),
    "redist.offload": (
        "needs orders room evictions walks least_limit credits compile modelled_time"
    ),
    "redist.graph": "nodes picture program_plan",
    "redist.arrange": (
        "solving ein_graph domain move_prices price_book strategies device_file ways tile_lives "
        "layout_plan layouts judge_layouts groupings least_access lower_bounds"
    ),
    "redist.arrange.solving": (
        "network live_rows mixing narrowed elimination linear_program local_search mini_buckets byte_prices "
        "memory_limit"
    ),
    "redist.jax": "types choose compiled moves trees redistribute compare global_arrays",
    "redist.launch": "outside launcher",
    "redist.judge": "faults claims alive sample words simulation proof",
    "redist.pgas": (
        "keeper memory suggestions watch tiles spill printing namespace_info elementwise indexing shapes "
        "reductions products ordering onesided ufuncs operators methods numpy_functions global_array "
        "device_array ghosts joins creation conversion files linalg fft random statistics programs call_check"
    ),
    "redist.pgas.watch": "gather_warning seam timeline trace",
    "redist.pgas.files": (
        "shares new_file blocks columns npy lines csv_fields other_names csv csv_out parquet"
    ),
    "redist.pgas.spill": "spill_store put_away limit",
    "redist.pgas.ghosts": "structures stand_ins tape ghost memory traffic ghost_array pretended",
    "redist.pgas.programs": (
        "signature strides outside capture graphing agree handing_over passes prepare planning elsewhere "
        "explain prepared limited body program loops map_tiles"
    ),
    "redist.pgas.programs.limited": (
        "listing places run_limit cutting sizes moves work arguments fit cut_fit refusal agreed_fit report "
        "run_timeline limited_program limited_graph calls"
    ),
    "redist.pgas.programs.limited.cutting": (
        "cut_rules cut_views block_calls choose_cuts cut_tasks"
    ),
    "redist.pgas.programs.passes": "tidy judge blocks together order replay recorded",
    "redist.pgas.programs.planning": "recorder plan_calls plan_program plan_report ends",
    "redist.pgas.tiles": (
        "tiled arranging arguments ownership layouts free_dims devices budget move move_together select "
        "reshape"
    ),
    "redist.pgas.elementwise": "standard_limits on_device apply unary binary where closeness",
    "redist.pgas.indexing": "keys basic chosen integer boolean dispatch",
    "redist.pgas.shapes": "join repeat permute diagonals triangle take shift",
    "redist.pgas.reductions": "reduce along named",
    "redist.pgas.products": (
        "streaming cut_candidates product_costs contract_layout order paired_blocks contract matmul "
        "notation einsum"
    ),
    "redist.pgas.joins": (
        "steps run_blocks block_shapes trace_join fixed_join named_joins ein_kernel ein"
    ),
    "redist.pgas.ordering": "splitters sorting searching uniques",
    "redist.pgas.onesided": "index_selection far_blocks address_space epochs get_put",
    "redist.pgas.linalg": "matrices tall_qr panel_solve equations decompositions norms powers",
    "redist.pgas.fft": "cut_lines any_length transforms functions",
    "redist.pgas.random": "philox generators",
    "redist.pgas.statistics": "averages quantiles without_nan counts",
    "redist.measure": (
        "machine timing pages memory cases values options computing calibrate contenders results "
        "compare session job __main__"
    ),
    "redist.measure.contenders": "contender floors naive by_hand ours registry",
    "redist.measure.results": "results table chart",
    "redist.learn": "working borrowed kernels ranks near vectors cluster datasets metrics",
    "redist.learn.kernels": "exact_sums outside_tree library twins cuda steps growing messages chain",
    "redist.learn.kernels.cuda": "sources lloyd near prim messages",
    "redist.learn.ranks": "kept totals passing rows given draws order_statistics visits",
    "redist.learn.near": (
        "slabs searching nearest near_lists components spanning_tree nearest_chain dense_on_gpu "
        "means_on_gpu"
    ),
    "redist.learn.vectors": "blocks eigenvectors gpu_affinities affinities normalizing singular_vectors",
    "redist.learn.cluster": (
        "seeding lloyd kmeans minibatch bisecting dbscan hdbscan optics bandwidth mean_shift "
        "similarities affinity agglomerative feature_agglomeration birch spectral biclusters"
    ),
    "redist.learn.metrics": "labelled contingency comparisons silhouette spread",
    "redist.learn.datasets": "row_draws order making blobs curves classes blocks",
    "redist.torch": (
        "dtypes huge_pages combine ranks memory staging host_stage device_stage transfer world run_plan "
        "layouts trees redistribute global_arrays"
    ),
    "redist.doctor": "process started pairs report diagnosis __main__",
    "redist.cli": "exit_status files request command commands main __main__",
}
"""The children of each package, lowest first."""

FACADES = {
    ("redist.layout.array_type", "redist.layout.notation"),
    ("redist.plan.plan", "redist.plan.serial"),
    ("redist.plan.plan", "redist.plan.table"),
    ("redist.plan.plan", "redist.draw*"),
    ("redist.plan.plan", "redist.lower*"),
    ("redist.plan.plan", "redist.jax*"),
    ("redist.plan.plan", "redist.torch*"),
    ("redist.pgas.global_array", "redist.pgas"),
    ("redist.graph.nodes", "redist.graph.picture"),
}
"""Methods that call upwards, by an import inside a function: text of a type, forms of a plan, and the
namespace of an array, which the standard asks for."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / "redist").rglob("*.py"))}


@cache
def imports_of(module: str) -> tuple[tuple[int, str], ...]:
    """Line and module of everything that a module imports, also inside functions."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            while name and name not in MODULES:
                name = name.rpartition(".")[0]
            if name:
                yield node.lineno, name


def child_of(package: str, module: str) -> str | None:
    """The child of a package that a module belongs to; None for the package itself and what is outside.

    >>> child_of("redist.pgas", "redist.pgas.fft.functions"), child_of("redist.pgas", "redist.pgas")
    ('fft', None)
    """
    inside = module.startswith(f"{package}.")
    return module[len(package) + 1 :].split(".")[0] if inside else None


def is_facade(module: str, name: str) -> bool:
    return any(module == one and fnmatch(name, other) for one, other in FACADES)


def wrong_imports(package: str) -> list[str]:
    """What points up or to the package's face, as ``module:line imports name``."""
    order = INNER[package].split()
    found = []
    for module in MODULES:
        own = child_of(package, module)
        if own is None:
            continue
        for line, name in imports_of(module):
            other = child_of(package, name)
            up = other is not None and other != own and order.index(other) > order.index(own)
            face = name == package and module != package
            if (up or face) and not is_facade(module, name):
                found.append(f"{module}:{line} imports {name}")
    return found


def test_every_package_has_an_order() -> None:
    children: dict[str, set[str]] = {}
    for module in MODULES:
        package, _, child = module.rpartition(".")
        if package:
            children.setdefault(package, set()).add(child)
    several = {package for package, own in children.items() if len(own) > 1}
    assert several - {"redist", "redist.cli.commands"} == set(INNER)  # LAYERS; commands stand alone


@pytest.mark.parametrize("package", INNER)
def test_every_child_has_its_place(package: str) -> None:
    children = {child_of(package, module) for module in MODULES} - {None}
    order = INNER[package].split()
    assert len(order) == len(set(order))
    assert set(order) == children


@pytest.mark.parametrize("package", INNER)
def test_imports_inside_a_package_point_down(package: str) -> None:
    assert not wrong_imports(package)


MOVERS = {
    "redist.runtime.redistribute": {"redistribute", "redistribute_with_transfer"},
    "redist.runtime.elements.by_index": {"exchange"},
    "redist.runtime.elements.by_position": {"fetch", "store"},
    "redist.runtime.ranks.collectives": {"exchange", "tell_all"},
}
"""The functions of the runtime that move elements."""


def test_global_arrays_move_elements_through_one_seam_only() -> None:
    for module, path in MODULES.items():
        if not module.startswith("redist.pgas.") or module == "redist.pgas.watch.seam":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in MOVERS:
                found = {alias.name for alias in node.names} & MOVERS[node.module]
                assert not found, f"{module}:{node.lineno} imports {found}: use traffic()"


def test_no_file_imports_itself_through_others() -> None:
    edges = {m: {n for _, n in imports_of(m) if n != m and not is_facade(m, n)} for m in MODULES}
    state: dict[str, str] = {}

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert state.get(module) != "open", " -> ".join((*path, module))
        if module in state:
            return
        state[module] = "open"
        for other in sorted(edges[module]):
            walk(other, (*path, module))
        state[module] = "done"

    for module in MODULES:
        walk(module, ())
