// FlightRecorder: the last few thousand operations of a rank, in a mapped file that outlives the
// process, also SIGKILL. Always on; `kolo-timeline verdict` reads the files of all ranks.
//
//   recorder.open(options, log);
//   recorder.name(set, slot, tensor);             // once, when the response cache takes it
//   recorder.announced(set, step, now, slots);    // a bit a tensor
//   recorder.agreed(set, slots);
//   operation = recorder.planned({.sequence = 7, …});
//   recorder.started(operation); recorder.ended(operation);
//   recorder.close(/*keep=*/failed);
//
// - Progress token holder only; open() and close() also when no thread drives.
// - A record is a few stores into memory that is there: no lock, no system call, no allocation.
// - A step of many small tensors, whose names the response cache knows, costs some words of bits
//   and a record for each operation. A tensor's end is that of its operation.
// - A recorder that is off costs each caller a branch.
// - A file that cannot be made switches the recorder off, and the log says why. No job fails for
// it.
// - The latest kKeptFlightFiles files of a user that nobody removed stay in their folder; local
//   rank 0 of a job removes older ones whose processes are gone.
#pragma once

#include "runtime/base/log.h"
#include "runtime/base/operation_kind.h"
#include "runtime/base/unique_handle.h"
#include "runtime/observe/flight_layout.h"
#include "runtime/observe/trace_record.h"

#include <kolo/error.h>
#include <kolo/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kolo {

/// Files of dead processes that stay; one has 1.1 MB.
inline constexpr std::size_t kKeptFlightFiles = 64;

struct FlightOptions {
  std::string folder;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  std::string host;
  int pid = 0;
  std::string job;          ///< equal on all ranks; part of the file's name
  std::string init_method;  ///< by which kolo-run knows the files of its job
  /// What stands for SubmissionMode's values.
  std::span<const std::string_view> modes;
};

class FlightRecorder {
 public:
  struct Tensor {
    std::string_view name;
    std::uint8_t mode = 0;  ///< SubmissionMode
    OperationKind kind = OperationKind::kAllreduce;
    DataType type = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    int root = 0;
    std::uint64_t bytes = 0;
    std::uint64_t step = 0;
    std::uint32_t process_set = 0;
    TraceTime submitted = 0;
  };
  /// `first`: the tensor that stands for all of them.
  struct Operation {
    Tensor first;
    std::uint64_t sequence = 0;
    std::uint64_t fingerprint = 0;
    std::size_t tensors = 1;
  };

  FlightRecorder() = default;
  /// As close(true).
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Makes the file. Leaves the recorder off, with a line in the log, if that is impossible.
  void open(const FlightOptions& options, const Log& log);
  /// Ends recording. Removes the file unless `keep`, or unless a tensor has failed alone: the
  /// program may end for that, so whoever sees the process end well removes it.
  void close(bool keep);
  /// The latest file, also after close(); empty if there was none.
  const std::string& path() const { return path_; }
  bool on() const { return on_; }

  // Precondition of all below: on(). Numbers that they return are never 0; 0 stands for a record
  // that was not made, and is passed over.
  /// A pass of the cycle begins; what it records has this time where no other is stated.
  void begin_pass(TraceTime now) {
    now_ = now;
    file_->state.alive = now;
  }
  /// A slot of the process set's response cache stands for this tensor.
  void name(std::uint32_t slot, const Tensor& tensor);
  /// This rank has announced slots, a bit each.
  void announced(std::uint32_t process_set, std::uint64_t step, TraceTime now,
                 std::span<const std::uint64_t> slots);
  /// All ranks agree on slots, or one has got an answer of its own.
  void agreed(std::uint32_t process_set, std::span<const std::uint64_t> slots);
  void settled(std::uint32_t process_set, std::uint32_t slot);
  /// Without a slot: this rank has announced it in full, or it is a message.
  std::uint64_t submitted(const Tensor& tensor);
  void agreed(std::uint64_t tensor);
  /// A tensor failed alone. `record`: of submitted(), or 0.
  void failed_alone(std::uint64_t record, const Tensor& tensor);
  std::uint64_t planned(const Operation& operation);
  void started(std::uint64_t operation);
  /// An operation has ended well.
  void ended(std::uint64_t operation);
  /// A small in-order call has ended without an operation.
  void called(std::uint32_t process_set, std::uint64_t sequence, std::uint64_t fingerprint) {
    flight::Call& slot = file_->calls[calls_++ % flight::kCalls];
    set_number(slot.set_and_sequence, 0);
    slot.fingerprint = fingerprint;
    set_number(slot.set_and_sequence, std::uint64_t{process_set} << 40 | (sequence + 1));
  }
  /// This rank is in a process set.
  void add_set(std::uint32_t id, int size, int rank);
  /// The rank has failed: records why, and then nothing more.
  void failed(const Error& error, int culprit);

 private:
  static void set_number(flight::Number& number, std::uint64_t value) {
    number.store(value, std::memory_order_release);
  }
  template <class Slot>
  static std::uint8_t set_name(Slot& slot, std::string_view name);
  flight::Set* find_set(std::uint32_t id);
  void count_step(std::uint64_t step, TraceTime now);
  Status make_file(const FlightOptions& options);

  bool on_ = false;
  bool failed_alone_ = false;  ///< a tensor of this file has, see failed_alone()
  flight::File* file_ = nullptr;
  TraceTime now_ = 0;
  std::uint64_t names_ = 0;
  std::uint64_t tensors_ = 0;
  std::uint64_t announcements_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t sets_ = 0;
  flight::Step* step_ = nullptr;  ///< the latest
  std::string path_;
  UniqueDescriptor descriptor_;  ///< locked: the file has an owner
};

/// Removes all but the latest kKeptFlightFiles of this user's flight files that no process owns.
/// Never fails.
void remove_flight_leftovers(const std::string& folder);

}  // namespace kolo
