// One rule for a call on tensors that is wrong on this rank alone: undefined, sparse, or of a type
// or device that kolo does not take. The call is announced as refused. The work fails on every rank
// with this rank's number and the reason, and no rank waits. Private to bindings/torch; any thread.
#pragma once

#include "bindings/core/refusals.h"

#include <kolo/kolo.h>
#include <kolo/torch/tensor_work.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

/// Nothing for a type that kolo does not take.
std::optional<DataType> type_of(torch::ScalarType type);
/// Why elements of an output cannot be written: some share memory, as after expand(). Empty if none
/// do. Precondition: data_type_of().
std::string overlap_in(const torch::Tensor& output);
/// Throws kInvalidArgument with the text of overlap_in(), if any.
void check_written(const torch::Tensor& output);

/// A call as the other ranks know it, independent of this rank's tensors.
struct TensorCall {
  const char* what;         ///< "allreduce"
  Signature signature;      ///< without type and shape, which come from the tensors
  const std::string& name;  ///< name of the call or of the group
  ProcessSet process_set;
};

template <class Options>
TensorCall call_of(const char* what, OperationKind kind, const Options& options, int root = 0) {
  return {what, {.kind = kind, .root = root}, options.name, options.process_set};
}
template <class Options>
TensorCall reduction_of(const char* what, OperationKind kind, const Options& options) {
  return {what,
          {.kind = kind,
           .op = options.op,
           .prescale = options.prescale,
           .postscale = options.postscale},
          options.name,
          options.process_set};
}

/// Call it in the handler of the exception that stops the call; returns the work of a refused call.
/// Rethrows if the other ranks cannot be told: kolo does not run, or the call has no name and its
/// tensor has no type or shape by which they know it.
TensorWork refuse_caught(const TensorCall& call, const torch::Tensor& tensor);
/// Like the overload above, for the members of a group. `names`: their own names, if any.
std::vector<TensorWork> refuse_caught(const TensorCall& call,
                                      const std::vector<torch::Tensor>& tensors,
                                      const std::vector<std::string>& names = {});

/// Returns the result of `start`, or of refuse_caught() if `start` throws. For one tensor or a
/// group.
template <class Tensors, class Start>
auto start_or_refuse(const TensorCall& call, const Tensors& tensors, Start&& start) {
  try {
    return std::forward<Start>(start)();
  } catch (const std::exception&) {
    return refuse_caught(call, tensors);
  }
}

}  // namespace kolo
