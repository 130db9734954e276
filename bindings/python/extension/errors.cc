// kolo's exceptions in Python. From pybind11's functions they come as they are. Through torch's
// other ways, as out of backward(), they come as HostError, which torch turns into Python's.
#include "bindings/core/host_exceptions.h"
#include "bindings/python/extension/parts.h"

#include <kolo/kolo.h>

#include <torch/csrc/Exceptions.h>

#include <array>
#include <cstddef>
#include <exception>
#include <string>

namespace kolo::python {
namespace {

/// The class of Python whose instances have a code, by code; kolo.errors keeps them. All are made
/// at the import: Ctrl-C may raise KeyboardInterrupt in any code of Python, and what a translator
/// of exceptions throws ends the process.
std::array<PyObject*, static_cast<std::size_t>(ErrorCode::kInternal) + 1> classes = {};

/// A borrowed reference.
PyObject* class_of(ErrorCode code) { return classes.at(static_cast<std::size_t>(code)); }

void make_classes() {
  const py::object make = py::module_::import("kolo.errors").attr("class_of");
  for (std::size_t code = 0; code < classes.size(); ++code)
    classes.at(code) = make(std::string(to_string(static_cast<ErrorCode>(code)))).ptr();
}

/// A kolo::Exception that torch's C++ carries. It holds nothing of Python, so any thread may throw
/// and drop it. Torch makes Python's exception of the type and the text where it returns to Python.
class HostError final : public torch::PyTorchError {
 public:
  explicit HostError(const Exception& error) : PyTorchError(error.what()), code_(error.code()) {}
  PyObject* python_type() override { return class_of(code_); }

 private:
  ErrorCode code_;
};

void throw_host_error(const Exception& error) { throw HostError(error); }

}  // namespace

// Not for this module alone: calls reach kolo through torch's bindings, too.
void add_errors(py::module_&) {
  make_classes();
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Exception& error) {
      PyErr_SetString(class_of(error.code()), error.what());
    } catch (HostError& error) {
      PyErr_SetString(error.python_type(), error.what());
    }
  });
  set_host_exceptions(&throw_host_error);
}

}  // namespace kolo::python
