// Who carries out a collective: kolo itself, or a library that it is compared with. The sweep makes
// them after kolo::init() and calls them on the main thread, every rank in the same order. What an
// engine's library throws or aborts on is left to it.
#pragma once

#include "tools/perf/gpu.h"
#include "tools/perf/problem.h"

#include <kolo/error.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::perf {

enum class ApiDoor { kOrdered, kNamed };

class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string_view name() const = 0;
  /// Whether it has the operation at all, on this type. The same on every rank.
  virtual bool supports(const Problem& problem, bool in_place) const = 0;
  /// Untimed, before the operations on one problem.
  virtual void prepare(const Problem& problem) = 0;
  /// The collective, blocking; `problem` is the prepared one. In place, `input` is where
  /// place_in_output() says. Buffers that a rank does not have may be null.
  virtual void run(const Problem& problem, const std::byte* input, std::byte* output,
                   bool in_place) = 0;
};

/// Whether kolo's ordered door has it; all else is named.
bool is_ordered(Collective collective);
/// kolo through its public interface; with a GPU by the named door alone, and done when the GPU is.
std::unique_ptr<Engine> kolo_engine(ApiDoor door, Gpu* gpu);
/// Each rank copies the operation's bytes from one buffer into another at the same time: the limit
/// that the memory sets. It is no collective and its result is not verified.
std::unique_ptr<Engine> memcpy_engine();
/// The MPI that kolo is linked with and has initialised. kUnsupported without one.
Result<std::unique_ptr<Engine>> mpi_engine();
/// Gloo over TCP, on loopback where all ranks share a host. Collective. kUnsupported without it.
Result<std::unique_ptr<Engine>> gloo_engine();

/// oneCCL on host memory. Collective. kUnsupported without it.
Result<std::unique_ptr<Engine>> oneccl_engine();

/// NCCL's all-reduce. Collective. kUnsupported without it, or without a GPU.
Result<std::unique_ptr<Engine>> nccl_engine(Gpu* gpu);

/// "mpi", "gloo", "oneccl" or "nccl", as --compare names them; those on host memory take no GPU.
Result<std::unique_ptr<Engine>> peer_engine(std::string_view name, Gpu* gpu);

}  // namespace kolo::perf
