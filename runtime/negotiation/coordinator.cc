#include "runtime/negotiation/coordinator.h"

#include "runtime/base/check.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace kolo {
namespace {

std::string rank_list(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

Status Coordinator::ready(int rank, const std::string& name, const Signature& signature,
                          bool absent, Clock::time_point now) {
  auto [it, is_new] = pending_.try_emplace(name);
  Pending& pending = it->second;
  if (is_new) {
    pending.is_ready.resize(static_cast<std::size_t>(size_));
    pending.since = now;
  }
  if (pending.is_ready[static_cast<std::size_t>(rank)]) {
    return KOLO_ERROR(kInternal, "rank {} announced tensor '{}' twice", rank, name);
  }
  pending.is_ready[static_cast<std::size_t>(rank)] = true;
  ++pending.ready_count;
  if (!absent) ++pending.contributors;

  const auto variant = std::find_if(pending.variants.begin(), pending.variants.end(),
                                    [&](const Variant& v) { return v.signature == signature; });
  if (variant != pending.variants.end()) {
    variant->ranks.push_back(rank);
  } else {
    pending.variants.push_back({signature, {rank}});
  }
  if (pending.ready_count == size_) {
    decide(name, pending);
    pending_.erase(it);
  }
  return {};
}

void Coordinator::decide(const std::string& name, const Pending& pending) {
  Response response{name, pending.variants.front().signature, pending.contributors, std::nullopt};
  if (pending.variants.size() > 1) {
    // Ranks arrive in any order; the message shall not depend on it.
    std::vector<Variant> variants = pending.variants;
    for (Variant& variant : variants) std::sort(variant.ranks.begin(), variant.ranks.end());
    std::sort(variants.begin(), variants.end(),
              [](const Variant& a, const Variant& b) { return a.ranks.front() < b.ranks.front(); });
    const Variant& a = variants[0];
    const Variant& b = variants[1];
    const SignatureDifference differ = difference(a.signature, b.signature);
    response.error = KOLO_ERROR(
        kMismatch,
        "tensor '{}': {} submitted {} {}, but {} submitted {} {}; every rank must submit the same "
        "{} under one name",
        name, rank_list(a.ranks), differ.field, differ.a, rank_list(b.ranks), differ.field,
        differ.b, differ.field);
  }
  decided_bytes_ += response.error ? 0 : response.signature.bytes();
  decided_.push_back(std::move(response));
}

std::vector<Response> Coordinator::take_decisions() {
  decided_bytes_ = 0;
  return std::exchange(decided_, {});
}

std::string Coordinator::who_is_missing(const Pending& pending) const {
  std::vector<int> ready;
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    (pending.is_ready[static_cast<std::size_t>(rank)] ? ready : missing).push_back(rank);
  }
  return fmt::format("submitted by {}, missing on {}", rank_list(ready), rank_list(missing));
}

void Coordinator::expire(Clock::time_point now, Clock::duration timeout) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const Pending& pending = it->second;
    if (now - pending.since < timeout) {
      ++it;
      continue;
    }
    Response response{it->first, pending.variants.front().signature, 0, std::nullopt};
    response.error = KOLO_ERROR(
        kTimeout, "tensor '{}': {} after {} s; every rank must submit it (KOLO_OPERATION_TIMEOUT)",
        it->first, who_is_missing(pending),
        std::chrono::duration_cast<std::chrono::seconds>(now - pending.since).count());
    decided_.push_back(std::move(response));
    it = pending_.erase(it);
  }
}

std::vector<std::string> Coordinator::stalled(Clock::time_point now, Clock::duration age) {
  std::vector<std::string> lines;
  for (auto& [name, pending] : pending_) {
    if (pending.reported || now - pending.since < age) continue;
    pending.reported = true;
    lines.push_back(
        fmt::format("tensor '{}' has waited for {} s: {}", name,
                    std::chrono::duration_cast<std::chrono::seconds>(now - pending.since).count(),
                    who_is_missing(pending)));
  }
  return lines;
}

}  // namespace kolo
