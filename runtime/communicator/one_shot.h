// OneShot: the allreduce of a few bytes among ranks that map each other's windows. Every rank
// writes its input beside a flag in its own window and sums all ranks' slots itself: one hop, and
// one cache line a rank where flag and data fit into it. (The flat exchange of shared-memory MPIs:
// Graham and Shipman, "MPI support for multi-core architectures", EuroPVM/MPI 2008.)
//
//   rank 0                      rank 1
//   slot[k % 2] ← in0, flag k   slot[k % 2] ← in1, flag k
//   wait for rank 1's flag k    wait for rank 0's flag k
//   out ← slot 0 + slot 1       out ← slot 0 + slot 1
//
// With more bytes it takes two hops, and each rank sums a share (two-shot): what others sum goes
// into the slot; the sum of the own share goes into the output and, beside a second flag, into the
// slot, from where the others fetch it.
//
// Two slots are enough: a rank that writes its k+2nd has seen every flag k+1, which each rank
// raises only after it has read all slots k. Sums are in order of rank, so bitwise equal
// everywhere.
//
// It is the one collective that is no Schedule: starting a schedule alone costs more than all of
// it. One runs at a time; every rank runs the same ones in the same order. Token holder only.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/communicator/host_window.h"
#include "runtime/device/device.h"

#include <kolo/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

class OneShot {
 public:
  struct Request {
    DataType type = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    Scale prescale = {};
    Scale postscale = {};
    const std::byte* input = nullptr;
    std::byte* output = nullptr;  ///< may be the input
    std::uint64_t count = 0;      ///< elements

    std::size_t bytes() const { return count * size_of(type); }
  };

  OneShot(const Communicator& world, HostWindow& window, const Device& device,
          ControlPlane& control_plane);

  /// Once the windows are open.
  void open();

  /// Whether it carries an allreduce of this size; alike on every rank.
  bool takes(std::size_t bytes) const { return !boards_.empty() && bytes <= largest_; }
  /// Bytes of the largest with one hop, and of the largest of all; 0 where ranks share no memory.
  std::size_t largest_one_shot() const { return largest_one_shot_; }
  std::size_t largest() const { return largest_; }
  /// What a request is carried by: "one_shot" or "two_shot".
  std::string_view algorithm(const Request& request) const;
  /// One has begun and is not done.
  bool busy() const { return busy_; }

  /// Publishes the input. Preconditions: takes(request.bytes()), not busy(). The memory must last
  /// until advance() has returned true.
  void begin(const Request& request);
  /// Whether all ranks have published; then the output is written, or status() says what does not
  /// fit together, and it stays busy. Precondition: busy().
  bool advance();
  const Status& status() const { return status_; }

  /// Its caller leaves an exchange that is not done to whoever adopts it. Precondition: busy().
  void abandon() { abandoned_ = true; }
  /// Takes such an exchange over; false if there is none.
  bool adopt() { return std::exchange(abandoned_, false); }

  /// Around a block of the thread that drives: peers that publish meanwhile ring its doorbell.
  /// Returns false if what is waited for has come already.
  bool fall_asleep();
  void wake_up();

  /// Whom it waits for, for stall reports.
  std::string describe() const;

 private:
  struct Board;
  struct Line;
  struct Slot;
  /// What is waited for, of every rank.
  enum class Phase : std::uint8_t { kInputs, kSums };
  bool is_two_shot(const Request& request) const { return request.bytes() > largest_one_shot_; }
  Slot& slot_of(std::size_t rank) const;
  std::byte* data_of(std::size_t rank) const;
  std::uint64_t flag_of(std::size_t rank) const;
  bool arrived(std::size_t rank) const;
  /// Elements of the share that a rank sums begin here; rank size() stands for their end.
  std::uint64_t share_begin(std::size_t rank) const;
  void publish_input();
  void publish_sum();
  void fetch_sums();
  void ring_sleepers();

  const Communicator& world_;
  HostWindow& window_;
  const Device& device_;
  ControlPlane& control_plane_;
  std::vector<Board*> boards_;  ///< by rank; empty without windows
  std::size_t largest_one_shot_ = 0;
  std::size_t largest_ = 0;  ///< bytes it takes

  Request request_;
  Status status_;
  std::uint64_t flag_ = 0;  ///< of the running exchange
  std::vector<const std::byte*> sources_;
  std::uint64_t sequence_ = 0;
  Phase phase_ = Phase::kInputs;
  std::size_t next_ = 0;  ///< the first rank that has not been seen in this phase
  bool busy_ = false;
  bool abandoned_ = false;
  bool asleep_ = false;
};

}  // namespace kolo
