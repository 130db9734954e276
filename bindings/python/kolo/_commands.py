"""The commands of the package: programs in ``kolo/bin``."""
import os
import pathlib
import sys
from typing import NoReturn

_FOLDER = pathlib.Path(__file__).absolute().parent / "bin"  # not where a link of a build folder leads


def _become(name: str) -> NoReturn:
    os.execv(_FOLDER / name, [name, *sys.argv[1:]])


def run() -> NoReturn:
    """kolo-run: starts a program once a rank."""
    _become("kolo-run")


def info() -> NoReturn:
    """kolo-info: what a job runs on, and what stands in its way."""
    _become("kolo-info")


def perf() -> NoReturn:
    """kolo-perf: how fast the collectives are."""
    _become("kolo-perf")


def simulate() -> NoReturn:
    """kolo-simulate: what the schedules take on machines that are described."""
    _become("kolo-simulate")


def timeline() -> NoReturn:
    """kolo-timeline: timelines, and why a job ended."""
    _become("kolo-timeline")
