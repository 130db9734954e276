#include "bindings/python/extension/parts.h"

#include <kolo/kolo.h>

#include <exception>
#include <string>

namespace kolo::python {
namespace {

void raise_in_python(const Exception& error) {
  const bool of_arguments = error.code() == ErrorCode::kInvalidArgument;
  const py::object type =
      py::module_::import("kolo.errors").attr(of_arguments ? "KoloArgumentError" : "KoloError");
  const py::object raised = type(error.what(), std::string(to_string(error.code())));
  PyErr_SetObject(type.ptr(), raised.ptr());
}

}  // namespace

// Not for this module alone: calls reach kolo through torch's bindings, too.
void add_errors(py::module_&) {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Exception& error) {
      raise_in_python(error);
    }
  });
}

}  // namespace kolo::python
