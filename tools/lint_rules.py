"""The rules of tools/lint: what the source tree must look like.

Each rule is a function (tree) -> iterable of (path, line, rule, what to do); a tree gives the tracked
files and their lines. tools/lint runs them, tools/lint_self_test.py shows that each can fail.
"""
import re

# The top level is fixed, so that a newcomer finds the same few things always.
TOP_LEVEL = set(
    "CMakeLists.txt CMakePresets.json README.md LICENSE CHANGELOG.md CONTRIBUTING.md .ci .clang-format"
    " .clang-tidy .gitignore bindings cmake docs examples runtime tests tools transport".split())

MAX_LINES = 500

# Who may include whom, by folder. A folder always sees itself and the core's public headers; below
# runtime/ and transport/ it sees runtime/base, too, unless it is installed. "transport" is the
# interface, its subfolders are the backends.
PUBLIC = ["runtime/include", "bindings/include"]
LOW = ["runtime/topology", "runtime/device", "runtime/observe", "runtime/bootstrap", "transport"]
GROUP = LOW + ["runtime/communicator", "runtime/health", "runtime/memory"]
STAGES = ["runtime/submission", "runtime/negotiation", "runtime/fusion", "runtime/collectives",
          "runtime/execution"]
TENSORS = ["bindings/include", "bindings/core", "bindings/torch/tensors"]
LAYERS = {
    "runtime/include": [],
    "runtime/base": [],
    "transport": [],
    "runtime/topology": [],
    "runtime/device": [],
    "runtime/observe": [],
    "runtime/bootstrap": ["runtime/topology"],
    "runtime/communicator": LOW,
    "runtime/health": LOW + ["runtime/communicator"],
    "runtime/memory": LOW + ["runtime/communicator", "runtime/health"],
    # A stage sees the value types of the stages before it.
    "runtime/submission": GROUP,
    "runtime/negotiation": GROUP + STAGES[:1],
    "runtime/fusion": GROUP + STAGES[:2],
    "runtime/collectives": ["runtime/topology"],  # schedules are pure: no group, no I/O
    "runtime/execution": GROUP + STAGES[:4],
    # Decides by values alone: the shape of a call, what ranks share, prices of schedules.
    "runtime/planning": ["runtime/topology", "runtime/device", "runtime/communicator",
                         "runtime/collectives"],
    # Beside execution: two other ways to carry an operation.
    "runtime/exchange": GROUP + ["runtime/planning"],
    "runtime/nccl": GROUP,
    "runtime/tuning": GROUP + STAGES,
    "runtime/operation": GROUP + STAGES + ["runtime/planning", "runtime/exchange", "runtime/nccl",
                                           "runtime/tuning"],
    "runtime/cycle": GROUP + STAGES + ["runtime/planning", "runtime/exchange", "runtime/nccl",
                                       "runtime/tuning", "runtime/operation"],
    "bindings/include": [],
    "bindings/core": None,  # None: everything
    "bindings/c": ["bindings/include", "bindings/core"],
    "bindings/torch": [],
    "bindings/torch/tensors": TENSORS,
    "bindings/torch/gradients": TENSORS,
    "bindings/torch/data": TENSORS,
    "bindings/torch/training": TENSORS + ["bindings/torch/gradients", "bindings/torch/data"],
    # An optional part, so nothing includes it.
    "bindings/torch/accelerator": TENSORS + ["bindings/torch/gradients", "bindings/torch/data",
                                             "bindings/torch/training"],
    "bindings/c10d": TENSORS,
    "bindings/python": ["bindings/include", "bindings/core", "bindings/c10d"],
    "examples": ["bindings/include"],
    "tools": None,
    "tests": None,
}
WHY = {
    "runtime/include": "public headers stand alone",
    "runtime/base": "the base sees nothing above it",
    "transport": "a transport sees the base and the interface, never a stage or another backend",
    "runtime/collectives": "an algorithm is a pure function of topology values",
    "runtime/cycle": "the loop knows the transport's interface; bindings/core chooses the backend",
    "bindings/include": "installed headers include installed headers only",
    "bindings/c": "this binding is built on the public headers and bindings/core",
    "bindings/torch": "its code is in its wings: tensors, gradients, data, training, accelerator",
    "bindings/torch/tensors": "the lowest wing is built on the public headers and bindings/core",
    "bindings/torch/gradients": "this wing is built on tensors, the public headers and bindings/core",
    "bindings/torch/data": "this wing is built on tensors, the public headers and bindings/core",
    "bindings/torch/training": "this wing is built on tensors, gradients, data, the public headers and bindings/core",
    "bindings/c10d": "this binding is built on the public headers, bindings/core and bindings/torch/tensors",
    "bindings/python": "this binding gives Python what the public headers, bindings/core and bindings/c10d have",
    "examples": "an example sees what a user sees: <kolo/…>",
}
for stage in STAGES:
    WHY.setdefault(stage, "a stage sees earlier stages' value types; order: " + " → ".join(
        name.split("/")[1] for name in STAGES))

