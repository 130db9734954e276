// Operation: one running collective over one or several entries: its schedule, its memory, its
// executor. Reused from a pool, so that a steady step allocates nothing. Token holder only.
#pragma once

#include "runtime/collectives/chooser.h"
#include "runtime/communicator/arena.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/device_window.h"
#include "runtime/communicator/host_window.h"
#include "runtime/communicator/one_shot.h"
#include "runtime/communicator/place_slots.h"
#include "runtime/device/partial_sums.h"
#include "runtime/execution/executor.h"
#include "runtime/nccl/nccl_allreduce.h"
#include "runtime/submission/entry.h"
#include "runtime/submission/row_layout.h"
#include "runtime/tuning/link_probe.h"

#include <kolo/config.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// What every rank starts in the same order, under the same number.
struct PlannedOperation {
  Door door = Door::kNamed;
  std::uint64_t sequence = 0;
  std::vector<EntryPtr> entries;  ///< several: fused
  std::vector<int> contributors;  ///< by entry
  int participants = 0;           ///< what an average divides by
  RowLayout layout = {};          ///< of an operation that is not fused
  std::uint64_t list = 0;         ///< of responses, from the start of the job; of the named door
  bool meets_first = false;       ///< nobody sends before all have begun it
  std::uint64_t before = 0;       ///< CallHistory::bits(); of the ordered door
};

/// What its inputs and its results are multiplied by, an average's divisor included.
Scales scales_of(const PlannedOperation& plan);
/// How the ordered door's exchanges call an operation; nothing of one that it does not have.
std::optional<ExchangeKind> exchange_of(OperationKind kind);
/// It as an exchange; nothing but of the ordered door.
std::optional<OneShot::Request> exchange_of(const PlannedOperation& plan,
                                            const Communicator& communicator);
/// OrderedCall::what, and Tag::call of its messages; 0 but of the ordered door.
std::uint64_t call_of(const PlannedOperation& plan, const Communicator& communicator);

/// How a communicator's all-reduces are chosen, with what slots it has.
AllreducePolicy allreduce_policy(const Communicator& communicator, const PlaceSlots& slots,
                                 const LinkCosts& links, const Config& config);

class Operation {
 public:
  using Clock = std::chrono::steady_clock;

  Operation(const Communicator& communicator, Transport& transport, const Device& device,
            Arena& arena, HostWindow& window, DeviceWindow& devices, NcclLanes& nccl,
            const PlaceSlots& slots, OneShot& one_shot, ScheduleCache& schedules,
            const LinkCosts& links, const Config& config, Timeline& timeline);
  ~Operation();

  /// Chooses the schedule, binds the memory and begins. On failure (kOutOfMemory) the entries can
  /// still be had from finish().
  /// `policy` chooses the all-reduce, and outlives it; null: as allreduce_policy(). Precondition,
  /// but for messages: the slots are settled.
  Status start(PlannedOperation plan, const AllreducePolicy* policy = nullptr);

  bool advance();
  bool done() const {
    if (!failure_.ok()) return true;
    // What a failed step leaves of transfers never ends by itself: their peers wait for it.
    if (phase_ != Phase::kNone)
      return phase_ == Phase::kDone || !device_status_.ok() || executor_.failed();
    return small_ == Small::kNo ? executor_.done() || executor_.failed() : small_ == Small::kDone;
  }
  const Status& status() const {
    if (!failure_.ok()) return failure_;
    if (!device_status_.ok()) return device_status_;
    return small_ == Small::kNo ? executor_.status() : one_shot_.status();
  }

  /// done(), or all of it is handed in to the accelerator: its Works are done, its memory is not
  /// free yet.
  bool handed_in() const { return phase_ == Phase::kDrains || done(); }
  /// Work of the accelerator is waited for, which wakes nobody.
  bool computes() const { return phase_ != Phase::kNone; }
  /// After the last work on the accelerator; null of one on host memory. Precondition: handed_in().
  const std::shared_ptr<DeviceEvent>& device_event() const { return handed_in_; }

