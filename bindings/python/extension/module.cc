// The extension module kolo._extension: gives Python what kolo has in C++, and adds nothing.
#include "bindings/python/extension/parts.h"

#include <kolo/kolo.h>

PYBIND11_MODULE(_extension, module) {
  module.doc() = "What kolo has in C++. Import kolo.c10d instead.";
  module.attr("version") = kolo::version();
  kolo::python::add_errors(module);
  kolo::python::add_c10d(module);
  kolo::python::add_launcher(module);
  kolo::python::add_world(module);
  kolo::python::add_elastic(module);
  kolo::python::add_tensors(module);
  kolo::python::add_gradients(module);
}