# Libraries, the headers that give them away, and the only places that may include them.
LIBRARIES = [
    ("LibTorch", r"(torch|ATen|c10|caffe2)/", ("bindings/torch/", "bindings/c10d/", "bindings/python/",
                                               "examples/", "tests/", "bindings/include/kolo/c10d.h",
                                               "bindings/include/kolo/torch.h", "bindings/include/kolo/torch/")),
    ("pybind11", r"pybind11/", ("bindings/python/",)),
    ("protobuf", r"google/protobuf/|.*\.pb\.h$", ("runtime/negotiation/wire.cc",)),
    ("UCX", r"uc[pst]/", ("transport/ucx/",)),
    ("MPI", r"mpi\.h$", ("runtime/bootstrap/mpi_bootstrap.cc", "tests/", "tools/perf/mpi_engine.cc")),
    ("PMIx", r"pmix", ("runtime/bootstrap/pmix_bootstrap.cc",)),
    ("oneCCL", r"oneapi/ccl", ("tools/perf/oneccl_engine.cc",)),
    ("gloo", r"gloo/", ("tools/perf/gloo_engine.cc",)),
    ("NCCL", r"nccl\.h$", ("runtime/nccl/nccl_library.cc", "tools/perf/nccl_engine.cc")),
    ("hwloc", r"hwloc", ("runtime/topology/",)),
    ("Highway", r"hwy/", ("runtime/device/", "tests/runtime/device/")),
    ("CUDA", r"cuda[A-Z_.]|cuda$|driver_types", ("runtime/device/cuda/", "runtime/nccl/", "tests/gpu/",
                                                        "tests/support/emulated_cuda/", "tools/perf/cuda_gpu.cc")),
    ("spdlog", r"spdlog/", ("runtime/base/log.",)),
    ("CLI11", r"CLI/", ("examples/", "tools/", "tests/")),
    ("GoogleTest", r"g(test|mock)/", ("tests/",)),
]

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT = re.compile(r"//.*$")


def is_code(path):
    return path.endswith((".h", ".cc", ".cu"))


def unit(path):
    """The layer that a path belongs to; for a transport's backend, its folder."""
    parts = path.split("/")
    if parts[0] == "runtime":
        return "/".join(parts[:2])
    if parts[0] == "transport":
        return "/".join(parts[:2]) if len(parts) > 2 else "transport"
    if path.startswith("bindings/torch/"):
        return "/".join(parts[:3]) if len(parts) > 3 else "bindings/torch"
    return "/".join(parts[:2]) if parts[0] == "bindings" else parts[0]


def target_of(delimiter, name):
    """The repository path that an include names, or None for a library's header."""
    if name.startswith("kolo/") and delimiter == "<":
        core = name[5:] in ("error.h", "types.h", "config.h", "work.h", "export.h", "info.h")
        return ("runtime/include/" if core else "bindings/include/") + name
    return name if re.match(r"(runtime|transport|bindings|examples|tools|tests)/", name) else None


def layers(tree):
    for path in filter(is_code, tree.files):
        here = unit(path)
        layer = "transport" if here.startswith("transport") else here
        if layer not in LAYERS:
            yield path, 1, "layers", f"the folder {here} is in no layer; give it one in tools/lint_rules.py"
            continue
        allowed = LAYERS[layer]
        for number, line in enumerate(tree.lines(path), 1):
            match = INCLUDE.match(line)
            target = match and target_of(*match.groups())
            if not target or allowed is None:
                continue
            there = unit(target)
            seen = allowed + [here, "runtime/include"]
            if layer not in PUBLIC and path.startswith(("runtime/", "transport/")):
                seen.append("runtime/base")
            if layer == "transport":
                seen.append("transport")  # a backend sees the interface that it implements
            if there in seen:
                continue
            yield (path, number, "layers", f"{here} may not include {target}: "
                   + WHY.get(layer, "it belongs to a layer above") + "; move what is shared down, or the user up")


def libraries(tree):
    for path in filter(is_code, tree.files):
        for number, line in enumerate(tree.lines(path), 1):
            match = INCLUDE.match(line)
            for name, pattern, places in LIBRARIES if match else ():
                if re.match(pattern, match.group(2)) and not path.startswith(places):
                    yield (path, number, "libraries", f"{name}'s headers belong to {', '.join(places)}; "
                           "reach it through the interface there")


