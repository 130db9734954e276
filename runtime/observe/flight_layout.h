// The layout of a flight recorder's file. A page of JSON says who wrote it and where the rest lies;
// then come the state and rings of fixed-size slots. FlightRecorder writes it, and
// tools/flight/recording.py reads it, both in the byte order of the machine. A slot's first word is
// its number, from 1 on: 0 while the slot is written or before. Slot i of a ring of n holds numbers
// i + 1, i + 1 + n, …, so a reader finds what was cut or overwritten.
#pragma once

#include "runtime/base/page.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace kolo::flight {

/// A file is called kolo-flight.JOB.RANK.PID.
inline constexpr std::string_view kPrefix = "kolo-flight.";
inline constexpr int kVersion = 1;

// Powers of two.
inline constexpr std::size_t kNames = 4096;
inline constexpr std::size_t kTensors = 2048;
inline constexpr std::size_t kAnnouncements = 256;
inline constexpr std::size_t kOperations = 2048;
inline constexpr std::size_t kCalls = 1024;
inline constexpr std::size_t kSteps = 128;
inline constexpr std::size_t kSets = 64;  ///< process sets; further ones are not listed
/// Slots of a process set's response cache that are recorded, a bit each.
inline constexpr std::size_t kSlots = 4096;

/// Tensor::bytes of a call that failed at once, for its arguments: what it was to be is not known.
inline constexpr std::uint64_t kRefusedBytes = UINT64_MAX;

using Number = std::atomic<std::uint64_t>;
static_assert(Number::is_always_lock_free && sizeof(Number) == sizeof(std::uint64_t));

/// The latest known state of the rank.
struct State {
  std::int64_t alive;      ///< when this rank last drove; times are the steady clock's nanoseconds
  std::int64_t failed_at;  ///< 0: it has not failed; nothing is recorded afterwards
  std::int32_t code;       ///< ErrorCode
  std::int32_t culprit;    ///< rank, or −1
  std::array<char, 2048> message;
};

using Slots = std::array<std::uint64_t, kSlots / 64>;

/// What a slot of a process set's response cache stands for. A later one of the same slot counts.
struct Name {
  Number number;
  std::uint32_t process_set;
  std::uint32_t slot;
  std::uint64_t bytes;
  std::uint8_t kind;
  std::uint8_t type;
  std::uint8_t op;
  std::uint8_t name_bytes;  ///< used bytes of `name`
  std::array<char, 68> name;
};
static_assert(sizeof(Name) == 96);

/// An entry that no slot stands for: announced in full, a message, or one that failed alone.
struct Tensor {
  Number number;
  std::int64_t submitted;
  std::int64_t agreed;  ///< 0: not by all ranks
  std::uint64_t bytes;
  std::uint64_t step;   ///< 0: not stated
  std::int64_t failed;  ///< when it failed alone; 0: it has not
  std::uint32_t process_set;
  std::int32_t root;  ///< or the other rank of a message
  std::uint8_t mode;  ///< SubmissionMode
  std::uint8_t kind;
  std::uint8_t type;
  std::uint8_t op;
  std::uint8_t name_bytes;
  std::array<char, 67> name;
};
static_assert(sizeof(Tensor) == 128);

/// The slots that this rank has announced at once.
struct Announcement {
  Number number;
  std::int64_t time;
  std::uint64_t step;
  std::uint32_t process_set;
  std::uint32_t words;  ///< used words of `slots`
  Slots slots;
};

/// What all ranks start in one order, with one tensor or more.
struct Operation {
  Number number;
  std::uint64_t sequence;     ///< in its process set and mode
  std::uint64_t fingerprint;  ///< OrderedCall::fingerprint of an in-order call
  std::int64_t submitted;     ///< the first tensor, as its name, type, bytes and step
  std::int64_t agreed;
  std::int64_t started;
  std::int64_t ended;
  std::uint64_t step;
  std::uint64_t bytes;
  std::uint32_t process_set;
  std::uint16_t tensors;
  std::uint8_t mode;
  std::uint8_t kind;
  std::uint8_t type;
  std::uint8_t name_bytes;
  std::array<char, 46> name;
};
static_assert(sizeof(Operation) == 128);

/// A small in-order call that has ended in its caller's thread, without an Operation.
struct Call {
  Number set_and_sequence;  ///< process set << 40 | sequence + 1
  std::uint64_t fingerprint;
};
static_assert(sizeof(Call) == 16);

/// The announcements of one training step.
struct Step {
  Number number;
  std::uint64_t step;
  std::int64_t first;
  std::int64_t last;
  std::int64_t ended;  ///< the latest of its operations
};
static_assert(sizeof(Step) == 40);

/// A process set that this rank is in.
struct Set {
  Number number;
  std::uint32_t id;
  std::int32_t size;
  std::int32_t rank;  ///< this rank's rank in the set
  Slots open;         ///< announced, and not agreed on yet
};
static_assert(sizeof(Set) == 536);

struct File {
  std::array<char, kPage> description;  ///< JSON, then zeros
  State state;
  alignas(kPage) std::array<Name, kNames> names;
  std::array<Tensor, kTensors> tensors;
  std::array<Announcement, kAnnouncements> announcements;
  std::array<Operation, kOperations> operations;
  std::array<Call, kCalls> calls;
  std::array<Step, kSteps> steps;
  std::array<Set, kSets> sets;
};
static_assert(std::is_standard_layout_v<File>);

}  // namespace kolo::flight
