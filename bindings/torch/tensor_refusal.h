// The one rule for a call on tensors that is wrong on this rank alone (undefined, sparse, of a type
// or device that kolo does not take): it is announced as refused, so the work fails on every rank,
// with this one's number and the reason, and nobody waits. Private to bindings/torch; any thread.
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
/// does. Precondition: data_type_of().
std::string overlap_in(const torch::Tensor& output);
/// Throws kInvalidArgument for overlap_in().
void check_written(const torch::Tensor& output);

/// A call as the other ranks know it, whatever this rank's tensors are.
struct TensorCall {
  const char* what;         ///< "allreduce"
  Signature signature;      ///< without type and shape, which the tensors tell
  const std::string& name;  ///< of the call or of the group
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

/// To be called in the handler of what keeps this rank from making the call: the work of a call
/// that is refused. Throws where others cannot be told: kolo does not run, or the call has no name
/// and its tensor no type or shape by which the other ranks know it.
TensorWork refuse_caught(const TensorCall& call, const torch::Tensor& tensor);
/// The same of the members of a group. `names` are their own, where they have some.
std::vector<TensorWork> refuse_caught(const TensorCall& call,
                                      const std::vector<torch::Tensor>& tensors,
                                      const std::vector<std::string>& names = {});

/// What `start` returns, or refuse_caught() of what it throws; of a tensor or of a group's.
template <class Tensors, class Start>
auto start_or_refuse(const TensorCall& call, const Tensors& tensors, Start&& start) {
  try {
    return std::forward<Start>(start)();
  } catch (const std::exception&) {
    return refuse_caught(call, tensors);
  }
}

}  // namespace kolo
