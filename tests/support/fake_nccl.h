// FakeNccl: a recording fake of NCCL for ranks that are threads of one process. It connects the
// ranks and sums their inputs on the CPU. It checks that all ranks make the same calls in the same
// order, and fails or hangs on a test's request. It says nothing about NCCL on a GPU. One object is
// the library of all ranks; any thread.
#pragma once

#include "runtime/nccl/nccl_api.h"

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace kolo::test {

class FakeNccl final : public NcclApi {
 public:
  /// One call of one rank. Calls other than all-reduce have only a name.
  struct Call {
    std::string name;
    NcclType type = NcclType::kFloat32;
    NcclOp op = NcclOp::kSum;
    std::size_t count = 0;
    friend bool operator==(const Call&, const Call&) = default;
  };

  /// Access to emulated accelerators: gives work to a stream, and translates device addresses.
  struct Devices {
    std::function<void(void* stream, std::function<void()> work)> give;
    std::function<std::byte*(const std::byte* address)> behind;
  };

  /// Without devices there are no streams: an all-reduce is done in host memory as soon as all
  /// ranks have called it. With devices, each rank's part waits on its stream for the others, as a
  /// kernel does.
  explicit FakeNccl(int version = 22809, Devices devices = {});
  ~FakeNccl() override;

  /// From now on, `call` of this rank fails with `result`, and NCCL reports `text`. "ncclAllReduce"
  /// and so on fail the call itself. "init later" and "later" are the state that a communicator
  /// reports while it is being set up, or after it was given an all-reduce.
  void fail(int rank, std::string_view call, NcclResult result, std::string text);
  /// From now on, all-reduces do not end until they are aborted.
  void hang();
  /// Calls of a rank, in order: "init", "allreduce", "group_start", "group_end", "finalize",
  /// "destroy", "abort". State queries are not recorded.
  std::vector<Call> calls(int rank) const;
  int count(int rank, std::string_view call) const;
  /// Number of handles that nobody has freed.
  std::size_t alive() const;

  int version() const override { return version_; }
  NcclResult get_unique_id(NcclUniqueId& id) override;
  NcclResult init_rank(NcclHandle& handle, int size, const NcclUniqueId& id, int rank,
                       int ordinal) override;
  NcclResult async_error(NcclHandle handle, NcclResult& state) override;
  NcclResult all_reduce(const void* input, void* output, std::size_t count, NcclType type,
                        NcclOp op, NcclHandle handle, void* stream) override;
  NcclResult group_start() override;
  NcclResult group_end(NcclHandle handle) override;
  NcclResult finalize(NcclHandle handle) override;
  NcclResult destroy(NcclHandle handle) override;
  NcclResult abort(NcclHandle handle) override;
  std::string error_string(NcclResult result) const override;
  std::string last_error(NcclHandle handle) const override;

 private:
  struct Handed {
    Call call;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    void* stream = nullptr;
  };
  /// One all-reduce of all ranks.
  struct Exchange {
    std::vector<const Handed*> arrived;  ///< by rank; null: not there yet
    std::vector<Handed> handed;          ///< by rank
    bool done = false;
  };
  struct Clique {
    int size = 0;
    std::vector<NcclHandle> members;  ///< by rank; null: not there yet, or gone
    std::vector<std::shared_ptr<Exchange>> exchanges;
    int finalized = 0;
  };
  struct Failure {
    NcclResult result = NcclResult::kSuccess;
    std::string text;
  };
  friend struct ::ncclComm;

  void record(int rank, Call call);
  NcclResult result_of(int rank, std::string_view call);
  void swap_in(NcclHandle handle, Handed handed);
  /// A rank's part of the all-reduce has reached its turn. Called under the lock.
  void arrive(Clique& clique, Exchange& exchange, int rank);
  void combine(Exchange& exchange);
  NcclResult free(NcclHandle handle, std::string_view call);

  const int version_;
  const Devices devices_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::vector<Call>> calls_;  ///< by rank
  std::map<std::pair<int, std::string>, Failure> failures_;
  std::string last_error_;
  bool hangs_ = false;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Clique> cliques_;
  std::vector<std::unique_ptr<::ncclComm>> handles_;
  /// Calls of a thread while it has a group open, by thread.
  std::map<std::thread::id, std::vector<std::pair<NcclHandle, Handed>>> open_groups_;
};

}  // namespace kolo::test
