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
  std::deque<kolo::test::FakeNccl::Handed> handed;
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

FakeNccl::FakeNccl(int version) : version_(version) {}

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
  state = handle->state;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::all_reduce(const void* input, void* output, std::size_t count, NcclType type,
                                NcclOp op, NcclHandle handle, void* /*stream*/) {
  const std::lock_guard lock(mutex_);
  const Call call{"allreduce", type, op, count};
  record(handle->rank, call);
  EXPECT_EQ(handle->state, NcclResult::kSuccess) << "given more while it was in progress";
  const NcclResult result = result_of(handle->rank, "ncclAllReduce");
  if (result != NcclResult::kSuccess) return result;
  const auto group = open_groups_.find(std::this_thread::get_id());
  EXPECT_NE(group, open_groups_.end()) << "outside of a group";
  if (group == open_groups_.end()) return NcclResult::kInvalidUsage;
  group->second.emplace_back(
      handle, Handed{call, static_cast<const std::byte*>(input), static_cast<std::byte*>(output)});
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::group_start() {
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(open_groups_.try_emplace(std::this_thread::get_id()).second) << "groups nest";
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::group_end() {
  const std::lock_guard lock(mutex_);
  auto group = open_groups_.extract(std::this_thread::get_id());
  EXPECT_FALSE(group.empty()) << "no group is open";
  if (group.empty()) return NcclResult::kInvalidUsage;
  for (auto& [handle, handed] : group.mapped()) {
    handle->state = NcclResult::kInProgress;
    handle->handed.push_back(std::move(handed));
    match(cliques_.at(handle->clique));
  }
  return group.mapped().empty() ? NcclResult::kSuccess : NcclResult::kInProgress;
}

// Does what all have handed in.
void FakeNccl::match(Clique& clique) {
  const auto has_work = [](NcclHandle member) {
    return member != nullptr && !member->handed.empty();
  };
  while (!hangs_ && std::all_of(clique.members.begin(), clique.members.end(), has_work)) {
    combine(clique);
    for (const NcclHandle member : clique.members) {
      member->handed.pop_front();
      if (member->handed.empty() && member->state == NcclResult::kInProgress)
        member->state = NcclResult::kSuccess;
    }
  }
}

void FakeNccl::combine(Clique& clique) {
  const Call call = clique.members.front()->handed.front().call;
  std::vector<const std::byte*> inputs;
  for (const NcclHandle member : clique.members) {
    EXPECT_EQ(member->handed.front().call, call) << "rank " << member->rank << " and rank 0 differ";
    if (member->handed.front().call != call) {
      last_error_ = "the ranks' calls differ";
      for (const NcclHandle each : clique.members) each->state = NcclResult::kInvalidUsage;
      return;
    }
    inputs.push_back(member->handed.front().input);
  }
  std::vector<std::byte> sum(call.count * size_of(data_type(call.type)));
  host_device().reduce(data_type(call.type), reduce_op(call.op), sum.data(), inputs, call.count,
                       {});
  for (const NcclHandle member : clique.members)
    if (!sum.empty()) std::memcpy(member->handed.front().output, sum.data(), sum.size());
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
