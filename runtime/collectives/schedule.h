// Schedule: the steps of one rank in one collective, as data (after MSCCL's and Aluminum's
// programs). An algorithm is a pure function that returns a schedule. The executor runs it,
// tests/support checks it, a cost model can price it. It has no pointers and does no I/O, so it is
// cached by (algorithm, size, count, …).
//
// Units are elements. A step starts when all steps that it depends on are done. Steps without a
// path between them may run in any order or at once. Two such steps may touch the same elements
// only if both read them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

/// The memory that an operand lies in. Input and output are the user's tensors, laid end to end in
/// the order of the fusion plan. They may be the same memory.
enum class Space : std::uint8_t {
  kInput,    ///< read only
  kOutput,   ///< where the result belongs
  kScratch,  ///< the operation's own contiguous memory (fusion buffer and receive slots)
  kStaging,  ///< memory that the network sends from and receives into, if kScratch is a device's;
             ///< see HierarchicalOptions::staged and stage_messages()
  kPeer,     ///< the scratch of another rank of this host, mapped here
};

struct Operand {
  static constexpr std::uint64_t kNowhere = UINT64_MAX;

  Space space = Space::kScratch;
  std::int32_t rank = -1;  ///< whose memory, for kPeer
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  /// For kPeer. Source: the peer has the same elements at this offset of its kInput. Destination:
  /// the peer wants them at this offset of its kOutput. If that memory is mapped here, it is used
  /// instead of the scratch, and the peer skips its copy between the two (Step::stands_in).
  std::uint64_t direct = kNowhere;
  /// The operand is a partial sum, which covers only some ranks' inputs; not in kInput and kOutput.
  /// Half types have float32 partial sums (partial_type()), in separate memory, which peers have
  /// not mapped. Any other operand is an input or a result. An element is never both at the same
  /// time.
  bool partial = false;

  Operand as_partial(bool is_partial = true) const {
    Operand operand = *this;
    operand.partial = is_partial;
    return operand;
  }
  friend bool operator==(const Operand&, const Operand&) = default;
};

/// Whether an operand is the source or the destination of its step.
enum class Role : std::uint8_t { kSource, kDestination };

enum class StepKind : std::uint8_t {
  kSend,     ///< sends one contiguous source to `peer` under `tag`
  kReceive,  ///< receives one contiguous destination from `peer` under `tag`
  kReduce,   ///< every destination = sum of the K sources; a destination may be one of the sources
  kCopy,  ///< every destination = the source; does nothing if they are the same memory, or if there
          ///< is neither (a join)
  kSignal,  ///< signals `peer` that this point is reached
  kWait,    ///< waits for the kSignal of `peer` with the same tag
};

/// The factor that a step multiplies in. The values belong to the operation, not to the schedule.
enum class Scaling : std::uint8_t {
  kNone,
  kPre,   ///< prescale: applied to the operands in kInput, before the sum
  kPost,  ///< postscale and the division of an average: applied to the result
  kBoth,  ///< both of them
};

using StepId = std::uint32_t;

struct Step {
  StepKind kind = StepKind::kCopy;
  Scaling scaling = Scaling::kNone;
  /// A copy between kScratch and the user's kInput or kOutput. It is skipped if all peers have
  /// mapped the user's memory; see Operand::direct.
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
  std::uint64_t input_elements = 0;    ///< elements of kInput
  std::uint64_t output_elements = 0;   ///< elements of kOutput
  std::uint64_t scratch_elements = 0;  ///< elements of kScratch
  bool scratch_is_mapped = false;      ///< peers access kScratch as kPeer
  std::uint64_t staging_elements = 0;  ///< elements of kStaging
  // Elements of kScratch and kStaging that partial sums need, if they have another type.
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

/// Appends steps to a schedule. Every function returns the id of the new step. kNoStep among the
/// dependencies is ignored, so the first rounds of an algorithm need no special cases.
class ScheduleBuilder {
 public:
  static constexpr StepId kNoStep = UINT32_MAX;

  ScheduleBuilder(std::string algorithm, int rank, int size, std::uint64_t input_elements,
                  std::uint64_t output_elements);
  /// Input and output have `count` elements each.
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
  /// A copy between the user's memory and mapped scratch, for peers that use Operand::direct.
  StepId stand_in(Operand source, Operand destination, Scaling scaling,
                  std::initializer_list<StepId> after);
  StepId signal(int peer, std::uint32_t tag, std::initializer_list<StepId> after);
  StepId wait(int peer, std::uint32_t tag, std::initializer_list<StepId> after);
  /// A copy of nothing, done when all of `after` are done. Marks, for example, the end of a block.
  StepId join(std::span<const StepId> after);
  /// Appends a copy of `step` with other operands and dependencies. For functions that rewrite
  /// schedules.
  StepId append(Step step, std::span<const Operand> sources, std::span<const Operand> destinations,
                std::span<const StepId> after);

  /// The scratch grows to at least this many elements.
  void need_scratch(std::uint64_t elements);
  /// Like need_scratch(), for memory that the peers map. All scratch is then of this kind.
  void need_mapped_scratch(std::uint64_t elements);
  /// The staging memory grows to at least this many elements.
  void need_staging(std::uint64_t elements);

  Schedule finish() &&;

 private:
  void need_partials(std::span<const Operand> operands);

  Schedule schedule_;
};

}  // namespace kolo
