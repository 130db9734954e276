#include "runtime/health/departures.h"

#include "runtime/base/plain_bytes.h"

namespace kolo {

bool Progress::has_done(SubmissionMode mode, std::uint64_t sequence) const {
  return sequence < operations[static_cast<std::size_t>(mode)] && !has_refused(mode, sequence);
}

bool Progress::has_refused(SubmissionMode mode, std::uint64_t sequence) const {
  const std::uint64_t end = operations[static_cast<std::size_t>(mode)];
  if (mode != SubmissionMode::kInOrder || sequence >= end) return false;
  const std::uint64_t before_end = end - sequence - 1;
  return before_end < 64 && (refused >> before_end & 1) != 0;
}

std::string Departures::encode(const Progress& progress) { return std::string(bytes_of(progress)); }

bool Departures::add(int rank, std::span<const std::byte> notice) {
  const auto progress = value_of<Progress>(notice);
  if (progress) set(rank, *progress);
  return progress.has_value();
}

void Departures::add_absent(int rank) { set(rank, {}); }

void Departures::set(int rank, const Progress& progress) {
  auto& slot = gone_[static_cast<std::size_t>(rank)];
  if (!slot) ++count_;
  slot = progress;
}

std::optional<int> Departures::missing_in(SubmissionMode mode, std::uint64_t sequence) const {
  for (std::size_t rank = 0; rank < gone_.size(); ++rank) {
    if (gone_[rank] && !gone_[rank]->has_done(mode, sequence)) return static_cast<int>(rank);
  }
  return std::nullopt;
}

bool Departures::is_missing_in_negotiation(int rank, std::uint64_t agreements) const {
  const std::optional<Progress>& progress = progress_of(rank);
  return progress && progress->agreements <= agreements;
}

}  // namespace kolo
