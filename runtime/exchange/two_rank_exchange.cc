#include "runtime/exchange/two_rank_exchange.h"

#include "runtime/base/check.h"

#include <fmt/format.h>

#include <cstring>

namespace kolo {

void TwoRankExchange::begin(std::span<const std::byte> input, std::uint64_t sequence,
                            std::uint64_t call) {
  KOLO_CHECK(pending_ == 0 && communicator_.size() == 2);
  KOLO_CHECK(!input.empty() && input.size() <= kLargest);
  bytes_ = input.size();
  // A copy, since the caller may be told of a failure while the send is still under way.
  std::memcpy(own_.data(), input.data(), bytes_);
  send_ = Transfer(*this, 0);
  receive_ = Transfer(*this, 1);
  pending_ = 2;
  const Tag tag{communicator_.tag_space(SubmissionMode::kInOrder), 0, sequence, call};
  transport_.receive(partner(), tag, std::span(other_).first(bytes_), receive_);
  transport_.send(partner(), tag, std::span(own_).first(bytes_), send_);
}

void TwoRankExchange::on_transfer_done(Transfer& transfer) {
  --pending_;
  if (transfer.status().ok() || !status_.ok()) return;
  const Error& error = transfer.status().error();
  status_ = Error{error.code,
                  fmt::format("rank {}: {} rank {}{}: {}", communicator_.world().rank(),
                              transfer.id() == 0 ? "sending to" : "receiving from", partner(),
                              communicator_.suffix(), error.message),
                  error.file, error.line};
}

void TwoRankExchange::combine(const Device& device, DataType type, ReduceOp op, Scale postscale,
                              std::byte* output) {
  const bool is_lower = communicator_.rank() == 0;
  const std::byte* const sources[] = {is_lower ? own_.data() : other_.data(),
                                      is_lower ? other_.data() : own_.data()};
  device.reduce(type, op, output, sources, bytes_ / size_of(type), postscale);
}

}  // namespace kolo
