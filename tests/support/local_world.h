// LocalWorld: N ranks as N threads of one process, over the loopback transport and a memory store.
// For tests of everything above the transport; fast, and clean under the sanitizers.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/cycle/runtime.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test {

struct LocalWorldOptions {
  Environment::Variables variables;  ///< KOLO_ variables of every rank
  std::vector<int> hosts;            ///< by rank: the host that it claims to be on; or empty
  std::vector<std::vector<int>> process_sets;  ///< from the start
  /// RuntimeParts::measured_exchange, by rank; empty: constants choose.
  std::shared_ptr<std::vector<MeasuredExchange>> measured_exchange;
  /// A rank's accelerator; null if it has none; an error if it does not open.
  std::function<Result<std::unique_ptr<Accelerator>>(int rank)> accelerator;
  /// The NCCL of all ranks, for KOLO_OPERATIONS=nccl; null if there is none.
  std::shared_ptr<NcclApi> nccl;
  /// For worlds that must not start: called with each rank's error.
  std::function<void(const Error&)> refused;
  /// Wraps a rank's transport, for instance in a FaultyTransport.
  std::function<std::unique_ptr<Transport>(int rank, std::unique_ptr<Transport>)> decorate;
};

/// Starts `size` runtimes, calls body(rank, runtime) on a thread each, and joins the threads. Each
/// thread destroys its runtime; the order is that in which the threads end.
void run_local_world(int size, const std::function<void(int rank, Runtime& runtime)>& body,
                     const LocalWorldOptions& options = {});

/// The errors of all ranks of a world that must not start; a start fails the test.
std::vector<Error> refusals(int size, LocalWorldOptions options);

/// Submits; a refusal fails the test.
std::shared_ptr<Work> submit(Runtime& runtime, Submission submission);

/// A float32 all-reduce submission over `values`, in place.
Submission allreduce_of(const std::string& name, std::vector<float>& values,
                        ReduceOp op = ReduceOp::kSum);

}  // namespace kolo::test
