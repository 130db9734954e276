#include "runtime/health/departures.h"

#include <cstring>

namespace kolo {

std::string Departures::encode(const Progress& progress) {
  static_assert(std::is_trivially_copyable_v<Progress>);
  return {reinterpret_cast<const char*>(&progress), sizeof progress};
}

bool Departures::add(int rank, std::span<const std::byte> goodbye) {
  Progress progress;
  if (goodbye.size() != sizeof progress) return false;
  std::memcpy(&progress, goodbye.data(), sizeof progress);
  auto& slot = gone_[static_cast<std::size_t>(rank)];
  if (!slot) ++count_;
  slot = progress;
  return true;
}

std::optional<int> Departures::missing_in(Door door, std::uint64_t sequence) const {
  for (std::size_t rank = 0; rank < gone_.size(); ++rank) {
    const auto& progress = gone_[rank];
    if (progress && progress->operations[static_cast<std::size_t>(door)] <= sequence) {
      return static_cast<int>(rank);
    }
  }
  return std::nullopt;
}

std::optional<int> Departures::missing_in_negotiation(std::uint64_t agreements) const {
  for (std::size_t rank = 0; rank < gone_.size(); ++rank) {
    if (gone_[rank] && gone_[rank]->agreements <= agreements) return static_cast<int>(rank);
  }
  return std::nullopt;
}

}  // namespace kolo
