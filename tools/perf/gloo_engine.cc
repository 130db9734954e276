// For a build with gloo (Debian: libgloo-dev). Uses the TCP transport, as torch's ProcessGroupGloo
// does. Gloo's threads sleep in epoll while kolo is measured.
#include "tools/perf/engine.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <map>

namespace kolo::perf {
namespace {

/// All ranks' bytes, by rank, through kolo's all-gather.
std::vector<std::vector<char>> gathered(const std::vector<char>& mine, const char* name) {
  std::vector<char> all;
  const auto work =
      allgather_async(mine.data(), {static_cast<std::int64_t>(mine.size())}, DataType::kInt8,
                      [&all](const Shape& shape) {
                        all.resize(static_cast<std::size_t>(element_count(shape)));
                        return static_cast<void*>(all.data());
                      },
                      {.name = name});
  synchronize(*work);
  std::vector<std::vector<char>> parts;
  auto from = all.begin();
  for (const std::int64_t length : work->received_splits()) {
    parts.emplace_back(from, from + length);
    from += length;
  }
  return parts;
}

/// Gloo's full mesh uses its store in one pattern: each rank sets one value and then reads the
/// values of all others. So set() is collective, and all values are there when it returns.
class GatheringStore final : public gloo::rendezvous::Store {
 public:
  void set(const std::string& key, const std::vector<char>& data) override {
    const auto keys = gathered({key.begin(), key.end()}, "perf.gloo_keys");
    const auto values = gathered(data, "perf.gloo_addresses");
    for (std::size_t r = 0; r < keys.size(); ++r) {
      values_[std::string(keys[r].begin(), keys[r].end())] = values[r];
    }
  }
  std::vector<char> get(const std::string& key) override { return values_.at(key); }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) values_.at(key);
  }

 private:
  std::map<std::string, std::vector<char>> values_;
};

using Reduction = void (*)(void*, const void*, const void*, std::size_t);

template <class Element>
Reduction reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &gloo::sum<Element>;
    case ReduceOp::kMin:
      return &gloo::min<Element>;
    case ReduceOp::kMax:
      return &gloo::max<Element>;
    case ReduceOp::kProduct:
      return &gloo::product<Element>;
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:
      return nullptr;
  }
  return nullptr;
}

/// Null if gloo has no such reduction.
Reduction reduction_of(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kFloat32:
      return reduction_of<float>(op);
    case DataType::kFloat64:
      return reduction_of<double>(op);
    case DataType::kFloat16:
      return reduction_of<gloo::float16>(op);
    case DataType::kInt64:
      return reduction_of<std::int64_t>(op);
    case DataType::kInt32:
      return reduction_of<std::int32_t>(op);
    case DataType::kInt8:
      return reduction_of<std::int8_t>(op);
    case DataType::kUInt8:
      return reduction_of<std::uint8_t>(op);
    case DataType::kInt16:
    case DataType::kBFloat16:
    case DataType::kBool:
    case DataType::kComplex64:
    case DataType::kComplex128:
      return nullptr;
  }
  return nullptr;
}