  Door door() const { return plan_.door; }
  std::uint64_t sequence() const { return plan_.sequence; }
  /// Of a message: the rank of the world at its other end.
  int message_peer() const { return plan_.entries.front()->signature.root; }
  Clock::time_point started_at() const { return started_at_; }
  const PlannedOperation& plan() const { return plan_; }
  std::uint64_t call() const { return call_of(plan_, communicator_); }
  /// Its Works are done, and belong to it no longer.
  void forget_works();
  bool handed_out() const { return handed_out_; }
  /// The name of its schedule's algorithm, or of OneShot's.
  std::string_view algorithm() const;
  /// What its local steps have cost, if there is a timeline.
  StepTrace::Costs costs() const;

  /// An all-reduce that a schedule does, chosen by costs.
  struct Choice {
    Algorithm algorithm = Algorithm::kRing;
    std::uint64_t bytes = 0;
    double partial_width = 1;
  };
  const std::optional<Choice>& choice() const { return choice_; }
  /// Others run beside it: its time tells nothing of its algorithm.
  void share() { shared_ = true; }
  bool shared() const { return shared_; }
  /// Another rank began before this one: its time is not that of the algorithm either.
  bool began_late() const { return executor_.began_late(); }

  /// Hands the entries back and frees the memory. Precondition: done(), or start() failed; after a
  /// failure, that no transfer touches the memory any more.
  PlannedOperation finish();

  /// "allreduce 'fc1.weight' and 12 more", and where its schedule stands.
  std::string describe() const;
  std::string dump_state() const;

 private:
  /// Where an operation is that one_shot_ carries.
  enum class Small : std::uint8_t { kNo, kWaits, kRuns, kDone };

  /// Where an operation on the accelerator's memory is.
  enum class Phase : std::uint8_t {
    kNone,      ///< it is the host's
    kStagesIn,  ///< copies to pinned memory are handed in
    kRuns,      ///< the schedule
    kDrains,    ///< all is handed in
    kDone,
  };
  /// Of an entry: the user's, or pinned memory that stands in for it.
  struct EntryMemory {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
  };

  Status start_on_device();
  /// The schedule that runs on the device's memory; nothing where that is staged whole. Alike on
  /// all ranks.
  std::optional<ScheduleRequest> device_request() const;
  bool runs_on_device() const;
  ScheduleRequest request_on_device() const;
  /// Whether devices, staging memory and the network take turns at its pieces, by the two levels of
  /// an all-reduce.
  bool runs_over_hosts() const;
  ScheduleRequest request_over_hosts() const;
  /// The same of what is no all-reduce; nothing of what is small, and of what the windows of hosts
  /// carry.
  std::optional<ScheduleRequest> request_in_pieces() const;
  /// Of so many bytes, cut into about so many pieces: each one's length.
  std::uint64_t piece_elements(std::uint64_t bytes, std::int64_t pieces) const;
  /// Whether its pieces pass through the devices' windows inside every host; likewise alike.
  bool maps_inside_hosts() const;
  /// Whether the network sends from and receives into memory of the device; likewise.
  bool is_networked(const ScheduleRequest& request) const;
  Status bind_staging(const ScheduleRequest& request, const Schedule& schedule,
                      MemoryBinding& binding);
  void run(std::shared_ptr<const Schedule> schedule, MemoryBinding binding);
  Status stage_in();
  Status run_staged();
  Status stage_out();
  /// All-reduces and broadcasts: input and output have the entry's whole shape.
  bool is_whole() const;
  std::size_t input_bytes(const Entry& entry) const;
  std::size_t output_bytes(const Entry& entry) const;
  bool advance_on_device();
  bool advance_phase();
  /// All that was handed in so far, on both streams.
  Result<std::shared_ptr<DeviceEvent>> record_all();
  /// After the last work was handed in.
  Status enter_drain();
  bool runs_over_nccl() const;
  Status start_over_nccl();
  bool advance_over_nccl();
  void leave_device();

