// How a process goes from one world of an elastic job to the next, for kolo.torch.elastic. The
// thread that calls collectives.
#include "bindings/core/regroup.h"
#include "bindings/python/extension/parts.h"

#include <kolo/kolo.h>
#include <kolo/membership.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace kolo::python {
namespace {

std::pair<bool, int> membership_of_rank() {
  const Membership mine = membership();
  return {mine.is_elastic, mine.generation};
}

/// In order, which costs no negotiation: all ranks make the same calls here.
bool newcomers_wait(bool asks) {
  std::int32_t count = asks ? newcomers() : 0;
  if (size() > 1) broadcast_ordered(&count, 1, DataType::kInt32, 0);
  return count > 0;
}

std::optional<std::string> loss_of_world() {
  const auto lost = loss();
  return lost ? std::optional(lost->message) : std::nullopt;
}

}  // namespace

void add_elastic(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  module.def("membership", &membership_of_rank, Unlocked(),
             "Whether the launcher makes new worlds, and the number of this world, from 1; 0: the "
             "others train already.");
  module.def(
      "newcomers", &newcomers, Unlocked(),
      "How many processes wait for the next world, as the launcher says. The first call tells "
      "it that this program goes on when a rank is lost.");
  module.def(
      "newcomers_wait", &newcomers_wait, Unlocked(), py::arg("asks"),
      "Whether processes wait for the next world, as rank 0 says, which asks the launcher or "
      "not; collective.");
  module.def("why_not_elastic", &why_not_elastic, Unlocked(),
             "Why the loss of a rank ends this job, and what helps.");
  module.def("loss", &loss_of_world, Unlocked(),
             "The failure that ended communication, if another rank or its network is lost.");
  module.def("enter_next_world", &enter_next_world, Unlocked(),
             "After shutdown(): begins the next world, with all other living processes.");
}

}  // namespace kolo::python
