// Computes which elements of a data set each rank must see, and when, as kolo's samplers promise
// it, for all ranks at once. Pure, except for the permutation, which comes from the sampler of a
// world of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo::test {

using Ids = std::vector<std::int64_t>;

enum class Kind : std::uint8_t { kTraining, kEvaluation, kElastic };

/// A data set of the numbers 0 … count − 1, and how it is dealt out.
struct DataPlan {
  Kind kind = Kind::kTraining;
  std::size_t count = 0;
  bool shuffle = false;
  std::uint64_t seed = 0;
  bool drop_last = false;        ///< the sampler's
  std::size_t global_batch = 0;  ///< 0: none
  std::string text() const;
};

/// How the batches are read.
struct BatchPlan {
  std::size_t size = 1;
  bool drop_last = false;  ///< the loader's
};

/// How far a run has come.
struct Place {
  std::size_t epoch = 0;
  std::size_t got = 0;  ///< elements of the epoch that all ranks together have got
  bool ended = false;   ///< nothing of the epoch is left
  std::string text() const;
};

/// The batches that ranks get at the same time.
struct Step {
  std::vector<Ids> ids;               ///< by rank; none: that rank's loop is over
  std::vector<std::int64_t> padding;  ///< by rank: elements at the end that another rank has, too
  Place after;                        ///< after this step
  std::size_t rows() const;           ///< rows of all ranks, without padding
};

/// The permutation of an epoch; throws Differs if it is no permutation.
Ids order_of(const DataPlan& data, std::size_t epoch);

/// Number of elements of all shares together, padding included.
std::size_t total_of(const DataPlan& data, int ranks);

/// Where `ranks` ranks continue from a state that was saved at `place`.
Place resumed(const DataPlan& data, const Place& place, int ranks);

/// The steps from a place to the end of its epoch.
std::vector<Step> deal(const DataPlan& data, const Place& from, int ranks, const BatchPlan& batch);

/// Number of elements that one rank has in these steps.
std::size_t elements_of(const std::vector<Step>& steps, int rank);
std::size_t batches_of(const std::vector<Step>& steps, int rank);

/// A list for a message.
std::string text_of(const Ids& ids);

}  // namespace kolo::test
