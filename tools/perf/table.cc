#include "tools/perf/table.h"

#include "tools/perf/statistics.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdio>

namespace kolo::perf {
namespace {

constexpr int kLeftWidth = 60;
constexpr int kHalfWidth = 32;
constexpr int kPercentilesWidth = 30;
constexpr int kPeerWidth = 31;

const nlohmann::json* find(const nlohmann::json& list, const char* key, const std::string& name,
                           bool in_place) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& entry) {
    return entry[key] == name && entry["in_place"] == in_place;
  });
  return found == list.end() ? nullptr : &*found;
}

/// Two decimals, fewer for a long number.
std::string time_text(double microseconds) {
  return fmt::format("{:9.{}f}", microseconds, microseconds < 99999 ? 2 : 0);
}

std::string count_text(const nlohmann::json& wrong) {
  return wrong.is_null() ? "N/A" : std::to_string(wrong.get<std::int64_t>());
}

}  // namespace

Table::Table(const std::vector<std::unique_ptr<Engine>>& engines, bool percentiles)
    : percentiles_(percentiles) {
  for (std::size_t i = 1; i < engines.size(); ++i) peers_.emplace_back(engines[i]->name());
}

void Table::print_header(Collective collective) const {
  const int half = kHalfWidth + (percentiles_ ? kPercentilesWidth : 0);
  std::string first = fmt::format("# {:<{}} {:^{}}  {:^{}}", to_string(collective), kLeftWidth - 2,
                                  "out-of-place", half, "in-place", half);
  const std::string more = percentiles_ ? "       p10       p90       p99" : "";
  const std::string names = fmt::format("     time{}   algbw   busbw #wrong", more);
  const std::string empty = percentiles_ ? "      (us)      (us)      (us)" : "";
  const std::string units = fmt::format("     (us){}  (GB/s)  (GB/s)       ", empty);
  std::string second = fmt::format("#{:>11} {:>13} {:>10} {:>8} {:>4} {:>7} {}  {}", "size",
                                   "count", "type", "redop", "root", "state", names, names);
  std::string third =
      fmt::format("#{:>11} {:>13} {:>32} {}  {}", "(B)", "(elements)", "", units, units);
  for (const bool in_place : {false, true}) {
    for (const std::string& name : peers_of(in_place)) {
      first += fmt::format(" | {:^{}}", name + (in_place ? ", in-place" : ", out-of-place"),
                           kPeerWidth - 3);
      second += fmt::format(" | {:>9} {:>6} {:>11}", "time", "kolo/", "p10-p90");
      third += fmt::format(" | {:>9} {:>6} {:>11}", "(us)", name.substr(0, 6), "");
    }
  }
  fmt::print("{}\n{}\n{}\n", first, second, third);
}

/// A copy has no in-place form.
std::vector<std::string> Table::peers_of(bool in_place) const {
  std::vector<std::string> peers = peers_;
  if (in_place) std::erase(peers, "memcpy");
  return peers;
}

std::string Table::half(const nlohmann::json& row, bool in_place) const {
  const nlohmann::json* const result = find(row["results"], "engine", "kolo", in_place);
  if (result == nullptr) {
    return fmt::format("{:>9}{} {:>7} {:>7} {:>6}", "N/A",
                       std::string(percentiles_ ? kPercentilesWidth : 0, ' '), "", "", "");
  }
  std::string more;
  for (const char* key : {"p10_us", "p90_us", "p99_us"}) {
    if (percentiles_) more += ' ' + time_text((*result)[key].get<double>());
  }
  return fmt::format("{}{} {:7.2f} {:7.2f} {:>6}", time_text((*result)["time_us"].get<double>()),
                     more, (*result)["algbw_GBps"].get<double>(),
                     (*result)["busbw_GBps"].get<double>(), count_text((*result)["wrong"]));
}

std::string Table::peer(const nlohmann::json& row, const std::string& name, bool in_place) const {
  const nlohmann::json* const result = find(row["results"], "engine", name, in_place);
  const nlohmann::json* const ratio = find(row["ratios"], "peer", name, in_place);
  if (result == nullptr || ratio == nullptr) {
    return fmt::format(" | {:>9} {:>6} {:>11}", "N/A", "", "");
  }
  // A wrong result voids the comparison.
  const auto& wrong = (*result)["wrong"];
  if (!wrong.is_null() && wrong != 0) {
    return fmt::format(" | {} {:>18}", time_text((*result)["time_us"].get<double>()),
                       fmt::format("{} WRONG", count_text(wrong)));
  }
  return fmt::format(
      " | {} {:6.2f} {:>11}", time_text((*result)["time_us"].get<double>()),
      (*ratio)["median"].get<double>(),
      fmt::format("{:.2f}-{:.2f}", (*ratio)["p10"].get<double>(), (*ratio)["p90"].get<double>()));
}

void Table::print_row(const nlohmann::json& row) const {
  const auto text = [&](const char* key) {
    return row[key].is_null() ? std::string("none") : row[key].get<std::string>();
  };
  const int root = row["root"].is_null() ? -1 : row["root"].get<int>();
  std::string line =
      fmt::format("{:>12} {:>13} {:>10} {:>8} {:>4} {:>7} {}  {}", row["size"].get<std::size_t>(),
                  row["count"].get<std::int64_t>(), text("type"), text("redop"), root,
                  text("state") + (row["busy"].get<double>() >= kBusy ? "*" : ""), half(row, false),
                  half(row, true));
  for (const bool in_place : {false, true}) {
    for (const std::string& name : peers_of(in_place)) line += peer(row, name, in_place);
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace kolo::perf
