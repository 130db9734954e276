// Schedule: what one rank does for one collective, as data (after MSCCL's and Aluminum's programs).
// An algorithm is a pure function that returns one; the executor runs it, tests/support checks it,
// a cost model can price it. No pointers, no I/O: it is cached by (algorithm, size, count, …).
//
// Units are elements. A step starts when all steps that it depends on are done; steps without a
// path between them may run in any order or at once, so no two such steps may touch the same
// elements unless both only read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

/// Which memory an operand lies in. Input and output are the user's tensors, laid end to end in the
/// order of the fusion plan; they may be the same memory.
enum class Space : std::uint8_t {
  kInput,    ///< read only
  kOutput,   ///< where the result belongs
  kScratch,  ///< the operation's own contiguous block (fusion buffer and receive slots)
  kStaging,  ///< what the network sends from and receives into, where the rest is a device's; see
             ///< HierarchicalOptions::staged and stage_messages()
  kPeer,     ///< the scratch of another rank of this host, mapped here
};

struct Operand {
  static constexpr std::uint64_t kNowhere = UINT64_MAX;

  Space space = Space::kScratch;
  std::int32_t rank = -1;  ///< whose memory, for kPeer
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  /// For kPeer: where the peer has the same elements in its kInput, if this is a source, or wants
  /// them in its kOutput, if it is a destination. Where that memory is mapped here by itself it
  /// takes the scratch's place, and the peer's copy between the two (Step::stands_in) is void.
  std::uint64_t direct = kNowhere;
  /// The sum of some ranks' inputs only, of kScratch and kStaging: float32 where the elements are
  /// of a half type (partial_type()), and then in memory of its own. What is no partial sum is an
  /// input or a result. An element is one of both at a time.
  bool partial = false;

  Operand as_partial(bool is_partial = true) const {
    Operand operand = *this;
    operand.partial = is_partial;
    return operand;
  }
  friend bool operator==(const Operand&, const Operand&) = default;
};

/// Whether an operand is a source or a destination of its step.
enum class Role : std::uint8_t { kSource, kDestination };

enum class StepKind : std::uint8_t {
  kSend,     ///< one source to `peer` under `tag`; the source is contiguous memory
  kReceive,  ///< one destination from `peer` under `tag`; the destination is contiguous memory
  kReduce,   ///< every destination = sum of the K sources; a destination may be one of the sources
  kCopy,     ///< every destination = the one source; nothing to do where they are the same memory,
             ///< or where there is neither (a join)
  kNotify,   ///< tells `peer` that this point is reached
  kAwait,    ///< waits for the kNotify of `peer` under the same tag
};

/// Which factor a step multiplies in; the values belong to the operation, not to the schedule.
enum class Scaling : std::uint8_t {
  kNone,
  kPre,   ///< prescale: the operands in kInput, before the sum
  kPost,  ///< postscale and the division of an average: the result
  kBoth,  ///< both of them
};

using StepId = std::uint32_t;

struct Step {
  StepKind kind = StepKind::kCopy;
  Scaling scaling = Scaling::kNone;
  /// A copy from kInput to kScratch, or from there to kOutput, that is void where all peers have
  /// the user's memory mapped; see Operand::direct.
  bool stands_in = false;
  std::int32_t peer = -1;
  std::uint32_t tag = 0;
  // Ranges into Schedule::operands and Schedule::dependencies.
  std::uint32_t first_source = 0, source_count = 0;
  std::uint32_t first_destination = 0, destination_count = 0;
  std::uint32_t first_dependency = 0, dependency_count = 0;
};

struct Schedule {
  std::string algorithm;
  int rank = 0;
  int size = 1;
  std::uint64_t input_elements = 0;    ///< what kInput must hold
  std::uint64_t output_elements = 0;   ///< what kOutput must hold
  std::uint64_t scratch_elements = 0;  ///< what kScratch must hold
  bool scratch_is_mapped = false;      ///< peers reach it as kPeer
  std::uint64_t staging_elements = 0;  ///< what kStaging must hold
  // Where partial sums are of another type, what kScratch and kStaging must hold of them.
  std::uint64_t partial_scratch_elements = 0;
  std::uint64_t partial_staging_elements = 0;
  std::vector<Step> steps;  ///< dependencies point backwards
  std::vector<Operand> operands;
  std::vector<StepId> dependencies;

  std::span<const Operand> sources(const Step& step) const {
    return {operands.data() + step.first_source, step.source_count};
  }
  std::span<const Operand> destinations(const Step& step) const {
    return {operands.data() + step.first_destination, step.destination_count};
  }
  std::span<const StepId> depends_on(const Step& step) const {
    return {dependencies.data() + step.first_dependency, step.dependency_count};
  }
};

/// Appends steps to a schedule. Every function returns the new step's id; kNoStep among the
/// dependencies is ignored, which spares algorithms the special cases of their first rounds.
class ScheduleBuilder {
 public:
  static constexpr StepId kNoStep = UINT32_MAX;

  ScheduleBuilder(std::string algorithm, int rank, int size, std::uint64_t input_elements,
                  std::uint64_t output_elements);
  /// Input and output of `count` elements each.
  ScheduleBuilder(std::string algorithm, int rank, int size, std::uint64_t count)
      : ScheduleBuilder(std::move(algorithm), rank, size, count, count) {}

  StepId send(int peer, std::uint32_t tag, Operand source, std::initializer_list<StepId> after);
  StepId receive(int peer, std::uint32_t tag, Operand destination,
                 std::initializer_list<StepId> after);
  StepId reduce(std::initializer_list<Operand> sources, std::initializer_list<Operand> destinations,
                Scaling scaling, std::initializer_list<StepId> after);
  StepId reduce(std::span<const Operand> sources, std::span<const Operand> destinations,
                Scaling scaling, std::span<const StepId> after);
  StepId copy(Operand source, std::initializer_list<Operand> destinations, Scaling scaling,
              std::initializer_list<StepId> after);
  StepId copy(Operand source, std::span<const Operand> destinations, Scaling scaling,
              std::initializer_list<StepId> after);
  /// A copy between the user's memory and mapped scratch, for peers that name Operand::direct.
  StepId stand_in(Operand source, Operand destination, Scaling scaling,
                  std::initializer_list<StepId> after);
  StepId notify(int peer, std::uint32_t tag, std::initializer_list<StepId> after);
  StepId await(int peer, std::uint32_t tag, std::initializer_list<StepId> after);
  /// A copy of nothing: done when all of `after` are. For "when this block is finished".
  StepId join(std::span<const StepId> after);
  /// A step like this one, with other operands and dependencies: for what rewrites schedules.
  StepId append(Step step, std::span<const Operand> sources, std::span<const Operand> destinations,
                std::span<const StepId> after);

  /// The scratch grows to hold at least this many elements.
  void need_scratch(std::uint64_t elements);
  /// The same, of memory that the peers map; then no other scratch is asked for.
  void need_mapped_scratch(std::uint64_t elements);
  /// The staging memory grows to hold at least this many elements.
  void need_staging(std::uint64_t elements);

  Schedule finish() &&;

 private:
  void need_partials(std::span<const Operand> operands);

  Schedule schedule_;
};

}  // namespace kolo
