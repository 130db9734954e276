#include "bindings/python/extension/ends_by_ctrl_c.h"

#include <torch/csrc/utils/pybind.h>

namespace kolo::python {

EndsByCtrlC::EndsByCtrlC() {
  const py::module_ threads = py::module_::import("threading");
  const py::module_ signals = py::module_::import("signal");
  if (!threads.attr("current_thread")().is(threads.attr("main_thread")()) ||
      !signals.attr("getsignal")(SIGINT).is(signals.attr("default_int_handler")))
    return;
  struct sigaction ending = {};
  ending.sa_handler = SIG_DFL;
  is_set_ = ::sigaction(SIGINT, &ending, &before_) == 0;
}

EndsByCtrlC::~EndsByCtrlC() {
  if (is_set_) ::sigaction(SIGINT, &before_, nullptr);
}

}  // namespace kolo::python
