#include "tests/support/fake_nccl.h"

#include "runtime/base/check.h"
#include "runtime/device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

struct ncclComm {
  int rank = 0;
  std::uint64_t clique = 0;
  std::size_t given = 0;  ///< number of all-reduces
  /// Operations that are not known to be done. Without devices they wait until they are done, with
  /// devices until somebody asks.
  std::vector<std::shared_ptr<kolo::test::FakeNccl::Exchange>> in_progress;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
  kolo::NcclResult state = kolo::NcclResult::kInProgress;
};

namespace kolo::test {
namespace {

DataType data_type(NcclType type) {
  switch (type) {
    case NcclType::kInt8:
      return DataType::kInt8;
    case NcclType::kUInt8:
      return DataType::kUInt8;
    case NcclType::kInt32:
      return DataType::kInt32;
    case NcclType::kInt64:
      return DataType::kInt64;
    case NcclType::kFloat16:
      return DataType::kFloat16;
    case NcclType::kFloat32:
      return DataType::kFloat32;
    case NcclType::kFloat64:
      return DataType::kFloat64;
    case NcclType::kBFloat16:
      break;
  }
  return DataType::kBFloat16;
}

ReduceOp reduce_op(NcclOp op) {
  switch (op) {
    case NcclOp::kSum:
      return ReduceOp::kSum;
    case NcclOp::kProduct:
      return ReduceOp::kProduct;
    case NcclOp::kMax:
      return ReduceOp::kMax;
    case NcclOp::kMin:
      break;
  }
  return ReduceOp::kMin;
}

}  // namespace

FakeNccl::FakeNccl(int version, Devices devices)
    : version_(version), devices_(std::move(devices)) {}

FakeNccl::~FakeNccl() { EXPECT_EQ(handles_.size(), 0U) << "NCCL communicators that nobody freed"; }

void FakeNccl::fail(int rank, std::string_view call, NcclResult result, std::string text) {
  const std::lock_guard lock(mutex_);
  failures_[{rank, std::string(call)}] = {result, std::move(text)};
}

void FakeNccl::hang() {
  const std::lock_guard lock(mutex_);
  hangs_ = true;
}

std::vector<FakeNccl::Call> FakeNccl::calls(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto it = calls_.find(rank);
  return it == calls_.end() ? std::vector<Call>() : it->second;
}

int FakeNccl::count(int rank, std::string_view call) const {
  const std::vector<Call> all = calls(rank);
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [&](const Call& made) { return made.name == call; }));
}

std::size_t FakeNccl::alive() const {
  const std::lock_guard lock(mutex_);
  return handles_.size();
}

void FakeNccl::record(int rank, Call call) { calls_[rank].push_back(std::move(call)); }

NcclResult FakeNccl::result_of(int rank, std::string_view call) {
  const auto it = failures_.find({rank, std::string(call)});
  if (it == failures_.end()) return NcclResult::kSuccess;
  last_error_ = it->second.text;
  return it->second.result;
}

NcclResult FakeNccl::get_unique_id(NcclUniqueId& id) {
  const std::lock_guard lock(mutex_);
  id = {};
  std::memcpy(id.data(), &next_id_, sizeof next_id_);
  ++next_id_;
  return result_of(0, "ncclGetUniqueId");
}

