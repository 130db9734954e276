#include "bindings/torch/tensors/tensor_refusal.h"

#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <optional>

namespace kolo {
namespace {

/// Nothing if the tensor has no type or no shape.
std::optional<Signature> signature_of(Signature signature, const torch::Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  const std::optional<DataType> type = type_of(tensor.scalar_type());
  if (!type) return std::nullopt;
  signature.type = *type;
  signature.shape = shape_of(tensor);
  return signature;
}

/// For a call without a name: adds the kind of call to the message. The other ranks are not told.
[[noreturn]] void rethrow_unnamed(const TensorCall& call, const std::exception_ptr& failure) {
  count_failed_unnamed(call.signature.kind, call.process_set);
  try {
    std::rethrow_exception(failure);
  } catch (const Exception& error) {
    raise(error.code(), std::string(call.what) + ": " + error.what());
  }
}

RefusedCall refused(const TensorCall& call, const torch::Tensor& tensor, std::string name,
                    const std::exception_ptr& failure) {
  const std::optional<Signature> signature = signature_of(call.signature, tensor);
  if (!signature && name.empty()) rethrow_unnamed(call, failure);
  return {std::move(name), signature.value_or(call.signature)};
}

std::vector<TensorWork> submit(const TensorCall& call, std::vector<RefusedCall> calls,
                               const std::string& group, const std::exception_ptr& failure) {
  const std::string why = failure_of([&] { std::rethrow_exception(failure); });
  std::vector<TensorWork> works;
  for (auto& work : kolo::refuse_caught(std::move(calls), why, group, call.process_set))
    works.emplace_back(TensorWorkParts{.work = std::move(work), .result = {}});
  return works;
}

}  // namespace

std::string overlap_in(const torch::Tensor& output) {
  if (at::has_internal_overlap(output) != at::MemOverlap::Yes) return {};
  return fmt::format(
      "elements of an output of sizes [{}] and strides [{}] share memory, as after expand(); give "
      "a copy of it (clone())",
      fmt::join(output.sizes(), ", "), fmt::join(output.strides(), ", "));
}

void check_written(const torch::Tensor& output) {
  if (std::string why = overlap_in(output); !why.empty())
    raise(ErrorCode::kInvalidArgument, std::move(why));
}

TensorWork refuse_caught(const TensorCall& call, const torch::Tensor& tensor) {
  const std::exception_ptr failure = std::current_exception();
  return std::move(submit(call, {refused(call, tensor, call.name, failure)}, "", failure).front());
}

std::vector<TensorWork> refuse_caught(const TensorCall& call,
                                      const std::vector<torch::Tensor>& tensors,
                                      const std::vector<std::string>& names) {
  const std::exception_ptr failure = std::current_exception();
  std::vector<RefusedCall> calls;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::string name;  // formed as the core forms the names of a group
    if (!call.name.empty()) {
      const bool has_own = i < names.size() && !names[i].empty();
      name = has_own ? names[i] : call.name + "/" + std::to_string(i);
    }
    calls.push_back(refused(call, tensors[i], std::move(name), failure));
  }
  return submit(call, std::move(calls), call.name, failure);
}

}  // namespace kolo
