"""What a machine without a package registry lacks: fetched on one that has one, unpacked there below
the build folder, so that nothing outside it is touched. Used by tools/gpu_check."""
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

# kolo's build needs these; the compilers, CMake, ninja and LibTorch are the other machine's.
PACKAGES = """
  libcairo2-dev libcli11-dev libfmt-dev libgmock-dev libgtest-dev libhwloc-dev libhwy-dev
  libprotobuf-dev libspdlog-dev libyaml-cpp-dev nlohmann-json3-dev pkgconf-bin protobuf-compiler
""".split()
WHEELS = ["libucx-cu13"]
# Where they are when they are unpacked.
LIBRARIES = "usr/lib/x86_64-linux-gnu"
ROOT_LIBRARIES = "lib/x86_64-linux-gnu"  # of some packages
UCX = "wheels/libucx"
DIGITS = "mnist"
# Every Linux has these, newer ones than Debian 12's: those here would be in their way. And what the
# headers and libraries that are used do without.
EVERYWHERE = re.compile(
    r"(libc6|libc-bin|libc-dev-bin|libc6-dev|libcrypt|libcrypt-dev|libgcc-s1|gcc-.*|libstdc\+\+.*"
    r"|linux-libc-dev|zlib1g.*|dpkg|perl.*|debconf|install-info|tar|sed|libnsl.*|libtirpc.*"
    r"|rpcsvc-proto|python3.*|libpython3.*|media-types|readline-common|libreadline8|libssl3"
    r"|libsqlite3-0|sensible-utils|ucf|fonts-.*|ca-certificates|openssl|shared-mime-info"
    r"|libgtk.*|gtk.*|cpp.*|binutils.*|make|bzip2|xz-utils|mime-support|googletest|libacl1|libbz2-1.0"
    r"|libdb5.3|liblzma5|libpcre2-8-0|libselinux1.*|libsepol.*|libmount-dev|libblkid-dev|uuid-dev"
    r"|libglib2.0-(dev|dev-bin|data|bin)|libicu72|libxml2|libncursesw6|libtinfo6|x11-common|"
    r"xtrans-dev|xorg-sgml-doctools|libelf1|libgssapi.*|libk.*|libcom-err2|libzstd1)$")

# pkgconf looks for these too: cairo's file names what static linking would need.
STATIC_ALONE = {"glib-2.0": "2.74", "gobject-2.0": "2.74", "zlib": "1.2.13"}


def fetch(root, folder):
    """Downloads; prints how much it is. The exit status."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = closure(PACKAGES)
        subprocess.run(["apt-get", "-o", "APT::Sandbox::User=root", "download", *names], cwd=folder,
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                        "--only-binary=:all:", "--dest", str(folder), *WHEELS], check=True)
    except subprocess.CalledProcessError as error:
        # What it has said of it stands above.
        sys.exit(f"gpu_check: --bundle: {' '.join(error.cmd[:4])} … failed with exit status {error.returncode}: "
                 "--bundle needs Debian, pip and their registries")
    except OSError as error:
        sys.exit(f"gpu_check: --bundle: {error.filename}: {error.strerror}")
    for wheel in folder.glob("*.whl"):
        slim(wheel)
    data = root / "build" / "data" / "mnist"
    for path in sorted(data.glob("*-ubyte")) if data.is_dir() else []:
        (folder / path.name).write_bytes(path.read_bytes())
    files = sorted(path for path in folder.iterdir() if path.is_file())
    size = sum(path.stat().st_size for path in files)
    print(f"{folder}: {len(files)} files, {size / 2**20:.1f} MiB. On the machine with the GPU: "
          f"tools/gpu_check --from {folder}")
    return 0


def slim(wheel):
    """Without the programs, static libraries and second names of the libraries: a fifth is left."""
    smaller = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as whole, \
            zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as kept:
        for item in whole.infolist():
            if not re.search(r"(\.a|\.la|\.so|\.so\.0\.0\.0)$|/bin/|perftest", item.filename):
                kept.writestr(item, whole.read(item), zipfile.ZIP_DEFLATED)
    smaller.replace(wheel)


def closure(packages):
    """The packages and what they depend on, of those that apt would install on an empty system."""
    done = subprocess.run(
        ["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
         "--no-breaks", "--no-replaces", "--no-enhances", *packages],
        stdout=subprocess.PIPE, text=True, check=True)
    wanted, seen = list(packages), set()
    edges = {}
    name = ""
    for line in done.stdout.splitlines():
        if not line.startswith(" "):
            name = line.strip()
        elif "Depends:" in line and "<" not in line and not line.startswith(" |"):
            edges.setdefault(name, []).append(line.split("Depends:")[1].strip())
    while wanted:
        package = wanted.pop().split(":")[0]
        if package in seen or EVERYWHERE.match(package):
            continue
        seen.add(package)
        wanted += edges.get(package, [])
    return sorted(seen)


def unpack(folder, prefix, environment):
    """Unpacks below `prefix`; the options for CMake. Changes the environment that programs get."""
    folder = pathlib.Path(folder).resolve()
    if not (prefix / "unpacked").exists():
        prefix.mkdir(parents=True, exist_ok=True)
        for package in sorted(folder.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(prefix)], check=True)
        for wheel in sorted(folder.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(prefix / "wheels")
        for name, version in STATIC_ALONE.items():
            (prefix / "usr" / "share" / "pkgconfig" / f"{name}.pc").write_text(
                f"Name: {name}\nDescription: not here\nVersion: {version}\n")
        (prefix / DIGITS).mkdir(exist_ok=True)
        for path in sorted(folder.glob("*-ubyte")):
            shutil.copy(path, prefix / DIGITS)
        (prefix / "unpacked").touch()
    libraries = prefix / LIBRARIES
    pkgconf = prefix / "usr" / "bin" / "pkgconf"
    pkgconf.chmod(0o755)
    environment["PKG_CONFIG"] = str(pkgconf)
    environment["PKG_CONFIG_LIBDIR"] = f"{libraries}/pkgconfig:{prefix}/usr/share/pkgconfig"
    environment["PKG_CONFIG_SYSROOT_DIR"] = str(prefix)
    # Where Debian's compiler looks by itself (hwloc's configuration).
    headers = [str(prefix / "usr" / "include" / "x86_64-linux-gnu"),
               environment.get("CPLUS_INCLUDE_PATH", "")]
    environment["CPLUS_INCLUDE_PATH"] = ":".join(path for path in headers if path)
    use_libraries(prefix, environment)
    return [f"-DCMAKE_PREFIX_PATH={prefix}/usr", f"-DKOLO_UCX_ROOT={prefix / UCX}",
            f"-DPKG_CONFIG_EXECUTABLE={pkgconf}"]


def use_libraries(prefix, environment):
    """For programs that were built with what is unpacked below `prefix`."""
    paths = [str(prefix / LIBRARIES), str(prefix / ROOT_LIBRARIES), str(prefix / UCX / "lib"),
             environment.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
