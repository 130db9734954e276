// kolo's backend of torch.distributed. torch's own bindings of c10d::Backend carry its calls.
#include "bindings/c10d/interruption.h"
#include "bindings/c10d/work.h"
#include "bindings/python/extension/ends_by_ctrl_c.h"
#include "bindings/python/extension/parts.h"

#include <kolo/c10d.h>
#include <kolo/kolo.h>

#include <pybind11/chrono.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace kolo::python {

/// Holds a group for Python. A group waits for its callbacks before it is destroyed, and they need
/// the interpreter's lock.
template <class T>
class Holder {
 public:
  Holder() = default;
  Holder(c10::intrusive_ptr<T> held)
      : held_(std::move(held)) {}  // NOLINT(google-explicit-constructor)
  explicit Holder(T* held) : held_(c10::intrusive_ptr<T>::unsafe_steal_from_new(held)) {}
  Holder(const Holder&) = default;
  Holder(Holder&&) noexcept = default;
  Holder& operator=(const Holder&) = default;
  Holder& operator=(Holder&&) noexcept = default;
  ~Holder() {
    if (!held_ || PyGILState_Check() == 0) return;
    const py::gil_scoped_release unlocked;
    held_.reset();
  }
  T* get() const { return held_.get(); }
  T& operator*() const { return *held_; }
  T* operator->() const { return held_.get(); }

 private:
  c10::intrusive_ptr<T> held_;
};

}  // namespace kolo::python

PYBIND11_DECLARE_HOLDER_TYPE(T, kolo::python::Holder<T>, true)

namespace kolo::python {
namespace {

using Group = Holder<ProcessGroupKolo>;

// Handlers of signals run on the main thread; elsewhere this does nothing.
void run_signal_handlers() {
  const py::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void run_without_interpreter(const std::function<void()>& call) {
  std::optional<py::gil_scoped_release> unlocked;
  if (PyGILState_Check() != 0) unlocked.emplace();
  call();
}

Group create(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
             std::vector<std::int64_t> global_ranks, std::chrono::milliseconds timeout,
             std::optional<int> device) {
  std::optional<EndsByCtrlC> ends;
  if (!is_initialized()) ends.emplace();
  const py::gil_scoped_release unlocked;
  return ProcessGroupKolo::create({.store = std::move(store),
                                   .rank = rank,
                                   .size = size,
                                   .global_ranks = std::move(global_ranks),
                                   .timeout = timeout,
                                   .device = device});
}

Group create_without_ranks() {
  auto options = c10::make_intrusive<c10d::Backend::Options>("kolo");
  options->enable_reconfigure = true;
  return c10::make_intrusive<ProcessGroupKolo>(options);
}

}  // namespace

void add_c10d(py::module_& module) {
  py::module_::import("torch.distributed");  // binds the base class
  py::class_<ProcessGroupKolo, Group, c10d::Backend>(module, "ProcessGroupKolo",
                                                     "kolo as a backend of torch.distributed.")
      .def(
          "perform_nocolor_split", [](ProcessGroupKolo&, const py::object&) {},
          "A subgroup is made by its members alone, so others have nothing to do.",
          py::arg("device"));
  module.def("create_group", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("global_ranks"), py::arg("timeout"), py::arg("device"),
             "The backend of a group: the world of its ranks, or a process set of the world that "
             "is there.");
  module.def("create_group_without_ranks", &create_without_ranks,
             "The backend of a group that waits for reconfigure().");
  module.def(
      "end_with_interpreter",
      [] {
        c10d_binding::set_host_ends();
        shutdown();
        c10d_binding::wait_for_user_code();
      },
      py::call_guard<py::gil_scoped_release>(),
      "The end of the world, and of all threads that would call Python.");
  c10d_binding::set_interruption_check(&run_signal_handlers);
  c10d_binding::set_unlocked(&run_without_interpreter);
}

}  // namespace kolo::python
