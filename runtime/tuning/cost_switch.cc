// Agreeing on other costs of links; see the header.
#include "runtime/tuning/cost_switch.h"

#include "runtime/base/plain_bytes.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kNumbers = 2 * std::size(kLinkCostNumbers);
using Numbers = std::array<double, kNumbers>;

}  // namespace

CostSwitch::CostSwitch(AllreducePolicy policy, int size)
    : has_answered_(static_cast<std::size_t>(size)) {
  versions_.push_back({{}, std::move(policy)});
}

void CostSwitch::begin(const LinkCosts& costs, std::uint64_t ordered) {
  proposed_ = costs;
  bound_ = ordered + kAhead;
}

std::string CostSwitch::propose(const LinkCosts& costs, std::uint64_t ordered) {
  begin(costs, ordered);
  most_begun_ = 0;
  has_answered_.assign(has_answered_.size(), false);
  count_answer(0, ordered);
  Numbers numbers;
  std::size_t i = 0;
  for (const LinkCost* const link : {&costs.inside, &costs.across})
    for (const auto number : kLinkCostNumbers) numbers[i++] = link->*number;
  return std::string(bytes_of(numbers));
}

std::optional<std::string> CostSwitch::hear(std::span<const std::byte> proposal,
                                            std::uint64_t ordered) {
  const auto numbers = value_of<Numbers>(proposal);
  if (!numbers || proposed_) return std::nullopt;
  LinkCosts costs;
  std::size_t i = 0;
  for (LinkCost* const link : {&costs.inside, &costs.across})
    for (const auto number : kLinkCostNumbers) link->*number = (*numbers)[i++];
  begin(costs, ordered);
  return std::string(bytes_of(ordered));
}

bool CostSwitch::waits_for(int rank) const {
  return proposed_ && !has_answered_.at(static_cast<std::size_t>(rank));
}

void CostSwitch::count_answer(int rank, std::uint64_t ordered) {
  most_begun_ = std::max(most_begun_, ordered);
  has_answered_.at(static_cast<std::size_t>(rank)) = true;
}

bool CostSwitch::take_answer(int rank, std::span<const std::byte> answer) {
  const auto ordered = value_of<std::uint64_t>(answer);
  if (!ordered || !waits_for(rank)) return false;
  count_answer(rank, *ordered);
  return true;
}

void CostSwitch::rank_left(int rank, std::uint64_t ordered) {
  if (waits_for(rank)) count_answer(rank, ordered);
}

std::optional<std::string> CostSwitch::settle(std::uint64_t lists) {
  if (!proposed_) return std::nullopt;
  const bool have_all =
      std::find(has_answered_.begin(), has_answered_.end(), false) == has_answered_.end();
  if (!have_all) return std::nullopt;
  const From from{.ordered = most_begun_ + kAhead, .list = lists};
  apply(from);
  return std::string(bytes_of(from));
}

bool CostSwitch::take_settlement(std::span<const std::byte> settlement) {
  const auto from = value_of<From>(settlement);
  if (!from || !proposed_ || from->ordered < bound_) return false;
  apply(*from);
  return true;
}

void CostSwitch::withdraw() {
  proposed_.reset();
  bound_ = kNoBound;
}

void CostSwitch::apply(From from) {
  AllreducePolicy policy = versions_.front().policy;
  policy.network.inside = proposed_->inside;
  policy.network.across = proposed_->across;
  versions_.push_back({from, std::move(policy)});
  withdraw();
  ++switches_;
}

const AllreducePolicy& CostSwitch::of_ordered(std::uint64_t sequence) const {
  auto version = versions_.end() - 1;
  while (version->from.ordered > sequence) --version;
  return version->policy;
}

const AllreducePolicy& CostSwitch::of_list(std::uint64_t list) const {
  auto version = versions_.end() - 1;
  while (version->from.list > list) --version;
  return version->policy;
}

std::optional<LinkCosts> CostSwitch::newest() const {
  if (versions_.size() == 1) return std::nullopt;
  const Network& network = versions_.back().policy.network;
  return LinkCosts{network.inside, network.across};
}

}  // namespace kolo
