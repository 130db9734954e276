// One rank of a world that deals out data: its sampler and its loader, compared with what the rank
// must see. The rank belongs to this process, or to a world that this process plays alone. The
// training loop's thread.
#pragma once

#include "tests/bindings/torch/stress/deal.h"
#include "tests/bindings/torch/stress/numbers.h"

#include <kolo/torch.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>

namespace kolo::test {

struct LoaderPlan {
  BatchPlan batch;
  std::size_t workers = 0;
  std::size_t prefetch = 2;
  bool stock = false;    ///< LibTorch's loader
  bool hurries = false;  ///< batches may time out, and come later
  std::optional<std::chrono::milliseconds> timeout() const;
  std::string text() const;
};

using Sampler = std::variant<DistributedSampler, DistributedEvalSampler, ElasticSampler>;
/// Without rank and size, it takes those of the world.
Sampler make_sampler(const DataPlan& data, std::optional<int> rank, std::optional<int> size);

std::string saved(const RankSampler& sampler);
void load(RankSampler& sampler, const std::string& state);

/// Reads from a loader of either kind.
class Reader {
 public:
  using Batch = std::optional<torch::data::Example<>>;
  virtual ~Reader() = default;
  /// Begins a pass; nothing if the pass has no batch.
  virtual Batch first() = 0;
  virtual Batch next() = 0;
  /// kolo's loaders know the number of batches of a whole pass and of the current one.
  virtual std::optional<std::size_t> size() const { return {}; }
  virtual std::optional<std::size_t> pass_size() const { return {}; }
};

class Seat {
 public:
  Seat(const DataPlan& data, const LoaderPlan& loader, int rank, int ranks, bool is_this_rank);

  int rank() const { return rank_; }
  RankSampler& sampler();
  /// Precondition: the kind is elastic.
  ElasticSampler& elastic() { return std::get<ElasticSampler>(sampler_); }
  Numbers& numbers() { return numbers_; }

  /// Checks where the run is, between passes.
  void check(const Place& place, bool epoch_is_chosen);
  /// Begins a pass of these steps, from `from` on.
  void begin(const Place& from, const std::vector<Step>& steps);
  /// Asks for this rank's batch of the next step and returns it. Nothing if the rank has none, or
  /// if the batch cannot be read, which is allowed only if the step `fails`.
  std::optional<torch::Tensor> take(const Step& step, bool fails);
  /// Checks that the pass ends after all its steps.
  void expect_end();

 private:
  Reader::Batch ask();
  void check_pass();
  void check_last(const std::string& when);
  [[noreturn]] void differs(const std::string& what) const;
  template <class T>
  void expect(const std::string& what, const T& value, const T& right) const;

  const DataPlan data_;
  const LoaderPlan loader_;
  const int rank_;
  const int ranks_;
  Sampler sampler_;
  Numbers numbers_;
  std::unique_ptr<Reader> reader_;
  Place from_;               ///< where the pass began
  std::vector<Step> steps_;  ///< steps of the pass
  std::size_t taken_ = 0;    ///< number of batches that were asked for
  bool is_over_ = false;     ///< whether the pass is over on this rank
  Step last_;                ///< the last step of which this rank got a batch, if any
};

}  // namespace kolo::test
