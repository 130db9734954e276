#include "tools/run/node_frames.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace kolo::run {
namespace {

/// By Roster::End.
constexpr std::array<std::string_view, 5> kEnds = {"done", "asked", "no login", "cut", "failed"};

std::string text(int number) { return std::to_string(number); }

int number_or(const std::string& text, int otherwise) {
  return parse_count(text).value_or(otherwise);
}

}  // namespace

Fields start_frame(const Place& place) {
  return {std::string(kStartOrder), text(place.process), text(place.rank), text(place.local_rank),
          text(place.local_size)};
}

Fields order_frame(std::string_view order, int process) {
  return {std::string(order), text(process)};
}

Fields over_frame() { return {std::string(kOverOrder)}; }

Fields quit_frame(int exit_code, const std::string& why) {
  return {std::string(kQuitOrder), text(exit_code), why};
}

std::optional<NodeOrder> parse_order(const Fields& frame) {
  NodeOrder order{.kind = frame[0]};
  const std::string_view kind = order.kind;
  if (kind == kOverOrder && frame.size() == 1) return order;
  if (kind == kQuitOrder && frame.size() == 3) {
    order.exit_code = number_or(frame[1], 1);
    order.why = frame[2];
    return order;
  }
  const bool is_start = kind == kStartOrder && frame.size() == 5;
  const bool is_other =
      (kind == kEndOrder || kind == kKillOrder || kind == kDismissOrder) && frame.size() == 2;
  if (!is_start && !is_other) return std::nullopt;
  const std::array<int*, 4> numbers = {&order.place.process, &order.place.rank,
                                       &order.place.local_rank, &order.place.local_size};
  for (std::size_t i = 1; i < frame.size(); ++i) {
    const auto number = parse_count(frame[i]);
    if (!number) return std::nullopt;
    *numbers.at(i - 1) = *number;
  }
  return order;
}

ProcessEnd end_of(const Process& process, Roster::End end) {
  return {process.place.process, end, process.pid, exit_code_of(process.status),
          describe_status(process.status)};
}

std::string describe(const ProcessEnd& ended, const std::string& host) {
  return fmt::format("process {} on {} (pid {}) ended with {}", ended.process, host, ended.pid,
                     ended.how);
}

Fields ended_frame(const ProcessEnd& ended) {
  const auto kind = static_cast<std::size_t>(ended.end);
  return {std::string(kEndedRequest),
          text(ended.process),
          ended.end == Roster::End::kDone ? "1" : "0",
          std::string(kEnds.at(kind)),
          text(ended.pid),
          text(ended.exit_code),
          ended.how};
}

ProcessEnd parse_end(int process, const Fields& told) {
  ProcessEnd ended{.process = process, .how = "an unknown status"};
  if (told.size() != 4) return ended;
  for (std::size_t kind = 0; kind < kEnds.size(); ++kind)
    if (told[0] == kEnds.at(kind)) ended.end = static_cast<Roster::End>(kind);
  ended.pid = number_or(told[1], 0);
  ended.exit_code = number_or(told[2], 1);
  ended.how = told[3];
  return ended;
}

}  // namespace kolo::run
