// The world of ranks: start and end, queries, process sets, barrier, join, objects as bytes.
#include "bindings/python/extension/ends_by_ctrl_c.h"
#include "bindings/python/extension/parts.h"

#include <kolo/info.h>
#include <kolo/kolo.h>
#include <kolo/timeline.h>
#include <kolo/torch/objects.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo::python {
namespace {

using Ranks = std::vector<int>;

void start(const std::vector<Ranks>& process_sets, std::optional<std::uintptr_t> mpi_comm) {
  InitOptions options;
  options.process_sets = process_sets;
  if (mpi_comm) {
    options.init_method = "mpi://";
    options.mpi_comm = reinterpret_cast<const void*>(*mpi_comm);
  }
  const EndsByCtrlC ends;
  const py::gil_scoped_release unlocked;
  init(options);
}

std::map<std::uint32_t, Ranks> ranks_of_sets() {
  std::map<std::uint32_t, Ranks> found;
  for (const ProcessSet& set : process_sets()) found.emplace(set.id(), set.ranks());
  return found;
}

py::bytes broadcast_content(const std::string& content, const std::string& failure, int root,
                            const std::string& name, std::uint32_t set) {
  std::string bytes;
  {
    const py::gil_scoped_release unlocked;
    bytes = broadcast_bytes({.bytes = content, .failure = failure}, root,
                            {.name = name, .process_set = ProcessSet(set)});
  }
  return py::bytes(bytes);
}

std::vector<py::bytes> allgather_content(const std::string& content, const std::string& failure,
                                         const std::string& name, std::uint32_t set) {
  std::vector<std::string> all;
  {
    const py::gil_scoped_release unlocked;
    all = allgather_bytes({.bytes = content, .failure = failure},
                          {.name = name, .process_set = ProcessSet(set)});
  }
  return {all.begin(), all.end()};
}

}  // namespace

void add_world(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  module.def("init", &start, py::arg("process_sets"), py::arg("mpi_comm"));
  module.def("shutdown", &shutdown, Unlocked());
  module.def(
      "abort", &abort, Unlocked(), py::arg("reason"),
      "Ends the job's communication: calls fail on all ranks, with this rank and the reason.");
  module.def("is_initialized", &is_initialized);
  module.def("rank", &rank);
  module.def("size", &size);
  module.def("local_rank", &local_rank);
  module.def("local_size", &local_size);
  module.def("cross_rank", &cross_rank);
  module.def("cross_size", &cross_size);
  module.def("mpi_built", &mpi_built);
  module.def("cuda_built", &cuda_built);
  module.def("nccl_built", &nccl_built);
  module.def("start_timeline", &start_timeline, Unlocked(), py::arg("path"));
  module.def("stop_timeline", &stop_timeline, Unlocked());
  module.def(
      "rendezvous", [] { return runtime_info().rendezvous; }, "How the ranks have met.");

  module.def(
      "add_process_set", [](const Ranks& ranks) { return add_process_set(ranks).id(); }, Unlocked(),
      py::arg("ranks"));
  module.def(
      "remove_process_set", [](std::uint32_t set) { remove_process_set(ProcessSet(set)); },
      Unlocked(), py::arg("set"));
  module.def("process_sets", &ranks_of_sets, "The ranks of each process set, by its number.");

  module.def(
      "barrier", [](std::uint32_t set) { barrier({.process_set = ProcessSet(set)}); }, Unlocked(),
      py::arg("set"));
  module.def(
      "join", [](std::uint32_t set) { return join(ProcessSet(set)); }, Unlocked(), py::arg("set"));
  module.def("broadcast_bytes", &broadcast_content, py::arg("content"), py::arg("failure"),
             py::arg("root"), py::arg("name"), py::arg("set"),
             "The root's bytes. Where the root has a failure instead, all ranks raise it.");
  module.def("allgather_bytes", &allgather_content, py::arg("content"), py::arg("failure"),
             py::arg("name"), py::arg("set"));
}

}  // namespace kolo::python
