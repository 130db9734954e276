// A random program of calls that all ranks draw alike from one seed: what a stress test does. Pure.
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
  kAllocator,  ///< it has no memory for the output: fails there alone
  kRefused,    ///< at the ordered door: what every rank calls cannot be, and all go on
};

/// Place of a set among those that the program has added; this one is the world.
inline constexpr int kWorld = -1;

struct Step {
  Act act = Act::kAllreduce;
  std::string name;  ///< empty: unnamed
  int set = kWorld;
  std::vector<int> ranks;  ///< of the set, ascending ranks of the world
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int64_t rows = 0;  ///< of what all ranks have alike; at the ordered door elements of a part
  Shape tail;             ///< extents after the first
  std::vector<std::int64_t> rows_of;              ///< by rank of the set: of its input
  std::vector<std::vector<std::int64_t>> splits;  ///< by rank of the set, or the root's alone
  std::vector<bool> absent;                       ///< by rank of the set
  int root = 0;                                   ///< a rank of the world; of a message, the sender
  int to = 0;
  std::uint32_t tag = 0;
  bool on_gpu = false;     ///< its memory
  std::uint64_t salt = 0;  ///< of the values
  Odd odd = Odd::kNothing;
  int odd_rank = 0;
  int rounds_more = 0;        ///< for which it stays under way, if it does not block
  std::vector<Step> members;  ///< of a group; all else but the set, the name and the act is theirs

  int size() const { return static_cast<int>(ranks.size()); }
  std::int64_t tail_elements() const { return element_count(tail); }
  /// This rank's place in the set; −1: it is in none.
  int place_of(int rank) const;
};

/// What one thread of each rank does in a round.
struct Lane {
  bool ordered = false;   ///< at the ordered door
  bool shuffled = false;  ///< each rank submits in an order of its own and then waits
  std::vector<Step> steps;
};

struct Round {
  enum class Kind : std::uint8_t { kCalls, kAddSet, kRemoveSet, kJoin };
  Kind kind = Kind::kCalls;
  std::vector<int> late_ms;  ///< by rank of the world
  std::vector<Lane> lanes;
  int set = kWorld;              ///< added, removed or joined
  std::vector<int> ranks;        ///< of it
  std::vector<int> joins_after;  ///< by rank of the set: steps of the only lane that it does
};

struct ProgramOptions {
  std::uint64_t seed = 1;
  int size = 1;
  int rounds = 20;
  std::int64_t max_bytes = 1 << 20;  ///< of one tensor; a few are larger
  bool gpu = false;                  ///< most memory of the named door is a GPU's
};

class Program {
 public:
  explicit Program(const ProgramOptions& options);
  Round next();
  /// Sets that are there after the rounds so far.
  const std::map<int, std::vector<int>>& sets() const { return sets_; }

 private:
  Round calls();
  Round add_set();
  Round remove_set();
  Round join();
  Lane named_lane(int number, bool alone);
  Lane ordered_lane(int set);
  Step draw(bool ordered);
  void draw_rows(Step& step);
  void draw_reduction(Step& step);
  void make_odd(Step& step);
  void make_group(Step& step);
  /// Lets some stay under way while the next rounds go on.
  void leave(Step& step);
  std::vector<int> ranks_of(int set) const;
  int any_set();
  std::int64_t elements(DataType type);

  const ProgramOptions options_;
  Dice dice_;
  std::map<int, std::vector<int>> sets_;
  int next_set_ = 0;
  std::map<std::string, Step> known_;  ///< what a name stood for last
  std::vector<std::string> names_;     ///< that this round has not used yet
  int round_ = 0;
  std::map<std::string, int> busy_names_;  ///< until that round, included
  std::map<int, int> busy_sets_;
};

}  // namespace kolo::test
