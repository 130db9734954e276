// The symbols that the schedule checker computes with in place of numbers. Included by the
// simulation alone.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace kolo::test {

/// The contribution of a rank: how often it was scaled, how often it is in the sum.
struct Term {
  int rank = 0;
  int prescaled = 0;
  int postscaled = 0;
  int times = 1;

  auto key() const { return std::tuple(rank, prescaled, postscaled); }
  friend bool operator==(const Term&, const Term&) = default;
};
using Terms = std::vector<Term>;  // sorted by key

using ValueId = std::uint32_t;

/// One number per expression tree. Two elements with the same number were computed in the same
/// order, and so have the same bits; the terms of the sum are stored beside the number.
class Values {
 public:
  static constexpr ValueId kNothing = 0;

  ValueId input(int rank) { return intern({0, static_cast<ValueId>(rank)}, {{.rank = rank}}); }

  ValueId sum(const std::vector<ValueId>& parts) {
    std::vector<ValueId> key = {1};
    key.insert(key.end(), parts.begin(), parts.end());
    if (const auto found = ids_.find(key); found != ids_.end()) return found->second;
    std::map<std::tuple<int, int, int>, int> times;
    for (const ValueId part : parts)
      for (const Term& term : terms(part)) times[term.key()] += term.times;
    Terms all;
    for (const auto& [term, n] : times)
      all.push_back({std::get<0>(term), std::get<1>(term), std::get<2>(term), n});
    return intern(std::move(key), std::move(all));
  }

  ValueId prescale(ValueId id) {
    Terms scaled = terms(id);
    for (Term& term : scaled) ++term.prescaled;
    return intern({2, id}, std::move(scaled));
  }
  ValueId postscale(ValueId id) {
    Terms scaled = terms(id);
    for (Term& term : scaled) ++term.postscaled;
    return intern({3, id}, std::move(scaled));
  }

  const Terms& terms(ValueId id) const { return terms_[id]; }

 private:
  ValueId intern(std::vector<ValueId> key, Terms terms) {
    const auto [entry, is_new] =
        ids_.try_emplace(std::move(key), static_cast<ValueId>(terms_.size()));
    if (is_new) terms_.push_back(std::move(terms));
    return entry->second;
  }

  std::map<std::vector<ValueId>, ValueId> ids_;
  std::vector<Terms> terms_ = {{}};  // the first is kNothing
};

}  // namespace kolo::test
