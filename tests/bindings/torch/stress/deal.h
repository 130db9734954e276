// Which elements of a data set each rank must see, and when: what kolo's samplers promise, worked
// out for all ranks at once. Pure, but for the permutation, which is the one rank's of a world of
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo::test {

using Ids = std::vector<std::int64_t>;

enum class Kind : std::uint8_t { kTraining, kEvaluation, kElastic };

/// A data set of the numbers 0 … count − 1 and how it is dealt out.
struct DataPlan {
  Kind kind = Kind::kTraining;
  std::size_t count = 0;
  bool shuffle = false;
  std::uint64_t seed = 0;
  bool drop_last = false;        ///< the sampler's
  std::size_t global_batch = 0;  ///< 0: none
  std::string text() const;
};

/// How it is read.
struct BatchPlan {
  std::size_t size = 1;
  bool drop_last = false;  ///< the loader's
};

/// How far a run is.
struct Place {
  std::size_t epoch = 0;
  std::size_t got = 0;  ///< of the epoch, by all ranks together
  bool ended = false;   ///< nothing of the epoch is left
  std::string text() const;
};

/// The batches that ranks get at the same time.
struct Step {
  std::vector<Ids> ids;               ///< by rank; none: that rank's loop is over
  std::vector<std::int64_t> padding;  ///< by rank: elements at the end that another one has, too
  Place after;                        ///< with this step
  std::size_t rows() const;           ///< of all ranks, without padding
};

/// The permutation of an epoch; throws Differs if it is none.
Ids order_of(const DataPlan& data, std::size_t epoch);

/// Elements of all shares together, padding included.
std::size_t total_of(const DataPlan& data, int ranks);

/// Where `ranks` ranks go on that were told to go on at `place`.
Place resumed(const DataPlan& data, const Place& place, int ranks);

/// A pass from a place on to the end of its epoch.
std::vector<Step> deal(const DataPlan& data, const Place& from, int ranks, const BatchPlan& batch);

/// What of it one rank has.
std::size_t elements_of(const std::vector<Step>& steps, int rank);
std::size_t batches_of(const std::vector<Step>& steps, int rank);

/// A list as a message shows it.
std::string text_of(const Ids& ids);

}  // namespace kolo::test
