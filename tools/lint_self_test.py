"""Shows that each rule of tools/lint can fail: a small clean tree, then one violation at a time.

Called by `tools/lint --self-test`, which CTest runs.
"""
import pathlib
import shutil
import tempfile

HEADER = "// What it is for.\n#pragma once\n"
CLEAN = {
    "runtime/base/log.h": HEADER + "\n#include <spdlog/spdlog.h>\n",
    "runtime/base/environment.cc": 'char* home() { return getenv("HOME"); }\n',
    "runtime/include/kolo/work.h": HEADER + "\n#include <kolo/error.h>\n",
    "runtime/negotiation/wire.cc": '#include "wire.pb.h"\n',
    "runtime/fusion/fusion_plan.h": HEADER + '\n#include "runtime/negotiation/controller.h"\n',
    "runtime/cycle/cycle.cc": '#include "transport/transport.h"\n',
    "runtime/bootstrap/store.h": HEADER + '\n#include "runtime/topology/world.h"\n',
    "runtime/bootstrap/mpi_bootstrap.cc": "#include <mpi.h>\n",
    "transport/ucx/ucx_transport.cc": '#include "runtime/base/log.h"\n#include "transport/transport.h"\n\n'
                                      "#include <ucp/api/ucp.h>\n",
    "bindings/core/api.cc": '#include "transport/ucx/ucx_transport.h"\n',
    "bindings/include/kolo/torch.h": HEADER + "\n#include <kolo/kolo.h>\n#include <torch/torch.h>\n",
    # Neither strings nor what goes on from the line above is the beginning of a comment.
    "runtime/cycle/names.cc": 'const char* a = "tcp://of";  // an address\n'
                              "int b = 1'000;               // as many, or twice\n"
                              "                             // the same; of no meaning\n"
                              'const char* c = R"(\n// of\n)";\n',
    "docs/architecture.md": "# How it works\n\n" + "One thing leads to another. " * 20 + "\n\n| " + "a " * 101
                            + "|\n\n```\n" + "a " * 101 + "\n```\n\n- " + "b " * 19 + "\n- " + "b " * 19 + "\n",
    "CHANGELOG.md": "a " * 101 + "\n",
    "examples/mnist.cc": "#include <kolo/torch.h>\n#include <torch/torch.h>\n",
    "tests/cycle_test.cc": '#include "runtime/cycle/cycle.h"\n\n#include <gtest/gtest.h>\n',
    "tools/demo": "",
}

