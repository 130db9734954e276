"""The torchrun of PyTorch's wheel on a machine without CUDA's libraries. The wheel's Python module wants
all of them to be there, but its agent calls none: an empty library takes the place of each that is
missing, in a folder of the test's own."""
import os
import pathlib
import re
import shlex
import subprocess

from hosts import NotPossible

MODULE = "torch.distributed.run"
MOST_SYMBOLS = 100


def output_of(*command):
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60).stdout


def missing_libraries(libraries):
    """Each with the names of its symbols' versions."""
    found = {}
    for library in libraries.glob("lib*.so*"):
        for name in re.findall(r"(\S+) => not found", output_of("ldd", str(library))):
            found.setdefault(name, set())
    for library in libraries.glob("lib*.so*") if found else ():
        wanted = None
        for line in output_of("readelf", "-V", "-W", str(library)).splitlines():
            file = re.search(r"File: (\S+)", line)
            wanted = file[1] if file else wanted
            version = re.search(r"Name: (\S+)", line)
            if version and wanted in found:
                found[wanted].add(version[1])
    return found


def make_library(path, versions, symbols):
    """Data that the loader looks for at once; functions it would look for when they are called."""
    own = sorted(name for name, version in symbols if version in versions or not version)
    script = path.with_suffix(".map")
    groups = [(version, [name for name, of in symbols if of == version]) for version in sorted(versions)]
    script.write_text("".join(f"{version} {{ {'global: ' if names else ''}{' '.join(name + ';' for name in names)} }};\n"
                              for version, names in groups), encoding="ascii")
    source = "".join(f"char {name}[4096];\n" for name in own)
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", str(path), f"-Wl,-soname,{path.name}",
                    *([f"-Wl,--version-script={script}"] if versions else [])], check=True, input=source, text=True)


def torchrun_of(python, folder):
    """A script that starts it; NotPossible says why there is none."""
    if not os.access(python, os.X_OK):
        raise NotPossible(f"{python} is no Python: see tools/setup")
    found = output_of(python, "-c", "from importlib.util import find_spec; torch = find_spec('torch'); "
                      "print(torch.submodule_search_locations[0] if torch else '')").strip()
    if not found:
        raise NotPossible(f"{python} has no PyTorch: see tools/setup")
    missing = missing_libraries(pathlib.Path(found) / "lib")
    folder.mkdir()
    environment = {"TORCH_USE_RTLD_GLOBAL": "1", "LD_LIBRARY_PATH": str(folder)} if missing else {}
    symbols = set()
    for _ in range(MOST_SYMBOLS):
        for name, versions in missing.items():
            make_library(folder / name, versions, symbols)
        done = subprocess.run([python, "-W", "ignore", "-c", f"import {MODULE}"], check=False, capture_output=True,
                              text=True, timeout=60, env=os.environ | environment)
        symbol = re.search(r"undefined symbol: (\w+)(?:, version (\S+))?", done.stderr)
        if done.returncode == 0:
            break
        if not symbol or (symbol[1], symbol[2]) in symbols:
            lines = done.stderr.strip().splitlines()
            raise NotPossible(f"{MODULE} does not import: {lines[-1] if lines else done.returncode}")
        symbols.add((symbol[1], symbol[2]))
    if missing:
        print(f"torchrun without {', '.join(sorted(missing))}, which it does not call")
    script = folder / "torchrun"
    settings = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    script.write_text(f"#!/bin/sh\n{settings}exec {shlex.quote(str(python))} -W ignore -m {MODULE} \"$@\"\n",
                      encoding="ascii")
    script.chmod(0o755)
    return str(script)
