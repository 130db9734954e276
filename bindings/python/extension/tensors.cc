// Collectives on tensors, as works and for autograd.
#include "bindings/c10d/interruption.h"
#include "bindings/python/extension/parts.h"

#include <kolo/torch/autograd_functions.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/functions.h>
#include <kolo/torch/row_functions.h>
#include <kolo/torch/sync_batch_norm.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo::python {
namespace {

using Unlocked = py::call_guard<py::gil_scoped_release>;
using Tensors = std::vector<torch::Tensor>;
using Splits = std::vector<std::int64_t>;

/// Waits for the result. Python's handlers of signals run meanwhile, and what they raise ends the
/// wait.
template <class AnyWork>
torch::Tensor wait_for(AnyWork& work) {
  c10d_binding::wait_interruptibly([&](auto moment) { return work.wait_until(moment); },
                                   std::chrono::steady_clock::time_point::max());
  return work.wait();
}

/// Adds a function of a tensor, or of several, that reduces.
template <class Input, class Options, class Call>
void add_reduction(py::module_& module, const char* called, const Call& call) {
  module.def(
      called,
      [call](const Input& input, ReduceOp op, std::string name, double prescale, double postscale,
             std::uint32_t set) {
        return call(input, Options{.op = op,
                                   .name = std::move(name),
                                   .prescale = prescale,
                                   .postscale = postscale,
                                   .process_set = ProcessSet(set)});
      },
      Unlocked(), py::arg("input"), py::arg("op"), py::arg("name"), py::arg("prescale"),
      py::arg("postscale"), py::arg("set"));
}

/// Adds a function of a tensor, or of several, that takes no more than a name.
template <class Input, class Call>
void add_gather(py::module_& module, const char* called, const Call& call) {
  module.def(
      called,
      [call](const Input& input, std::string name, std::uint32_t set) {
        return call(
            input, TensorAllgatherOptions{.name = std::move(name), .process_set = ProcessSet(set)});
      },
      Unlocked(), py::arg("input"), py::arg("name"), py::arg("set"));
}

template <class Call>
void add_broadcast(py::module_& module, const char* called, const Call& call) {
  module.def(
      called,
      [call](const torch::Tensor& tensor, int root, std::string name, std::uint32_t set) {
        return call(
            tensor, root,
            TensorBroadcastOptions{.name = std::move(name), .process_set = ProcessSet(set)});
      },
      Unlocked(), py::arg("tensor"), py::arg("root"), py::arg("name"), py::arg("set"));
}

void add_works(py::module_& module) {
  using torch::Tensor;
  using Allreduce = TensorAllreduceOptions;
  using Reducescatter = TensorReducescatterOptions;
  add_reduction<Tensor, Allreduce>(module, "allreduce_async", [](const auto& input, const auto& o) {
    return allreduce_async(input, o);
  });
  add_reduction<Tensor, Allreduce>(
      module, "allreduce_async_",
      [](const auto& input, const auto& o) { return allreduce_async_(input, o); });
  add_reduction<Tensors, Allreduce>(
      module, "grouped_allreduce_async",
      [](const auto& input, const auto& o) { return grouped_allreduce_async(input, o); });
  add_reduction<Tensors, Allreduce>(
      module, "grouped_allreduce_async_",
      [](const auto& input, const auto& o) { return grouped_allreduce_async_(input, o); });
  add_reduction<Tensor, Allreduce>(
      module, "sparse_allreduce_async",
      [](const auto& input, const auto& o) { return sparse_allreduce_async(input, o); });
  add_reduction<Tensor, Reducescatter>(
      module, "reducescatter_async",
      [](const auto& input, const auto& o) { return reducescatter_async(input, o); });
  add_reduction<Tensors, Reducescatter>(
      module, "grouped_reducescatter_async",
      [](const auto& input, const auto& o) { return grouped_reducescatter_async(input, o); });
  add_gather<Tensor>(module, "allgather_async",
                     [](const auto& input, const auto& o) { return allgather_async(input, o); });
  add_gather<Tensors>(module, "grouped_allgather_async", [](const auto& input, const auto& o) {
    return grouped_allgather_async(input, o);
  });
  add_broadcast(module, "broadcast_async", [](const auto& tensor, int root, const auto& o) {
    return broadcast_async(tensor, root, o);
  });
  add_broadcast(module, "broadcast_async_", [](const auto& tensor, int root, const auto& o) {
    return broadcast_async_(tensor, root, o);
  });
  module.def(
      "alltoall_async",
      [](const Tensor& tensor, const Splits& splits, std::string name, std::uint32_t set) {
        return alltoall_async(tensor, splits,
                              {.name = std::move(name), .process_set = ProcessSet(set)});
      },
      Unlocked(), py::arg("tensor"), py::arg("splits"), py::arg("name"), py::arg("set"));
}

// They block, and autograd goes through them.
void add_differentiable(py::module_& module) {
  using torch::Tensor;
  add_reduction<Tensor, TensorAllreduceOptions>(
      module, "differentiable_allreduce",
      [](const auto& input, const auto& o) { return autograd::allreduce(input, o); });
  add_reduction<Tensor, TensorReducescatterOptions>(
      module, "differentiable_reducescatter",
      [](const auto& input, const auto& o) { return autograd::reducescatter(input, o); });
  add_gather<Tensor>(module, "differentiable_allgather", [](const auto& input, const auto& o) {
    return autograd::allgather(input, o);
  });
  add_broadcast(module, "differentiable_broadcast",
                [](const auto& tensor, int root, const auto& o) {
                  return autograd::broadcast(tensor, root, o);
                });
}

/// The module of C++ does the work, with the tensors of the module of Python.
torch::Tensor sync_batch_norm(const torch::Tensor& input,
                              const std::optional<torch::Tensor>& weight,
                              const std::optional<torch::Tensor>& bias,
                              const std::optional<torch::Tensor>& running_mean,
                              const std::optional<torch::Tensor>& running_var,
                              const std::optional<torch::Tensor>& batches, std::int64_t features,
                              double eps, std::optional<double> momentum, bool training,
                              std::uint32_t set) {
  SyncBatchNormImpl norm(torch::nn::BatchNormOptions(features)
                             .eps(eps)
                             .momentum(momentum)
                             .affine(false)
                             .track_running_stats(running_mean.has_value()),
                         ProcessSet(set));
  norm.train(training);
  norm.weight = weight.value_or(torch::Tensor());
  norm.bias = bias.value_or(torch::Tensor());
  norm.running_mean = running_mean.value_or(torch::Tensor());
  norm.running_var = running_var.value_or(torch::Tensor());
  norm.num_batches_tracked = batches.value_or(torch::Tensor());
  return norm.forward(input);
}

}  // namespace

