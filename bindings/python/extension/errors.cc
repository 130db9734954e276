// kolo's exceptions in Python. From pybind11's functions they come as they are. Through torch's
// other ways, as out of backward(), they come as HostError, which torch turns into Python's.
#include "bindings/core/host_exceptions.h"
#include "bindings/python/extension/parts.h"

#include <kolo/kolo.h>

#include <torch/csrc/Exceptions.h>

#include <exception>
#include <string>

namespace kolo::python {
namespace {

/// The class of Python whose instances have this code; a borrowed reference. Needs the
/// interpreter's lock.
PyObject* class_of(ErrorCode code) {
  const py::object found =
      py::module_::import("kolo.errors").attr("class_of")(std::string(to_string(code)));
  return found.ptr();  // kolo.errors keeps it
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