NcclResult FakeNccl::init_rank(NcclHandle& handle, int size, const NcclUniqueId& id, int rank,
                               int /*ordinal*/) {
  const std::lock_guard lock(mutex_);
  record(rank, {"init"});
  const NcclResult result = result_of(rank, "ncclCommInitRankConfig");
  if (result != NcclResult::kSuccess) return result;
  std::uint64_t number = 0;
  std::memcpy(&number, id.data(), sizeof number);
  Clique& clique = cliques_[number];
  clique.size = size;
  clique.members.resize(static_cast<std::size_t>(size));
  handles_.push_back(std::make_unique<::ncclComm>());
  handle = handles_.back().get();
  handle->rank = rank;
  handle->clique = number;
  EXPECT_EQ(clique.members[static_cast<std::size_t>(rank)], nullptr) << "rank " << rank << " twice";
  clique.members[static_cast<std::size_t>(rank)] = handle;
  const bool complete = std::none_of(clique.members.begin(), clique.members.end(),
                                     [](NcclHandle member) { return member == nullptr; });
  if (complete)
    for (const NcclHandle member : clique.members) member->state = NcclResult::kSuccess;
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::async_error(NcclHandle handle, NcclResult& state) {
  const std::lock_guard lock(mutex_);
  const auto given = [&] {
    const auto& made = calls_[handle->rank];
    return std::any_of(made.begin(), made.end(),
                       [](const Call& call) { return call.name == "allreduce"; });
  };
  const NcclResult late = result_of(handle->rank, given() ? "later" : "init later");
  if (late != NcclResult::kSuccess) handle->state = late;
  const bool is_issued = std::all_of(handle->in_progress.begin(), handle->in_progress.end(),
                                     [](const auto& exchange) { return exchange->done; });
  const bool in_progress = handle->state == NcclResult::kSuccess && !is_issued;
  state = in_progress ? NcclResult::kInProgress : handle->state;
  if (is_issued || devices_.give) handle->in_progress.clear();
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::all_reduce(const void* input, void* output, std::size_t count, NcclType type,
                                NcclOp op, NcclHandle handle, void* stream) {
  const std::lock_guard lock(mutex_);
  const Call call{"allreduce", type, op, count};
  record(handle->rank, call);
  EXPECT_EQ(handle->state, NcclResult::kSuccess) << "given more before it was ready";
  EXPECT_TRUE(handle->in_progress.empty()) << "given more while it was in progress";
  const NcclResult result = result_of(handle->rank, "ncclAllReduce");
  if (result != NcclResult::kSuccess) return result;
  const auto group = open_groups_.find(std::this_thread::get_id());
  EXPECT_NE(group, open_groups_.end()) << "outside of a group";
  if (group == open_groups_.end()) return NcclResult::kInvalidUsage;
  group->second.emplace_back(handle, Handed{call, static_cast<const std::byte*>(input),
                                            static_cast<std::byte*>(output), stream});
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::group_start() {
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(open_groups_.try_emplace(std::this_thread::get_id()).second) << "groups nest";
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::group_end(NcclHandle) {
  const std::lock_guard lock(mutex_);
  auto group = open_groups_.extract(std::this_thread::get_id());
  EXPECT_FALSE(group.empty()) << "no group is open";
  if (group.empty()) return NcclResult::kInvalidUsage;
  for (auto& [handle, handed] : group.mapped()) swap_in(handle, std::move(handed));
  return group.mapped().empty() ? NcclResult::kSuccess : NcclResult::kInProgress;
}

void FakeNccl::swap_in(NcclHandle handle, Handed handed) {
  Clique& clique = cliques_.at(handle->clique);
  if (clique.exchanges.size() == handle->given) {
    clique.exchanges.push_back(std::make_shared<Exchange>());
    clique.exchanges.back()->handed.resize(static_cast<std::size_t>(clique.size));
    clique.exchanges.back()->arrived.resize(static_cast<std::size_t>(clique.size));
  }
  const auto exchange = clique.exchanges[handle->given++];
  void* const stream = handed.stream;
  const int rank = handle->rank;
  exchange->handed[static_cast<std::size_t>(rank)] = std::move(handed);
  handle->in_progress.push_back(exchange);
  if (!devices_.give) return arrive(clique, *exchange, rank);
  devices_.give(stream, [this, exchange, rank, aborted = handle->aborted, &clique] {
    std::unique_lock lock(mutex_);
    if (*aborted) return;
    arrive(clique, *exchange, rank);
    changed_.wait(lock, [&] { return exchange->done || *aborted; });
  });
}

void FakeNccl::arrive(Clique& clique, Exchange& exchange, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  exchange.arrived[at] = &exchange.handed[at];
  const bool complete = std::none_of(exchange.arrived.begin(), exchange.arrived.end(),
                                     [](const Handed* handed) { return handed == nullptr; });
  if (!complete || hangs_) return;
  const Call& call = exchange.handed.front().call;
  for (const Handed& other : exchange.handed) {
    EXPECT_EQ(other.call, call) << "the ranks' calls differ";
    if (other.call == call) continue;
    last_error_ = "the ranks' calls differ";
    for (const NcclHandle member : clique.members)
      if (member != nullptr) member->state = NcclResult::kInvalidUsage;
    return;
  }
  combine(exchange);
  exchange.done = true;
  changed_.notify_all();
}

void FakeNccl::combine(Exchange& exchange) {
  const Call& call = exchange.handed.front().call;
  const auto behind = [&](const std::byte* address) {
    return devices_.behind ? devices_.behind(address) : const_cast<std::byte*>(address);
  };
  std::vector<const std::byte*> inputs;
  for (const Handed& handed : exchange.handed) inputs.push_back(behind(handed.input));
  std::vector<std::byte> sum(call.count * size_of(data_type(call.type)));
  host_device().reduce(data_type(call.type), reduce_op(call.op), sum.data(), inputs, call.count,
                       {});
  for (const Handed& handed : exchange.handed)
    if (!sum.empty()) std::memcpy(behind(handed.output), sum.data(), sum.size());
}

NcclResult FakeNccl::finalize(NcclHandle handle) {
  const std::lock_guard lock(mutex_);
  record(handle->rank, {"finalize"});
  const NcclResult result = result_of(handle->rank, "ncclCommFinalize");
  if (result != NcclResult::kSuccess) return result;
  Clique& clique = cliques_.at(handle->clique);
  handle->state = NcclResult::kInProgress;
  if (++clique.finalized == clique.size) {
    for (const NcclHandle member : clique.members)
      if (member != nullptr) member->state = NcclResult::kSuccess;
  }
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::free(NcclHandle handle, std::string_view call) {
  const std::lock_guard lock(mutex_);
  const int rank = handle->rank;
  record(rank, {std::string(call)});
  *handle->aborted = true;
  changed_.notify_all();
  for (NcclHandle& member : cliques_.at(handle->clique).members)
    if (member == handle) member = nullptr;
  EXPECT_EQ(std::erase_if(handles_, [&](const auto& each) { return each.get() == handle; }), 1U);
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::destroy(NcclHandle handle) { return free(handle, "destroy"); }

NcclResult FakeNccl::abort(NcclHandle handle) { return free(handle, "abort"); }

std::string FakeNccl::error_string(NcclResult result) const {
  return "fake NCCL error " + std::to_string(static_cast<int>(result));
}

std::string FakeNccl::last_error(NcclHandle /*handle*/) const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

}  // namespace kolo::test
