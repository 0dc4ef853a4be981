"""The compiled kernels: one library for every Python, loaded by ctypes; pyproject.toml has the rest.

Where no compiler is found the package installs and runs without them.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = Path("redist/runtime/copies/native")

kernels = Extension(
    "redist.runtime.copies._kernels",
    sources=sorted(str(path) for path in NATIVE.glob("*.c")),
    depends=sorted(map(str, NATIVE.glob("*.h"))),
    extra_compile_args=["-O3"],
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


setup(ext_modules=[kernels], cmdclass={"build_ext": BuildLibrary, "bdist_wheel": AnyPythonWheel})
