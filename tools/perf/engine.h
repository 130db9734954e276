// Engine: what carries out a collective, kolo itself or a library that it is compared with. The
// sweep makes the engines after kolo::init() and calls them on the main thread, in the same order
// on every rank. An engine lets its library throw or abort.
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

enum class Submission { kInOrder, kNegotiated };

class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string_view name() const = 0;
  /// Whether the engine has this operation for this type at all. The same on every rank.
  virtual bool supports(const Problem& problem, bool in_place) const = 0;
  /// Called before the operations of one problem; not timed.
  virtual void prepare(const Problem& problem) = 0;
  /// Called before operations in a row; not timed.
  virtual void begin_turn() {}
  /// Runs the collective and blocks; `problem` is the prepared one. In place, `input` is where
  /// place_in_output() says. Buffers that a rank does not have may be null.
  virtual void run(const Problem& problem, const std::byte* input, std::byte* output,
                   bool in_place) = 0;
};

/// Whether kolo's in-order submission has this collective; the others need negotiated submission.
bool is_ordered(Collective collective);
/// kolo through its public interface. With a GPU it uses negotiated submission only, and an
/// operation is done when the GPU has finished it.
std::unique_ptr<Engine> kolo_engine(Submission submission, Gpu* gpu);
/// kolo's all-reduce in place as with this KOLO_ALGORITHM; empty: as kolo chooses. Another engine
/// of kolo goes the same way until its turn begins.
std::unique_ptr<Engine> forced_engine(std::string algorithm);
/// Each rank copies the operation's bytes from one buffer to another at the same time. The result
/// shows the limit that the memory sets. This is no collective, and its result is not verified.
std::unique_ptr<Engine> memcpy_engine();
/// Initialises MPI as most programs do, for one thread. Call it before kolo::init(), which would
/// ask for threads and so slow small calls of Open MPI down by a tenth and more. Nothing in a build
/// without MPI.
void begin_mpi();
/// The MPI that kolo is linked with. kUnsupported in a build without MPI.
Result<std::unique_ptr<Engine>> mpi_engine();
/// Gloo over TCP, on loopback if all ranks share a host. Collective. kUnsupported in a build
/// without it.
Result<std::unique_ptr<Engine>> gloo_engine();

/// oneCCL on host memory. Collective. kUnsupported in a build without it.
Result<std::unique_ptr<Engine>> oneccl_engine();

/// NCCL's all-reduce. Collective. kUnsupported in a build without it, or without a GPU.
Result<std::unique_ptr<Engine>> nccl_engine(Gpu* gpu);

/// `name` is "mpi", "gloo", "oneccl" or "nccl", as in --compare. Engines on host memory take no
/// GPU.
Result<std::unique_ptr<Engine>> peer_engine(std::string_view name, Gpu* gpu);

}  // namespace kolo::perf
