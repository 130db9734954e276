"""The Python of PyTorch's wheel on a machine without CUDA's libraries. The wheel's modules want all of
them to be there, but nothing on the CPU calls any: an empty library takes the place of each that is
missing, in a folder of the test's own."""
import os
import pathlib
import re
import shlex
import subprocess

TORCHRUN = "torch.distributed.run"
MOST_SYMBOLS = 100


class NotPossible(Exception):
    """What a test needs is not on this machine."""


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


def environment_for(python, module, folder):
    """What lets this Python import the module, with libraries in the folder, which is made; NotPossible
    says why nothing does."""
    if not os.access(python, os.X_OK):
        raise NotPossible(f"{python} is no Python: see tools/setup")
    found = output_of(python, "-c", "from importlib.util import find_spec; torch = find_spec('torch'); "
                      "print(torch.submodule_search_locations[0] if torch else '')").strip()
    if not found:
        raise NotPossible(f"{python} has no PyTorch: see tools/setup")
    missing = missing_libraries(pathlib.Path(found) / "lib")
    folder.mkdir(parents=True)
    environment = {"TORCH_USE_RTLD_GLOBAL": "1", "LD_LIBRARY_PATH": str(folder)} if missing else {}
    symbols = set()
    for _ in range(MOST_SYMBOLS):
        for name, versions in missing.items():
            make_library(folder / name, versions, symbols)
        done = subprocess.run([python, "-W", "ignore", "-c", f"import {module}"], check=False, capture_output=True,
                              text=True, timeout=60, env=os.environ | environment)
        symbol = re.search(r"undefined symbol: (\w+)(?:, version (\S+))?", done.stderr)
        if done.returncode == 0:
            break
        if not symbol or (symbol[1], symbol[2]) in symbols:
            lines = done.stderr.strip().splitlines()
            raise NotPossible(f"{module} does not import: {lines[-1] if lines else done.returncode}")
        symbols.add((symbol[1], symbol[2]))
    if missing:
        print(f"{module} without {', '.join(sorted(missing))}, which it does not call")
    return environment


def write_script(path, environment, command):
    """A script that runs the command, with what it is given, in this environment."""
    settings = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    path.write_text(f"#!/bin/sh\n{settings}exec {shlex.join(command)} \"$@\"\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def torchrun_of(python, folder):
    """A script that starts it; NotPossible says why there is none."""
    environment = environment_for(python, TORCHRUN, folder)
    return write_script(folder / "torchrun", environment, [str(python), "-W", "ignore", "-m", TORCHRUN])
