// A random program of calls for a stress test. All ranks draw the same program from one seed. Pure.
#pragma once

#include "tests/support/dice.h"

#include <kolo/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kolo::test {

enum class Act : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kAllgather,
  kAlltoall,
  kReduceScatter,
  kGather,
  kScatter,
  kBarrier,
  kMessage,
};
inline constexpr int kActCount = 9;

/// How one rank's call differs from the others', so that the operation fails on all of them.
enum class Odd : std::uint8_t {
  kNothing,
  kType,
  kShape,
  kRoot,
  kKind,
  kSplits,
  kPlace,      ///< host memory instead of the GPU's, or the other way round
  kAllocator,  ///< no memory for the output: fails on that rank alone
  kRefused,    ///< in-order submission: an invalid call on every rank, and all go on
};

/// Number of a set in the order in which the program has added sets; kWorld is the world.
inline constexpr int kWorld = -1;

struct Step {
  Act act = Act::kAllreduce;
  std::string name;  ///< empty: unnamed
  int set = kWorld;
  std::vector<int> ranks;  ///< world ranks in the set, ascending
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int64_t rows =
      0;       ///< rows where all ranks have the same; with in-order submission, elements of a part
  Shape tail;  ///< extents after the first
  std::vector<std::int64_t> rows_of;              ///< input rows, by rank of the set
  std::vector<std::vector<std::int64_t>> splits;  ///< by rank of the set, or only the root's
  std::vector<bool> absent;                       ///< by rank of the set
  int root = 0;                                   ///< a rank of the world; the sender of a message
  int to = 0;
  std::uint32_t tag = 0;
  bool on_gpu = false;     ///< whether its memory is on the GPU
  std::uint64_t salt = 0;  ///< salt of the values
  Odd odd = Odd::kNothing;
  int odd_rank = 0;
  int rounds_more = 0;        ///< further rounds in which it stays in flight, if it does not block
  std::vector<Step> members;  ///< members of a group; they share everything but set, name and act

  int size() const { return static_cast<int>(ranks.size()); }
  std::int64_t tail_elements() const { return element_count(tail); }
  /// This rank's position in the set; −1 if it is not a member.
  int place_of(int rank) const;
};

/// The work of one thread of each rank in a round.
struct Lane {
  bool ordered = false;   ///< by in-order submission
  bool shuffled = false;  ///< each rank submits in its own order and then waits
  std::vector<Step> steps;
};

struct Round {
  enum class Kind : std::uint8_t { kCalls, kAddSet, kRemoveSet, kJoin };
  Kind kind = Kind::kCalls;
  std::vector<int> late_ms;  ///< by rank of the world
  std::vector<Lane> lanes;
  int set = kWorld;        ///< the set that is added, removed or joined
  std::vector<int> ranks;  ///< ranks of this set
  std::vector<int>
      joins_after;  ///< by rank of the set: steps of the only thread that the rank makes
};

struct ProgramOptions {
  std::uint64_t seed = 1;
  int size = 1;
  int rounds = 20;
  std::int64_t max_bytes = 1 << 20;  ///< largest size of a tensor; a few are larger
  bool gpu = false;                  ///< most memory of negotiated submission is on a GPU
};

class Program {
 public:
  explicit Program(const ProgramOptions& options);
  Round next();
  /// Sets that exist after the rounds so far.
  const std::map<int, std::vector<int>>& sets() const { return sets_; }

 private:
  Round calls();
  Round add_set();
  Round remove_set();
  Round join();
  Lane negotiated_communicator(int number, bool alone);
  Lane in_order_communicator(int set);
  Step draw(bool ordered);
  void draw_rows(Step& step);
  void draw_reduction(Step& step);
  void make_odd(Step& step);
  void make_group(Step& step);
  /// Leaves some steps in flight while the next rounds run.
  void leave(Step& step);
  std::vector<int> ranks_of(int set) const;
  int any_set();
  std::int64_t elements(DataType type);

  const ProgramOptions options_;
  Dice dice_;
  std::map<int, std::vector<int>> sets_;
  int next_set_ = 0;
  std::map<std::string, Step> known_;  ///< the latest step of each name
  std::vector<std::string> names_;     ///< names that this round has not used yet
  int round_ = 0;
  std::map<std::string, int> busy_names_;  ///< the last round in which a name is in use
  std::map<int, int> busy_sets_;
};

}  // namespace kolo::test
