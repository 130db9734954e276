#include "tools/run/blacklist.h"

#include <fmt/format.h>

namespace kolo::run {

std::string Blacklist::note_failure(const std::string& host, Time now) {
  if (!is_usable(host, now)) return "";
  Record& record = hosts_[host];
  record.usable_at = now + kCoolDown * (1 << record.failures);
  ++record.failures;
  return fmt::format("{} is {}, after {} failure{} in a row there", host, state_of(host, now),
                     record.failures, record.failures == 1 ? "" : "s");
}

bool Blacklist::is_usable(const std::string& host, Time now) const {
  const auto record = hosts_.find(host);
  return record == hosts_.end() || (!is_out(host) && now >= record->second.usable_at);
}

bool Blacklist::is_out(const std::string& host) const {
  const auto record = hosts_.find(host);
  return record != hosts_.end() && record->second.failures >= kMostFailures;
}

std::string Blacklist::state_of(const std::string& host, Time now) const {
  if (is_usable(host, now)) return "";
  if (is_out(host)) return "not used any more";
  const auto left = hosts_.at(host).usable_at - now;
  return fmt::format("not used for {} s", std::chrono::ceil<std::chrono::seconds>(left).count());
}

}  // namespace kolo::run