void add_tensors(py::module_& module) {
  py::enum_<ReduceOp>(module, "ReduceOp", "How the ranks' elements are combined.")
      .value("Sum", ReduceOp::kSum)
      .value("Average", ReduceOp::kAverage)
      .value("Min", ReduceOp::kMin)
      .value("Max", ReduceOp::kMax)
      .value("Product", ReduceOp::kProduct)
      .value("Adasum", ReduceOp::kAdasum);
  py::class_<TensorWork>(module, "TensorWork", "An operation in flight on a tensor.")
      .def("done", &TensorWork::done)
      .def("wait", &wait_for<TensorWork>, Unlocked())
      .def("received_splits", &TensorWork::received_splits);
  py::class_<SparseWork>(module, "SparseWork", "A sparse all-reduce in flight.")
      .def("done", &SparseWork::done)
      .def("wait", &wait_for<SparseWork>, Unlocked());
  add_works(module);
  add_differentiable(module);
  module.def(
      "broadcast_parameters",
      [](const NamedTensors& tensors, int root) { broadcast_parameters(tensors, root); },
      Unlocked(), py::arg("tensors"), py::arg("root"),
      "Overwrites each tensor in place with the root's.");
  module.def("sync_batch_norm", &sync_batch_norm, Unlocked(), py::arg("input"), py::arg("weight"),
             py::arg("bias"), py::arg("running_mean"), py::arg("running_var"), py::arg("batches"),
             py::arg("features"), py::arg("eps"), py::arg("momentum"), py::arg("training"),
             py::arg("set"));
}

}  // namespace kolo::python
