#include "tools/perf/engine.h"

#include "bindings/core/force_algorithm.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <cstring>
#include <stdexcept>

namespace kolo::perf {
namespace {

class KoloEngine final : public Engine {
 public:
  KoloEngine(Submission submission, Gpu* gpu)
      : submission_(gpu != nullptr ? Submission::kNegotiated : submission), gpu_(gpu) {
    if (gpu == nullptr) return;
    options_.stream = gpu->stream();
    reduce_options_.stream = gpu->stream();
    scatter_options_.stream = gpu->stream();
    message_options_.stream = gpu->stream();
  }

  std::string_view name() const override { return "kolo"; }

  bool supports(const Problem& problem, bool in_place) const override {
    if (reduces(problem.collective) && !is_supported(problem.type, problem.op)) return false;
    if (problem.collective == Collective::kReducescatter && problem.op == ReduceOp::kAdasum) {
      return false;
    }
    if (problem.collective == Collective::kSendrecv && size() < 2) return false;
    if (problem.collective == Collective::kBroadcast) return in_place;
    return !in_place || place_in_output(problem, rank()).has_value();
  }

  // One name per distinct operation, so that all its calls but the first use the response cache.
  void prepare(const Problem& problem) override {
    name_ = fmt::format("perf.{}.{}.{}.{}", to_string(problem.collective), to_string(problem.type),
                        to_string(problem.op), problem.count);
    options_.name = name_;
    reduce_options_.name = name_;
    reduce_options_.op = problem.op;
    scatter_options_.name = name_;
    scatter_options_.op = problem.op;
    shape_ = {problem.count};
    whole_shape_ = {problem.count * size()};
  }

  void run(const Problem& problem, const std::byte* input, std::byte* output,
           bool /*in_place*/) override {
    collect(problem, input, output);
    if (gpu_ != nullptr) gpu_->synchronize();
  }

 private:
  void collect(const Problem& problem, const std::byte* input, std::byte* output) {
    const auto allocate = [output](const Shape&) { return static_cast<void*>(output); };
    const DataType type = problem.type;
    if (submission_ == Submission::kInOrder && is_ordered(problem.collective))
      return run_ordered(problem, input, output);
    switch (problem.collective) {
      case Collective::kAllreduce:
        return allreduce(input, output, shape_, type, reduce_options_);
      case Collective::kBroadcast:
        return broadcast(output, shape_, type, problem.root, options_);
      case Collective::kAllgather:
        return allgather(input, shape_, type, allocate, options_);
      case Collective::kAlltoall:
        alltoall(input, whole_shape_, type, {}, allocate, options_);
        return;
      case Collective::kReducescatter:
        return reducescatter(input, whole_shape_, type, allocate, scatter_options_);
      case Collective::kGather:
        return gather(input, shape_, type, problem.root, allocate, options_);
      case Collective::kScatter:
        return scatter(input, whole_shape_, type, problem.root, {}, allocate, options_);
      case Collective::kSendrecv: {
        const auto sent =
            send_async(input, problem.count, type, (rank() + 1) % size(), message_options_);
        const auto received = recv_async(output, problem.count, type,
                                         (rank() + size() - 1) % size(), message_options_);
        synchronize(*received);
        synchronize(*sent);
        if (gpu_ == nullptr) return;
        const Status ordered = received->order(gpu_->stream());
        if (!ordered.ok()) throw std::runtime_error(ordered.error().message);
        return;
      }
      case Collective::kBarrier:
        return barrier({.name = name_});
    }
  }

  static void run_ordered(const Problem& problem, const std::byte* input, std::byte* output) {
    const DataType type = problem.type;
    switch (problem.collective) {
      case Collective::kAllreduce:
        return allreduce_ordered(input, output, problem.count, type, problem.op);
      case Collective::kBroadcast:
        return broadcast_ordered(output, problem.count, type, problem.root);
      case Collective::kAllgather:
        return allgather_ordered(input, output, problem.count, type);
      case Collective::kAlltoall:
        return alltoall_ordered(input, output, problem.count, type);
      case Collective::kReducescatter:
        return reducescatter_ordered(input, output, problem.count, type, problem.op);
      case Collective::kBarrier:
        return barrier_ordered();
      case Collective::kGather:
        return gather_ordered(input, output, problem.count, type, problem.root);
      case Collective::kScatter:
        return scatter_ordered(input, output, problem.count, type, problem.root);
      case Collective::kSendrecv:
        return;
    }
  }

  const Submission submission_;
  Gpu* const gpu_;
  std::string name_;
  CollectiveOptions options_;
  MessageOptions message_options_;
  AllreduceOptions reduce_options_;
  ReducescatterOptions scatter_options_;
  Shape shape_;
  Shape whole_shape_;
};

class ForcedEngine final : public Engine {
 public:
  explicit ForcedEngine(std::string algorithm) : algorithm_(std::move(algorithm)) {}

  std::string_view name() const override { return algorithm_; }
  bool supports(const Problem& problem, bool in_place) const override {
    return in_place && problem.collective == Collective::kAllreduce;
  }
  void prepare(const Problem& /*problem*/) override {}
  void begin_turn() override { force_algorithm(algorithm_); }
  void run(const Problem& problem, const std::byte* input, std::byte* output,
           bool /*in_place*/) override {
    allreduce_ordered(input, output, problem.count, problem.type, problem.op);
  }

 private:
  const std::string algorithm_;
};

class MemcpyEngine final : public Engine {
 public:
  std::string_view name() const override { return "memcpy"; }
  bool supports(const Problem& problem, bool in_place) const override {
    return !in_place && problem.collective == Collective::kAllreduce;
  }
  void prepare(const Problem& /*problem*/) override {}
  void run(const Problem& problem, const std::byte* input, std::byte* output,
           bool /*in_place*/) override {
    std::memcpy(output, input, bytes_of(problem, size()));
  }
};

}  // namespace

bool is_ordered(Collective collective) { return collective != Collective::kSendrecv; }

std::unique_ptr<Engine> kolo_engine(Submission submission, Gpu* gpu) {
  return std::make_unique<KoloEngine>(submission, gpu);
}
std::unique_ptr<Engine> forced_engine(std::string algorithm) {
  return std::make_unique<ForcedEngine>(std::move(algorithm));
}
std::unique_ptr<Engine> memcpy_engine() { return std::make_unique<MemcpyEngine>(); }

Result<std::unique_ptr<Engine>> peer_engine(std::string_view name, Gpu* gpu) {
  if (name == "nccl") return nccl_engine(gpu);
  if (gpu != nullptr) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("--compare {}: it takes host memory, not --device cuda", name)};
  }
  if (name == "mpi") return mpi_engine();
  if (name == "gloo") return gloo_engine();
  if (name == "oneccl") return oneccl_engine();
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--compare {}: it takes mpi, gloo, oneccl and nccl", name)};
}

}  // namespace kolo::perf
