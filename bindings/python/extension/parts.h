// The parts of the extension module kolo._extension, one file each. Called once, when Python
// imports the module, on that thread.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace kolo::python {

/// kolo::Exception becomes kolo.errors.KoloError.
void add_errors(py::module_& module);
/// ProcessGroupKolo and what creates it.
void add_c10d(py::module_& module);
/// The world by what has started this process.
void add_launcher(py::module_& module);

/// The world of ranks: start, queries, process sets.
void add_world(py::module_& module);
/// How a process goes from one world of an elastic job to the next.
void add_elastic(py::module_& module);
/// Collectives on tensors.
void add_tensors(py::module_& module);
/// The reducer of an optimizer's gradients.
void add_gradients(py::module_& module);

}  // namespace kolo::python