  /// What to do, whatever carries it.
  ScheduleRequest base_request() const;
  /// Of host memory: by a schedule.
  Status start_schedule();
  /// The same of a call that one_shot_ might have carried.
  void start_late();
  std::shared_ptr<const Schedule> choose(const WindowPlaces& places);
  bool is_mapped(const ScheduleRequest& request) const;
  /// Where ranks share hosts, and windows of so many bytes, which hold pieces of no less than
  /// `shortest` bytes: only what other hosts lack goes over the network. Not of all-reduces, whose
  /// algorithm is chosen by its cost.
  void take_two_levels(ScheduleRequest& request, std::size_t window_bytes,
                       std::size_t shortest) const;
  /// What goes from neighbour to neighbour on one level, from host to host.
  void go_by_hosts(ScheduleRequest& request) const;
  /// At the end of a slot of so many bytes, if the operation is on fused tensors: room for the
  /// places of its inputs, and as much for its outputs'. 0: none are needed, or too many.
  std::size_t place_list_bytes(std::size_t slot_bytes) const;
  /// Writes down where all pieces lie, and replaces the first's place by that of the list.
  void list_places(const Schedule& schedule, const MemoryBinding& binding,
                   WindowPlaces& places) const;
  /// How much of a slot an all-reduce of so many bytes takes.
  std::size_t summed_bytes(std::uint64_t bytes) const;
  Status bind(MemoryBinding& binding);
  Status bind_allreduce(MemoryBinding& binding);
  Status bind_rows(MemoryBinding& binding);
  /// Memory for what the caller gave none, or what the schedule must not overwrite.
  Result<std::byte*> borrow(std::uint64_t bytes, MemoryKind kind);
  /// The kind of the entries' memory, and how it is written.
  MemoryKind memory_kind() const;
  Status fill_with_zeros(std::byte* memory, std::size_t bytes);
  Status copy_bytes(std::byte* destination, const std::byte* source, std::size_t bytes);
  bool lies_in_place() const;
  /// With the gaps between them.
  std::uint64_t fused_elements() const;
  /// Elements between a fused entry of the device's memory and the next one, which begins at a
  /// multiple of 16 bytes of the slot. Of the shapes alone, so alike on all ranks.
  std::uint64_t gap_after(std::size_t entry) const;
  Status bind_scratch(const Schedule& schedule, WindowPlaces places, MemoryBinding& binding);
  Stores output_stores(const MemoryBinding& binding) const;
  /// Of the memory that is bound; the scratch's is not known yet. Of several tensors that all lie
  /// in the arena: the first's place.
  WindowPlaces places_of(const MemoryBinding& binding) const;
  void free_scratch();
  void free_slot();

  const Communicator& communicator_;
  Arena& arena_;
  HostWindow& window_;
  DeviceWindow& devices_;
  NcclLanes& nccl_;
  const int place_;
  const PlaceSlots& slots_;
  std::vector<std::span<std::byte>> windows_;         ///< by the communicator's rank
  std::vector<std::span<std::byte>> device_windows_;  ///< likewise
  std::vector<int> device_leaders_;                   ///< DeviceWindow::device_leaders()
  OneShot& one_shot_;
  ScheduleCache& schedules_;
  const LinkCosts& links_;
  const Config& config_;
  AllreducePolicy own_policy_;
  bool own_policy_is_settled_ = false;
  const AllreducePolicy* policy_ = &own_policy_;
  std::optional<Choice> choice_;
  bool shared_ = false;
  bool handed_out_ = false;
  Executor executor_;
  ArenaBlock scratch_;
  std::vector<ArenaBlock> borrowed_;
  std::optional<std::size_t> slot_;  ///< of the window
  std::vector<EntryMemory> memory_;  ///< by entry
  Phase phase_ = Phase::kNone;
  bool staged_ = false;
  bool over_nccl_ = false;
  Status device_status_;
  NcclAllreduce nccl_allreduce_;
  std::unique_ptr<DeviceStream> stream_;       ///< made when it is first needed
  std::unique_ptr<DeviceStream> back_stream_;  ///< of what comes from staging memory; likewise
  std::shared_ptr<DeviceEvent> handed_in_;     ///< of the phase
  std::optional<std::size_t> device_slot_;
  Small small_ = Small::kNo;
  std::string_view carried_by_;  ///< once it is kDone
  bool to_announce_ = false;     ///< an ordered operation that is no exchange
  OrderedCall announced_;        ///< it has been
  std::size_t compared_ = 0;     ///< ranks that have made the same of it
  Status failure_;               ///< what they have made of it instead, or of a late start
  PlannedOperation plan_;
  Clock::time_point started_at_;
};

}  // namespace kolo
