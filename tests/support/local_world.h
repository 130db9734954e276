// LocalWorld: N ranks as N threads of one process, over the loopback transport and a memory store.
// For tests of everything above the transport; fast, and clean under the sanitizers.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/runtime.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test {

struct LocalWorldOptions {
  Environment::Variables variables;            ///< KOLO_ variables of every rank
  std::vector<int> hosts;                      ///< by rank: which one it poses to be on; or empty
  std::vector<std::vector<int>> process_sets;  ///< from the start
  /// A rank's accelerator; null: it has none; an error: it does not open.
  std::function<Result<std::unique_ptr<Accelerator>>(int rank)> accelerator;
  /// The NCCL of all ranks, for KOLO_OPERATIONS=nccl; null: there is none.
  std::shared_ptr<NcclApi> nccl;
  /// For worlds that are not to start: given each rank's error.
  std::function<void(const Error&)> refused;
  /// Wraps a rank's transport, for instance in a FaultyTransport.
  std::function<std::unique_ptr<Transport>(int rank, std::unique_ptr<Transport>)> decorate;
};

/// Starts `size` runtimes, calls body(rank, runtime) on a thread each, and joins them. Runtimes are
/// destroyed by their threads, in whatever order these end.
void run_local_world(int size, const std::function<void(int rank, Runtime& runtime)>& body,
                     const LocalWorldOptions& options = {});

/// The errors of all ranks of a world that is not to start; one that starts fails the test.
std::vector<Error> refusals(int size, LocalWorldOptions options);

/// Submits; a refusal fails the test.
std::shared_ptr<Work> submit(Runtime& runtime, Submission submission);

/// A float32 all-reduce submission over `values`, in place.
Submission allreduce_of(const std::string& name, std::vector<float>& values,
                        ReduceOp op = ReduceOp::kSum);

}  // namespace kolo::test
