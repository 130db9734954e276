// Executor: runs one Schedule over a transport and a device and never blocks. One per operation,
// reusable; driven by the progress token holder. It keeps many vectors, so that starting a schedule
// that ran before allocates nothing.
#pragma once

#include "runtime/collectives/schedule.h"
#include "runtime/communicator/call_mismatch.h"
#include "runtime/execution/device_queue.h"
#include "runtime/execution/local_step.h"
#include "runtime/execution/memory_binding.h"
#include "runtime/execution/step_trace.h"
#include "transport/transport.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

class Executor final : public TransferListener {
 public:
  /// Without a timeline, steps are not recorded.
  Executor(Transport& transport, const Device& device, Timeline* timeline = nullptr);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Begins. `ranks[i]` is the transport rank of the communicator's rank i; `call`: see Tag.
  /// Precondition: done().
  void start(std::shared_ptr<const Schedule> schedule, MemoryBinding binding,
             std::uint32_t communicator, std::uint64_t operation, std::span<const int> ranks,
             std::uint64_t call = 0);

  /// Runs every ready step, up to a bounded amount of local work, so that a large operation does
  /// not starve the others. True if anything was done. Transfers complete inside
  /// Transport::progress().
  bool advance();

  /// The device does nothing more of what was enqueued.
  void leave_device();

  /// True when every step is done, or when a step has failed and no transfer is under way.
  bool done() const { return remaining_ == 0 || (failed() && pending_transfers_ == 0); }
  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }

  /// Algorithm of the latest schedule.
  std::string_view algorithm() const {
    return schedule_ == nullptr ? std::string_view("none") : schedule_->algorithm;
  }
  /// Cost of the local steps so far, if there is a timeline.
  const StepTrace::Costs& costs() const { return trace_.costs(); }

  /// Steps done, under way and waiting, with peers and tags: for stall reports and tests.
  std::string dump_state() const;

  void on_transfer_done(Transfer& transfer) override;
  Error mismatch(const Transfer& /*transfer*/, const TransferEnd& receiver,
                 const TransferEnd& sender) const override {
    return call_mismatch(receiver, sender);
  }

 private:
  /// Ready steps, oldest first.
  class ReadyQueue {
   public:
    void push(StepId id) { steps_.push_back(id); }
    bool empty() const { return head_ == steps_.size(); }
    StepId pop();
    void clear();

   private:
    std::vector<StepId> steps_;
    std::size_t head_ = 0;
  };

  /// What runs a step if there is a device.
  enum class Engine : std::uint8_t {
    kHost,     ///< transfers
    kStaging,  ///< steps inside kStaging: device if the network reaches it, else host
    kDevice,
    kDeviceBack,  ///< copies out of kStaging, on a stream of their own
  };

  /// How many elements of a peer's memory the schedule reaches.
  struct PeerExtent {
    std::uint64_t scratch = 0;
    std::uint64_t input = 0;
    std::uint64_t output = 0;

    friend bool operator==(const PeerExtent&, const PeerExtent&) = default;
  };

  void index_schedule();
  void index_peers();
  void enqueue(StepId id);
  void finish_step(StepId id);
  void release(StepId id);
  static Engine engine_of(const Schedule& schedule, const Step& step);
  /// Releases the steps that waited for the device, as far as it has come.
  bool poll_device();
  /// Whether a step is enqueued on the device.
  bool is_on_device(StepId id) const {
    if (binding_.stream == nullptr || engines_[id] == Engine::kHost) return false;
    return engines_[id] != Engine::kStaging || binding_.networked != nullptr;
  }
  /// Precondition: is_on_device().
  DeviceQueue& queue_of(StepId id) {
    return queues_[binding_.back_stream != nullptr && engines_[id] != Engine::kDevice ? 1 : 0];
  }
  /// Enqueues a step after those on the other stream that it depends on.
  Status enqueue_on_device(StepId id);
  /// The registered memory that a transfer reads or writes, if any.
  const MemoryRegion* networked_of(StepId id) const;
  /// Makes the network's writes visible to the device before steps use them.
  bool take_arrivals();
  /// Marks both streams, so that steps of the host are released when the device gets there.
  void mark_device();
  void post_transfer(StepId id);
  /// The bytes that a message step sends or receives.
  Result<std::span<std::byte>> message_of(StepId id);
  /// After a wait step: finds the peer's memory from the offsets in its signal.
  Status take_signal(StepId id);
  Status find_pieces(std::span<std::byte> window, std::uint64_t offset, const SegmentList& own,
                     std::uint64_t extent, SegmentList& pieces) const;
  /// Runs a reduce or copy; returns the bytes written.
  std::size_t run_local(StepId id);
  void fail(StepId id, const Error& error);
  std::string describe(StepId id) const;
  int own_rank() const;  ///< rank of the world, as in all messages
  Result<std::span<std::byte>> contiguous(const Operand& operand) const;

  Transport& transport_;
  std::shared_ptr<const Schedule> schedule_;
  MemoryBinding binding_;
  LocalStep local_;
  StepTrace trace_;
  Tag tag_;
  std::vector<int> ranks_;
  Status status_;
  std::size_t remaining_ = 0;
  std::size_t pending_transfers_ = 0;
  ReadyQueue transfers_ready_;         ///< other ranks' progress depends on them
  ReadyQueue local_ready_;             ///< this rank's progress depends on them
  ReadyQueue idle_ready_;              ///< no step depends on them: unpacking
  std::array<DeviceQueue, 2> queues_;  ///< by stream of the binding
  /// By step, with two streams: an event after the step, for steps on the other stream.
  std::vector<std::shared_ptr<DeviceEvent>> passed_;
  std::optional<StepId> arrived_;           ///< the latest receive whose bytes the device must see
  std::vector<std::uint32_t> waiting_for_;  ///< by step: unfinished dependencies
  std::vector<Transfer> transfers_;         ///< by transfer_index_; stable while the schedule runs
  std::vector<WindowOffsets> signals_;      ///< by transfer_index_: offsets received by a wait step

  // Derived from schedule_; kept while the same schedule is used.
  std::vector<Engine> engines_;                 ///< by step
  std::vector<std::uint32_t> transfer_index_;   ///< by step; send, receive, signal and wait only
  std::vector<std::uint32_t> successor_begin_;  ///< by step, plus one: ranges in successors_
  std::vector<StepId> successors_;
  std::vector<PeerExtent> peer_extents_;  ///< by rank
  std::uint32_t transfer_count_ = 0;
};

}  // namespace kolo
