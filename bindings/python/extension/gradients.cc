// GradientReducer, and compression of gradients that is written in Python.
#include "bindings/python/extension/parts.h"

#include <kolo/torch/compression.h>
#include <kolo/torch/distributed_optimizer.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kolo::python {
namespace {

using Tensors = std::vector<torch::Tensor>;
using ParamGroups = std::vector<Tensors>;

std::vector<torch::optim::OptimizerParamGroup> param_groups(const ParamGroups& groups) {
  return {groups.begin(), groups.end()};
}

/// Calls Python from a thread without the interpreter's lock. An exception leaves as its text: what
/// catches it may not have the lock.
template <class Call>
auto call_python(Call&& call) {
  const py::gil_scoped_acquire locked;
  try {
    return call();
  } catch (const py::error_already_set& error) {
    throw std::runtime_error(error.what());
  }
}

/// A Compressor whose three calls are those of an object of Python. Gradients' hooks run without
/// the interpreter's lock.
class PythonCompressor final : public Compressor {
 public:
  explicit PythonCompressor(py::object object) : object_(std::move(object)) {}
  PythonCompressor(const PythonCompressor&) = delete;
  PythonCompressor& operator=(const PythonCompressor&) = delete;
  ~PythonCompressor() override {
    const py::gil_scoped_acquire locked;
    object_ = py::object();
  }

  torch::ScalarType wire_type(torch::ScalarType type) const override {
    return call_python([&] { return object_.attr("wire_type")(type).cast<torch::ScalarType>(); });
  }
  torch::Tensor compress(const std::string& name, const torch::Tensor& gradient) override {
    return call_python(
        [&] { return object_.attr("compress")(name, gradient).cast<torch::Tensor>(); });
  }
  void decompress(const std::string& name, const torch::Tensor& wire,
                  torch::Tensor gradient) override {
    call_python([&] { object_.attr("decompress")(name, wire, gradient); });
  }

 private:
  py::object object_;
};

/// None, "fp16", "bf16", or an object with the calls of a Compressor.
std::shared_ptr<Compressor> compressor_of(const py::object& compression) {
  if (compression.is_none()) return nullptr;
  if (!py::isinstance<py::str>(compression)) return std::make_shared<PythonCompressor>(compression);
  const auto name = compression.cast<std::string>();
  if (name == "fp16") return compression::fp16();
  if (name == "bf16") return compression::bf16();
  throw py::value_error("compression '" + name + "' is not one of kolo's: fp16, bf16");
}

/// Operations in flight may need the interpreter's lock to end.
struct DeleteUnlocked {
  void operator()(GradientReducer* reducer) const {
    const py::gil_scoped_release unlocked;
    delete reducer;
  }
};
using Reducer = std::unique_ptr<GradientReducer, DeleteUnlocked>;

Reducer make_reducer(const ParamGroups& groups, const NamedTensors& named, ReduceOp op,
                     int backward_passes_per_step, double gradient_predivide_factor,
                     const py::object& compression, bool sparse_as_dense,
                     const std::variant<int, ParamGroups>& together, std::uint32_t set) {
  DistributedOptimizerOptions options;
  options.op = op;
  options.backward_passes_per_step = backward_passes_per_step;
  options.gradient_predivide_factor = gradient_predivide_factor;
  options.compression = compressor_of(compression);
  options.sparse_as_dense = sparse_as_dense;
  if (const int* const number = std::get_if<int>(&together)) {
    if (*number != 0) options.groups = *number;
  } else {
    options.groups = std::get<ParamGroups>(together);
  }
  options.process_set = ProcessSet(set);
  const py::gil_scoped_release unlocked;
  return Reducer(new GradientReducer(param_groups(groups), named, options));
}

}  // namespace

void add_gradients(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<GradientReducer, Reducer>(module, "GradientReducer",
                                       "Reduces the gradients of an optimizer while backward runs.")
      .def(py::init(&make_reducer), py::arg("param_groups"), py::arg("named"), py::arg("op"),
           py::arg("backward_passes_per_step"), py::arg("gradient_predivide_factor"),
           py::arg("compression"), py::arg("sparse_as_dense"), py::arg("groups"), py::arg("set"))
      .def(
          "adopt",
          [](GradientReducer& reducer, const ParamGroups& groups) {
            reducer.adopt(param_groups(groups));
          },
          Unlocked(), py::arg("param_groups"))
      .def("synchronize", &GradientReducer::synchronize, Unlocked())
      .def("synchronize_for_step", &GradientReducer::synchronize_for_step, Unlocked())
      .def("skip_next", &GradientReducer::skip_next, Unlocked())
      .def("discard", &GradientReducer::discard, Unlocked(), py::arg("gradients_stay"))
      .def("reduce_loss", &GradientReducer::reduce_loss, Unlocked(), py::arg("loss"))
      .def("leave_world", &GradientReducer::leave_world, Unlocked())
      .def(
          "enter_world",
          [](GradientReducer& reducer, const ParamGroups& groups) {
            reducer.enter_world(param_groups(groups));
          },
          Unlocked(), py::arg("param_groups"));
}

}  // namespace kolo::python