class GlooEngine final : public Engine {
 public:
  GlooEngine() {
    gloo::transport::tcp::attr address;
    if (local_size() == size()) {
      address.hostname = "127.0.0.1";
    } else {
      std::array<char, 256> host = {};
      ::gethostname(host.data(), host.size() - 1);
      address.hostname = host.data();
    }
    auto device = gloo::transport::tcp::CreateDevice(address);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank(), size());
    GatheringStore store;
    context->connectFullMesh(store, device);
    context_ = std::move(context);
  }

  std::string_view name() const override { return "gloo"; }

  bool supports(const Problem& problem, bool in_place) const override {
    switch (problem.collective) {
      case Collective::kAllreduce:
        return is_supported(problem.type, problem.op) &&
               reduction_of(problem.type, problem.op) != nullptr;
      case Collective::kBroadcast:
        return in_place;
      case Collective::kAllgather:
      case Collective::kAlltoall:
      case Collective::kGather:
      case Collective::kScatter:
      case Collective::kBarrier:
        return !in_place;
      case Collective::kReducescatter:  // only in gloo's old interface
      case Collective::kSendrecv:
        return false;
    }
    return false;
  }

  void prepare(const Problem& problem) override {
    reduction_ = reduction_of(problem.type, problem.op);
  }

  // Gloo's buffers are not const, but gloo only reads its inputs.
  void run(const Problem& problem, const std::byte* input, std::byte* output,
           bool in_place) override {
    auto* const from = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(input));
    auto* const to = reinterpret_cast<std::uint8_t*>(output);
    const std::size_t part = static_cast<std::size_t>(problem.count) * size_of(problem.type);
    const std::size_t whole = part * static_cast<std::size_t>(size());
    switch (problem.collective) {
      case Collective::kAllreduce:
        return allreduce(problem, from, to, in_place);
      case Collective::kBroadcast: {
        gloo::BroadcastOptions options(context_);
        options.setOutput(to, part);
        options.setRoot(problem.root);
        return gloo::broadcast(options);
      }
      case Collective::kAllgather: {
        gloo::AllgatherOptions options(context_);
        options.setInput(from, part);
        options.setOutput(to, whole);
        return gloo::allgather(options);
      }
      case Collective::kAlltoall: {
        gloo::AlltoallOptions options(context_);
        options.setInput(from, whole);
        options.setOutput(to, whole);
        return gloo::alltoall(options);
      }
      case Collective::kGather: {
        gloo::GatherOptions options(context_);
        options.setInput(from, part);
        if (rank() == problem.root) options.setOutput(to, whole);
        options.setRoot(problem.root);
        return gloo::gather(options);
      }
      case Collective::kScatter: {
        gloo::ScatterOptions options(context_);
        if (rank() == problem.root) {
          std::vector<std::uint8_t*> parts;
          for (int r = 0; r < size(); ++r)
            parts.push_back(from + static_cast<std::size_t>(r) * part);
          options.setInputs(parts, part);
        }
        options.setOutput(to, part);
        options.setRoot(problem.root);
        return gloo::scatter(options);
      }
      case Collective::kBarrier: {
        gloo::BarrierOptions options(context_);
        return gloo::barrier(options);
      }
      case Collective::kReducescatter:
      case Collective::kSendrecv:
        return;
    }
  }

 private:
  // `Width` is a type of the element's width and only sets count and size; the reduction function
  // knows the element type.
  template <class Width>
  void allreduce_of(std::uint8_t* input, std::uint8_t* output, std::size_t count, bool in_place) {
    gloo::AllreduceOptions options(context_);
    if (!in_place) options.setInput(reinterpret_cast<Width*>(input), count);
    options.setOutput(reinterpret_cast<Width*>(output), count);
    options.setReduceFunction(reduction_);
    gloo::allreduce(options);
  }

  void allreduce(const Problem& problem, std::uint8_t* input, std::uint8_t* output, bool in_place) {
    const auto count = static_cast<std::size_t>(problem.count);
    switch (size_of(problem.type)) {
      case 1:
        return allreduce_of<std::uint8_t>(input, output, count, in_place);
      case 2:
        return allreduce_of<std::uint16_t>(input, output, count, in_place);
      case 4:
        return allreduce_of<std::uint32_t>(input, output, count, in_place);
      case 8:
        return allreduce_of<std::uint64_t>(input, output, count, in_place);
    }
  }

  std::shared_ptr<gloo::Context> context_;
  Reduction reduction_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Engine>> gloo_engine() {
  if (size() < 2) {
    return Error{ErrorCode::kUnsupported, "--compare gloo: it needs two ranks at least"};
  }
  return std::unique_ptr<Engine>(std::make_unique<GlooEngine>());
}

}  // namespace kolo::perf
