// The world by what has started this process, for init_method="kolo://". Main thread.
#include "bindings/core/regroup.h"
#include "bindings/python/extension/parts.h"

#include <kolo/kolo.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kolo::python {
namespace {

std::pair<int, int> begin_world() {
  if (!is_initialized()) init();
  return {rank(), size()};
}

/// "kolo:<random>:<address>:<port>"
std::string own_address() {
  const std::string handle = meeting_handle();
  const std::size_t begin = handle.find(':', handle.find(':') + 1) + 1;
  std::string address = handle.substr(begin, handle.rfind(':') - begin);
  if (address.starts_with('[')) address = address.substr(1, address.size() - 2);
  return address;
}

std::string broadcast(std::string text, int root) {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  broadcast_ordered(&length, 1, DataType::kInt64, root);
  text.resize(static_cast<std::size_t>(length));
  broadcast_ordered(text.data(), length, DataType::kUInt8, root);
  return text;
}

}  // namespace

void add_launcher(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  module.def("begin_world", &begin_world, Unlocked(),
             "Begins the world by what has started this process, if there is none; its rank and "
             "size.");
  module.def("own_address", &own_address, Unlocked(),
             "An address of this host that the others reach.");
  module.def("broadcast_text", &broadcast, Unlocked(), py::arg("text"), py::arg("root"),
             "The text of rank `root` of the world; collective.");
}

}  // namespace kolo::python
