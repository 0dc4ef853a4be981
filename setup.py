"""The compiled kernels: a library for every Python, loaded by ctypes; pyproject.toml has the rest.

Where no compiler is found the package installs and runs without them.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = {
    "redist.runtime.copies": ["-O3"],
    "redist.runtime.files": ["-O3"],
    # Products are rounded before they are added: the same bits as NumPy and scikit-learn.
    # Lanes are wider than x86_64 passes them, but no function that is not inlined takes any.
    "redist.learn.kernels": ["-O3", "-ffp-contract=off", "-Wno-psabi"],
}
"""Packages with a folder of C, and how it is compiled."""
INCLUDED = "redist/spmd"
"""Where the header lies for loops that meet other ranks."""


def kernels(package: str, options: list[str]) -> Extension:
    """The library of a package."""
    folder = Path(package.replace(".", "/")) / "native"
    return Extension(
        f"{package}._kernels",
        sources=sorted(str(path) for path in folder.glob("*.c")),
        depends=[*sorted(map(str, folder.glob("*.h"))), f"{INCLUDED}/redist_spmd.h"],
        include_dirs=[INCLUDED],
        extra_compile_args=options,
        optional=True,
    )


class BuildLibrary(build_ext):
    """Name the library after nothing but itself: it uses nothing of Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return where a library lies: ``redist/runtime/copies/_kernels.so``."""
        return f"{fullname.replace('.', '/')}.so"


class AnyPythonWheel(bdist_wheel):
    """A wheel for every Python 3 of one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return ``py3-none`` and the platform."""
        return "py3", "none", super().get_tag()[2]


libraries = [kernels(package, options) for package, options in NATIVE.items()]
setup(ext_modules=libraries, cmdclass={"build_ext": BuildLibrary, "bdist_wheel": AnyPythonWheel})
