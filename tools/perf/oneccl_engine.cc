// For a build with oneCCL on host memory: tools/bench makes one from PyPI's wheels. oneCCL brings
// Intel MPI as its transport. With CCL_WORKER_OFFLOAD=0 it works on the caller's thread.
#include "tools/perf/engine.h"

#include <kolo/kolo.h>

#include <oneapi/ccl.hpp>

#include <optional>

namespace kolo::perf {
namespace {

std::optional<ccl::datatype> ccl_type(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return ccl::datatype::float32;
    case DataType::kFloat64:
      return ccl::datatype::float64;
    case DataType::kFloat16:
      return ccl::datatype::float16;
    case DataType::kBFloat16:
      return ccl::datatype::bfloat16;
    case DataType::kInt64:
      return ccl::datatype::int64;
    case DataType::kInt32:
      return ccl::datatype::int32;
    case DataType::kInt16:
      return ccl::datatype::int16;
    case DataType::kInt8:
      return ccl::datatype::int8;
    case DataType::kUInt8:
      return ccl::datatype::uint8;
    case DataType::kBool:
    case DataType::kComplex64:
    case DataType::kComplex128:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<ccl::reduction> ccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ccl::reduction::sum;
    case ReduceOp::kMin:
      return ccl::reduction::min;
    case ReduceOp::kMax:
      return ccl::reduction::max;
    case ReduceOp::kProduct:
      return ccl::reduction::prod;
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:
      return std::nullopt;
  }
  return std::nullopt;
}

/// Rank 0 opens oneCCL's key-value store; kolo carries the store's address to the other ranks.
ccl::shared_ptr_class<ccl::kvs> shared_store() {
  ccl::init();
  ccl::shared_ptr_class<ccl::kvs> store;
  ccl::kvs::address_type address = {};
  if (rank() == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  broadcast(address.data(), {static_cast<std::int64_t>(address.size())}, DataType::kInt8, 0,
            {.name = "perf.oneccl_address"});
  return rank() == 0 ? store : ccl::create_kvs(address);
}

class OneCclEngine final : public Engine {
 public:
  OneCclEngine()
      : store_(shared_store()), world_(ccl::create_communicator(size(), rank(), store_)) {}

  std::string_view name() const override { return "oneccl"; }

  bool supports(const Problem& problem, bool in_place) const override {
    if (problem.collective == Collective::kBarrier) return !in_place;
    if (!ccl_type(problem.type)) return false;
    if (reduces(problem.collective) && !ccl_op(problem.op)) return false;
    switch (problem.collective) {
      case Collective::kAllreduce:
        return true;
      case Collective::kBroadcast:
        return in_place;
      case Collective::kAllgather:
      case Collective::kAlltoall:
      case Collective::kReducescatter:
        return !in_place;
      case Collective::kGather:
      case Collective::kScatter:
      case Collective::kSendrecv:
      case Collective::kBarrier:
        return false;
    }
    return false;
  }

  void prepare(const Problem& problem) override {
    type_ = ccl_type(problem.type).value_or(ccl::datatype::uint8);
    op_ = ccl_op(problem.op).value_or(ccl::reduction::sum);
  }

  void run(const Problem& problem, const std::byte* input, std::byte* output,
           bool /*in_place*/) override {
    const auto count = static_cast<std::size_t>(problem.count);
    switch (problem.collective) {
      case Collective::kAllreduce:
        ccl::allreduce(input, output, count, type_, op_, world_).wait();
        return;
      case Collective::kBroadcast:
        ccl::broadcast(output, count, type_, problem.root, world_).wait();
        return;
      case Collective::kAllgather:
        ccl::allgather(input, output, count, type_, world_).wait();
        return;
      case Collective::kAlltoall:
        ccl::alltoall(input, output, count, type_, world_).wait();
        return;
      case Collective::kReducescatter:
        ccl::reduce_scatter(input, output, count, type_, op_, world_).wait();
        return;
      case Collective::kBarrier:
        ccl::barrier(world_).wait();
        return;
      case Collective::kGather:
      case Collective::kScatter:
      case Collective::kSendrecv:
        return;
    }
  }

 private:
  ccl::shared_ptr_class<ccl::kvs> store_;
  ccl::communicator world_;
  ccl::datatype type_ = ccl::datatype::float32;
  ccl::reduction op_ = ccl::reduction::sum;
};

}  // namespace

Result<std::unique_ptr<Engine>> oneccl_engine() {
  return std::unique_ptr<Engine>(std::make_unique<OneCclEngine>());
}

}  // namespace kolo::perf