def include_form(tree):
    for path in filter(is_code, tree.files):
        for number, line in enumerate(tree.lines(path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            delimiter, name = match.groups()
            if delimiter == '"' and target_of(delimiter, name) is None and not name.endswith(".pb.h"):
                yield (path, number, "include-form", f'"{name}": our own headers are named by their path '
                       "from the repository's root, installed ones as <kolo/…>, libraries' in <>")


def environment(tree):
    pattern = re.compile(r"\b(secure_)?getenv\s*\(|(?<!/)\benviron\b")  # but /proc/PID/environ
    for path in filter(is_code, tree.files):
        if path == "runtime/base/environment.cc":
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if pattern.search(COMMENT.sub("", line)):
                yield (path, number, "environment", "the environment is read in runtime/base/environment.cc "
                       "alone; make it a field of Config")


def header_form(tree):
    for path in tree.files:
        if not path.endswith(".h"):
            continue
        lines = tree.lines(path)
        if "#pragma once" not in lines:
            yield path, 1, "pragma-once", "add #pragma once below the head comment"
        if not lines or not lines[0].startswith("//"):
            yield path, 1, "head", "begin with a comment: what it is for, who calls it, on which thread"


def length(tree):
    for path in filter(is_code, tree.files):
        count = len(tree.lines(path))
        if count > MAX_LINES:
            yield path, MAX_LINES + 1, "length", f"{count} lines, more than {MAX_LINES}: split it by idea"


def top_level(tree):
    for name in sorted({path.split("/")[0] for path in tree.files} - TOP_LEVEL):
        yield (name, 1, "top-level", "the top level is fixed: move it into a folder that is there, or argue "
               "for it in tools/lint_rules.py")

# A comment that begins so leaves its subject to the reader.
VAGUE_OPENING = re.compile(r"(of|the same)\b", re.I)
# What holds comments, and what only looks as if it did: strings, and numbers with separators.
TOKEN = re.compile(r'''R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\b\d(?:'?[\w.])*'''
                   r"""|'(?:\\.|[^'\\\n])+'|(?P<comment>//[^\n]*|/\*.*?\*/)""", re.S)


def comment_blocks(text):
    """(line, text) of each comment; lines of comments below one another, in one column, are one."""
    above = None  # line and column of the comment before
    for match in TOKEN.finditer(text):
        if match.group("comment") is None:
            continue
        begin = text.rfind("\n", 0, match.start()) + 1
        number, column = text.count("\n", 0, begin) + 1, match.start() - begin
        goes_on = above == (number - 1, column) and not text[begin:match.start()].strip()
        if not goes_on:
            yield number, re.sub(r"^(/\*+|//+[<!]?)\s*", "", match.group("comment"))
        above = (number, column)


def comment_openings(tree):
    for path in tree.files:
        if not path.endswith((".h", ".cc", ".cu", ".inc")):
            continue
        for number, comment in comment_blocks("\n".join(tree.lines(path))):
            match = VAGUE_OPENING.match(comment)
            if match:
                yield (path, number, "comment-opening", f"the comment begins with '{match.group()}': "
                       "begin with the noun that it is about")


MAX_PARAGRAPH = 100  # words
# The pages that tell how kolo works are read from the first line to the last.
MAX_SENTENCE = 20  # words, on average over a page


def paragraphs(lines):
    """(line, text) of each paragraph and list item of a page, without code, tables and headings."""
    begin, text, fenced = 0, [], False
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        is_fence = stripped.startswith("```")
        is_prose = bool(stripped) and not fenced and not is_fence and not stripped.startswith(("|", "#"))
        if text and (not is_prose or re.match(r"([-*]|\d+\.)\s", stripped)):
            yield begin, " ".join(text)
            text = []
        fenced ^= is_fence
        if is_prose:
            begin = begin if text else number
            text.append(stripped)


def words_in(text):
    return sum(1 for word in text.split() if re.search(r"\w", word))


def prose(tree):
    for path in tree.files:
        if not re.fullmatch(r"(docs/.+|README|CONTRIBUTING)\.md", path):
            continue
        words = sentences = 0
        for number, text in paragraphs(tree.lines(path)):
            count = words_in(text)
            words += count
            sentences += sum(1 for part in re.split(r"[.!?][)*\"]*(?:\s|$)", text) if words_in(part))
            if count > MAX_PARAGRAPH:
                yield (path, number, "prose", f"a paragraph of {count} words, more than {MAX_PARAGRAPH}: "
                       "make it a table, a list, or two")
        if path.startswith("docs/architecture") and words > MAX_SENTENCE * sentences:
            yield (path, 1, "prose", f"{words / sentences:.1f} words a sentence on average, more than "
                   f"{MAX_SENTENCE}: one thought a sentence")


RULES = [layers, libraries, include_form, environment, header_form, length, comment_openings, prose, top_level]
