"""Prints the folder of the torch that this Python has, without importing it.

CMake runs it when pip builds the package. pip's build isolation takes the environment's packages off
sys.path; sys.prefix still names the environment. Exit status 1, and what to do on standard error, if
there is no torch.
"""
import pathlib
import site
import sys
import sysconfig


def folders() -> list[pathlib.Path]:
    """Where packages of this Python lie, in the order of their precedence."""
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    in_venv = sys.prefix != sys.base_prefix
    settings = pathlib.Path(sys.prefix, "pyvenv.cfg")
    sees_system = not in_venv or "include-system-site-packages = true" in settings.read_text(encoding="utf-8").lower()
    if sees_system:
        found.append(site.getusersitepackages())
        base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
        found += [sysconfig.get_path(name, vars=base) for name in ("purelib", "platlib")]
        found += site.getsitepackages([sys.base_prefix])
    return [pathlib.Path(folder) for folder in dict.fromkeys(found)]


def main() -> None:
    looked = folders()
    for folder in looked:
        if (folder / "torch" / "lib" / "libtorch_python.so").exists():
            print((folder / "torch").resolve(), end="")
            return
    sys.exit("kolo is built against the torch that is installed, and this Python has none in "
             + ", ".join(map(str, looked)) + ". Install torch first, or name it: "
             "pip install --config-settings=cmake.define.KOLO_TORCH_ROOT=<site-packages/torch> …")


main()
