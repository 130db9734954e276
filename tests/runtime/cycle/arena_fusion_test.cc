// Fused all-reduces of tensors that lie scattered in the arena, where the peers read and write them
// in place. Every rank has its own mixture of shared and private memory, on one host and on
// several, over windows with and without room for the lists of buffer offsets. Ranks are threads.
#include "tests/support/arena_memory.h"
#include "tests/support/sanitizers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

namespace kolo::test::arena_fusion_test {
namespace {

/// Parameters: the ranks' hosts and KOLO_SHARED_MEMORY; "0" means no windows, so no arena.
class ArenaFusion : public testing::TestWithParam<std::tuple<std::vector<int>, std::string>> {
 protected:
  int size() const { return static_cast<int>(std::get<0>(GetParam()).size()); }
  LocalWorldOptions options() const {
    LocalWorldOptions options;
    options.variables = {{"KOLO_SHARED_MEMORY", std::get<1>(GetParam())}};
    options.hosts = std::get<0>(GetParam());
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(
    HostsAndWindows, ArenaFusion,
    testing::Combine(testing::Values(std::vector<int>{0, 0}, std::vector<int>{0, 0, 0},
                                     std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 0, 1}),
                     testing::ValuesIn(fewer_if_sanitized({"0", "256K", "16M"}))));

/// Floats in the tensors of one operation; together more than the pipeline slots of the smaller
/// windows.
std::vector<std::size_t> mixed_counts() {
  constexpr std::size_t kLarge = kSanitized ? 50'003 : 200'003;
  return {1, 0, 7, kSanitized ? 30'001 : 70'001, 33, 1000, 5'003, 64, kLarge, 16'384, 3};
}
/// Some worlds have more ranks than elements here.
std::vector<std::size_t> few_counts() { return {1, 0, 1, 1}; }
/// More tensors than the smaller windows can list.
std::vector<std::size_t> many_counts() { return std::vector<std::size_t>(1100, 5); }

enum class Place { kPrivate, kShared, kSharedInPlace, kSharedInput, kSharedOutput, kOnePrivate };
constexpr Place kPlaces[] = {Place::kPrivate,     Place::kShared,       Place::kSharedInPlace,
                             Place::kSharedInput, Place::kSharedOutput, Place::kOnePrivate};

/// Whole numbers, so that sums are exact; different for each tensor, element and rank.
float element(int rank, std::size_t tensor, std::size_t i) {
  return static_cast<float>((i * 31 + tensor * 17 + static_cast<std::size_t>(rank) * 7) % 509);
}

/// A rank's tensors of one fused operation.
class Tensors {
 public:
  Tensors(Runtime& runtime, int rank, const std::vector<std::size_t>& counts, Place place)
      : rank_(rank), counts_(counts), in_place_(place == Place::kSharedInPlace) {
    for (std::size_t t = 0; t < counts.size(); ++t) {
      const bool one_of_all = place == Place::kOnePrivate && t != counts.size() / 2;
      const bool input = one_of_all || place == Place::kShared || place == Place::kSharedInput;
      const bool output = one_of_all || place == Place::kShared || place == Place::kSharedOutput;
      inputs_.push_back(floats(runtime, counts[t], input || in_place_));
      outputs_.push_back(in_place_ ? inputs_.back() : floats(runtime, counts[t], output));
      for (std::size_t i = 0; i < counts[t]; ++i) inputs_[t].get()[i] = element(rank, t, i);
    }
  }

  std::vector<Submission> submissions(const std::string& name, double prescale) const {
    std::vector<Submission> made;
    for (std::size_t t = 0; t < counts_.size(); ++t) {
      Submission& submission = made.emplace_back();
      submission.name = fmt::format("{} {}", name, t);
      submission.signature.shape = {static_cast<std::int64_t>(counts_[t])};
      submission.signature.prescale = prescale;
      submission.input = reinterpret_cast<const std::byte*>(inputs_[t].get());
      submission.output = reinterpret_cast<std::byte*>(outputs_[t].get());
    }
    return made;
  }

  void expect_sums(int ranks, double prescale) const {
    for (std::size_t t = 0; t < counts_.size(); ++t) {
      std::vector<float> expected(counts_[t]);
      for (int r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] += element(r, t, i) * static_cast<float>(prescale);
      const auto wrong = std::mismatch(expected.begin(), expected.end(), outputs_[t].get());
      ASSERT_EQ(wrong.first, expected.end())
          << "tensor " << t << ", element " << wrong.first - expected.begin() << " is "
          << *wrong.second << " instead of " << *wrong.first;
      std::size_t same = 0;
      while (same < counts_[t] && inputs_[t].get()[same] == element(rank_, t, same)) ++same;
      ASSERT_TRUE(in_place_ || same == counts_[t]) << "the input of " << t << " at " << same;
    }
  }

 private:
  int rank_;
  std::vector<std::size_t> counts_;
  bool in_place_;
  std::vector<std::shared_ptr<float>> inputs_;
  std::vector<std::shared_ptr<float>> outputs_;
};

void expect_done(Runtime& runtime, std::vector<Submission> submissions, const std::string& group) {
  const auto works = runtime.submit_group(std::move(submissions), group);
  ASSERT_TRUE(works.ok()) << works.error().message;
  for (const auto& work : *works) {
    const Status status = work->wait();
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
}

TEST_P(ArenaFusion, AnyMixtureOfMemoryGivesTheSameSums) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        for (const auto& counts : {mixed_counts(), few_counts(), many_counts()})
          for (std::size_t round = 0; round <= std::size(kPlaces); ++round) {
            if (counts.size() > 1000 && round % (kSanitized ? 6 : 3) != 0) continue;
            // Each rank has another placement; in the last round all ranks have all tensors in the
            // arena, in place.
            const Place place =
                round == std::size(kPlaces)
                    ? Place::kSharedInPlace
                    : kPlaces[(round + static_cast<std::size_t>(rank)) % std::size(kPlaces)];
            const double prescale = round % 4 == 3 ? 2 : 1;
            SCOPED_TRACE(fmt::format("rank {}, {} tensors, round {}", rank, counts.size(), round));
            const Tensors tensors(runtime, rank, counts, place);
            const std::string name = fmt::format("{} in {}", counts.size(), round);
            ASSERT_NO_FATAL_FAILURE(
                expect_done(runtime, tensors.submissions(name, prescale), name));
            ASSERT_NO_FATAL_FAILURE(tensors.expect_sums(size(), prescale));
          }
      },
      options());
}

}  // namespace
}  // namespace kolo::test::arena_fusion_test