# (file, its text, the rule that must name it, a word that the message must hold)
VIOLATIONS = [
    ("transport/shm/a.cc", '#include "runtime/cycle/cycle.h"\n', "layers", "runtime/cycle/cycle.h"),
    ("transport/shm/a.cc", '#include "transport/ucx/ucx_transport.h"\n', "layers", "another backend"),
    ("transport/a.h", HEADER + "\n#include <kolo/kolo.h>\n", "layers", "kolo.h"),
    ("runtime/base/a.h", HEADER + '\n#include "runtime/topology/world.h"\n', "layers", "base"),
    ("runtime/base/a.h", HEADER + '\n#include "transport/transport.h"\n', "layers", "base"),
    ("runtime/topology/a.cc", '#include "runtime/bootstrap/store.h"\n', "layers", "above"),
    ("runtime/bootstrap/a.cc", '#include "transport/transport.h"\n', "layers", "above"),
    ("runtime/health/a.cc", '#include "runtime/submission/entry.h"\n', "layers", "above"),
    ("runtime/submission/a.cc", '#include "runtime/negotiation/wire.h"\n', "layers", "earlier stages"),
    ("runtime/fusion/a.cc", '#include "runtime/execution/executor.h"\n', "layers", "earlier stages"),
    ("runtime/collectives/a.cc", '#include "transport/tag.h"\n', "layers", "pure"),
    ("runtime/collectives/a.cc", '#include "runtime/fusion/fusion_plan.h"\n', "layers", "pure"),
    ("runtime/execution/a.cc", '#include "runtime/cycle/cycle.h"\n', "layers", "earlier stages"),
    ("runtime/cycle/a.cc", '#include "transport/ucx/ucx_transport.h"\n', "layers", "bindings/core"),
    ("runtime/cycle/a.cc", "#include <kolo/kolo.h>\n", "layers", "kolo/kolo.h"),
    ("runtime/include/kolo/a.h", HEADER + '\n#include "runtime/base/log.h"\n', "layers", "stand alone"),
    ("bindings/include/kolo/a.h", HEADER + '\n#include "runtime/base/log.h"\n', "layers", "installed"),
    ("bindings/torch/tensors/a.cc", '#include "runtime/cycle/cycle.h"\n', "layers", "public headers"),
    ("bindings/torch/a.cc", '#include "bindings/core/api.h"\n', "layers", "wings"),
    ("runtime/exchange/a.cc", '#include "runtime/collectives/schedule.h"\n', "layers", "above"),
    ("runtime/memory/a.cc", '#include "runtime/exchange/exchange.h"\n', "layers", "above"),
    ("examples/a.cc", '#include "runtime/base/log.h"\n', "layers", "user"),
    ("runtime/gpu/a.cc", "int a;\n", "layers", "in no layer"),
    ("bindings/include/kolo/kolo.h", HEADER + "\n#include <torch/torch.h>\n", "libraries", "LibTorch"),
    ("runtime/device/a.cc", "#include <ATen/ATen.h>\n", "libraries", "LibTorch"),
    ("runtime/negotiation/a.cc", '#include "wire.pb.h"\n', "libraries", "protobuf"),
    ("runtime/communicator/a.cc", "#include <ucp/api/ucp.h>\n", "libraries", "UCX"),
    ("runtime/bootstrap/a.cc", "#include <mpi.h>\n", "libraries", "MPI"),
    ("runtime/cycle/a.cc", "#include <spdlog/spdlog.h>\n", "libraries", "spdlog"),
    ("bindings/core/a.cc", "#include <CLI/CLI.hpp>\n", "libraries", "CLI11"),
    ("runtime/cycle/a.cc", "#include <hwloc.h>\n", "libraries", "hwloc"),
    ("transport/a.cc", "#include <hwy/highway.h>\n", "libraries", "Highway"),
    ("tools/a.cc", "#include <gtest/gtest.h>\n", "libraries", "GoogleTest"),
    ("runtime/cycle/a.cc", '#include "cycle.h"\n', "include-form", "cycle.h"),
    ("runtime/cycle/a.cc", 'auto* home = std::getenv("HOME");\n', "environment", "Config"),
    ("tests/a.cc", "extern char** environ;\n", "environment", "Config"),
    ("runtime/cycle/a.h", "// Head.\nint a();\n", "pragma-once", "#pragma once"),
    ("runtime/cycle/a.h", "#pragma once\n", "head", "comment"),
    ("runtime/cycle/a.cc", "int a;\n" * 501, "length", "501"),
    ("runtime/cycle/a.cc", "// Of the loop.\nint a;\n", "comment-opening", "Of"),
    ("runtime/cycle/a.cc", "int a;  ///< the same of b\n", "comment-opening", "the same"),
    ("runtime/cycle/a.cc", "int a;  // one\n// of the other\n", "comment-opening", "of"),
    ("tests/a.cc", "int a; /* Of it. */\n", "comment-opening", "noun"),
    ("docs/architecture.md", "Short. " * 101 + "\n", "prose", "101 words"),
    ("docs/gpu.md", "Short. " * 101 + "\n", "prose", "101 words"),
    ("docs/architecture/a.md", "- " + "Short. " * 60 + "\n  " + "Short. " * 60 + "\n", "prose", "120 words"),
    ("docs/architecture/a.md", "one " * 22 + "end.\n\n" + "Two words.\n\n" + "one " * 60 + "end.\n", "prose",
     "on average"),
    ("src/a.txt", "", "top-level", "fixed"),
    ("runtime/cycle/a.cc", "int  a ;\n", "format", "--fix"),
]


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def run(check):
    """check is tools/lint's; returns the exit status."""
    style = pathlib.Path(__file__).resolve().parent.parent / ".clang-format"
    failures = []
    for number, case in enumerate([None, *VIOLATIONS]):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, CLEAN)
            shutil.copy(style, root / ".clang-format")
            if case:
                write(root, {case[0]: case[1]})
            findings = check(root)[1]
            expected = [(case[0].split("/")[0] if case[2] == "top-level" else case[0], case[2])] if case else []
            if [(path, rule) for path, _, rule, _ in findings] != expected:
                failures.append(f"case {number} {case}: expected {expected}, found {findings}")
            elif case and case[3] not in findings[0][3]:
                failures.append(f"case {number} {case}: no '{case[3]}' in the message: {findings[0][3]}")
    for failure in failures:
        print(failure)
    print(f"lint self test: {len(VIOLATIONS) + 1 - len(failures)} of {len(VIOLATIONS) + 1} cases as expected")
    return 1 if failures else 0
