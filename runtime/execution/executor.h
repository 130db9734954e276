// Executor: runs one Schedule over a transport and a device without ever blocking. One object an
// operation, reusable; driven by the holder of the progress token.
#pragma once

#include "runtime/collectives/schedule.h"
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

  /// Begins. `ranks[i]` is the transport rank of the communicator's rank i; `call`: as of Tag.
  /// Precondition: done().
  void start(std::shared_ptr<const Schedule> schedule, MemoryBinding binding,
             std::uint32_t communicator, std::uint64_t operation, std::span<const int> ranks,
             std::uint64_t call = 0);

  /// Runs every step that is ready, up to a bounded amount of local work, so that one large
  /// operation does not starve the others; true if anything was done. Transfers complete from
  /// within Transport::progress().
  bool advance();

  /// The device does nothing more of what it was given.
  void leave_device();

  /// True when every step is done, or a step has failed and no transfer is under way any more.
  bool done() const { return remaining_ == 0 || (failed() && pending_transfers_ == 0); }
  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }

  /// Of the schedule that runs or ran last.
  std::string_view algorithm() const {
    return schedule_ == nullptr ? std::string_view("none") : schedule_->algorithm;
  }
  /// Whether the message of its first receive was there before: this rank began after the other.
  bool began_late() const { return began_late_.value_or(false); }
  /// What its local steps have cost so far, if there is a timeline.
  const StepTrace::Costs& costs() const { return trace_.costs(); }

  /// What is done, under way and waiting, with peers and tags: for stall reports and tests.
  std::string dump_state() const;

  void on_transfer_done(Transfer& transfer) override;

 private:
  /// Oldest first, by what others wait for most.
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

  /// Who does a step, if there is a device.
  enum class Whose : std::uint8_t {
    kHosts,    ///< transfers
    kStaging,  ///< what is in kStaging alone: whose memory that is
    kDevices,
    kDevicesBack,  ///< what comes from kStaging: the device's, on its stream for that
  };

  /// How many elements of a peer's memory the schedule reaches to.
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
  static Whose whose(const Schedule& schedule, const Step& step);
  /// Lets those go that wait for the device, where it has come so far.
  bool poll_device();
  /// Whether a step is handed in to the device.
  bool is_on_device(StepId id) const {
    if (binding_.stream == nullptr || whose_[id] == Whose::kHosts) return false;
    return whose_[id] != Whose::kStaging || binding_.networked != nullptr;
  }
  /// Of a step of the device.
  DeviceQueue& queue_of(StepId id) {
    return queues_[binding_.back_stream != nullptr && whose_[id] != Whose::kDevices ? 1 : 0];
  }
  /// Hands a step in, after those on the other stream that it depends on.
  Status hand_in(StepId id);
  /// The registered memory that a transfer reads or writes, if any.
  const MemoryRegion* networked_of(StepId id) const;
  /// What the network has written is the device's to read, before anything is done with it.
  bool take_arrivals();
  /// What was handed in since the last mark is done when the device reaches this one.
  void mark_device();
  void post_transfer(StepId id);
  /// The bytes that a message step sends or receives.
  Result<std::span<std::byte>> message_of(StepId id);
  /// After an await: the peer's memory lies where its notice says.
  Status take_notice(StepId id);
  Status find_pieces(std::span<std::byte> window, std::uint64_t place, const SegmentList& own,
                     std::uint64_t extent, SegmentList& pieces) const;
  /// Runs a reduce or copy; returns the bytes that it wrote.
  std::size_t run_local(StepId id);
  void fail(StepId id, const Error& error);
  std::string describe(StepId id) const;
  int own_rank() const;  ///< of the world, as all ranks in messages are
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
  ReadyQueue transfers_ready_;         ///< the others' progress hangs on them
  ReadyQueue local_ready_;             ///< our own progress hangs on them
  ReadyQueue idle_ready_;              ///< nobody waits for them: unpacking
  std::array<DeviceQueue, 2> queues_;  ///< of the binding's streams
  /// By step, with two streams: it is done, for those on the other one.
  std::vector<std::shared_ptr<DeviceEvent>> passed_;
  std::optional<StepId> arrived_;           ///< the last receive that the device must see yet
  std::optional<bool> began_late_;          ///< nothing before the first receive
  std::vector<std::uint32_t> waiting_for_;  ///< by step: unfinished dependencies
  std::vector<Transfer> transfers_;         ///< by transfer_index_; stable while the schedule runs
  std::vector<WindowPlaces> notices_;       ///< by transfer_index_: what an await has received

  // Derived from schedule_; kept while it is used again.
  std::vector<Whose> whose_;                    ///< by step
  std::vector<std::uint32_t> transfer_index_;   ///< by step; of sends, receives, notify, await
  std::vector<std::uint32_t> successor_begin_;  ///< by step and one more: range into successors_
  std::vector<StepId> successors_;
  std::vector<PeerExtent> peer_extents_;  ///< by rank
  std::uint32_t transfer_count_ = 0;
};

}  // namespace kolo
