#include "bindings/core/regroup.h"

#include "bindings/core/global.h"
#include "runtime/base/check.h"
#include "runtime/base/environment.h"
#include "runtime/bootstrap/kept_port.h"
#include "runtime/bootstrap/secret.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

constexpr std::string_view kScheme = "kolo:";
constexpr std::size_t kRandomDigits = 32;

/// Where this process would serve a meeting.
struct OwnHandle {
  KeptPort port;
  std::string text;
};

Result<OwnHandle> make_handle() {
  Status ignored;  // init() reports what is wrong with the configuration
  const Environment environment = Environment::of_process();
  KOLO_ASSIGN(KeptPort port, keep_port(Config::from_environment(environment, ignored).interface));
  KOLO_ASSIGN(const std::string random, random_bytes(kRandomDigits / 2));
  std::string text = fmt::format("{}{}:{}", kScheme, to_hex(random), to_text(port.endpoint));
  return OwnHandle{std::move(port), std::move(text)};
}

/// Precondition: the text begins as a handle does.
Result<Endpoint> endpoint_of(const std::string& handle) {
  return parse_endpoint(std::string_view(handle).substr(kScheme.size() + kRandomDigits + 1));
}

}  // namespace

std::string meeting_handle() {
  static std::mutex mutex;
  static std::optional<OwnHandle>& own = *new std::optional<OwnHandle>;
  const std::lock_guard lock(mutex);
  if (!own) own = value_or_throw(make_handle());
  return own->text;
}

bool is_meeting_handle(const std::string& text) {
  const std::size_t colon = kScheme.size() + kRandomDigits;
  if (!text.starts_with(kScheme) || text.size() <= colon || text[colon] != ':') return false;
  const auto endpoint = endpoint_of(text);
  return endpoint.ok() && endpoint->port != 0;
}

void meet_by_handles(const std::vector<std::string>& handles, std::int64_t number,
                     std::optional<std::chrono::seconds> timeout) {
  const std::string own = meeting_handle();
  regroup([&](InitOptions& options) {
    // A new process has neither.
    options.store = nullptr;
    options.group_name = {};
    Regroup meeting{.way = way_by(Meeting::kTcp, "handles", "the group was reconfigured"),
                    .timeout = timeout};
    meeting.way.endpoint = value_or_throw(endpoint_of(handles.front()));
    meeting.way.rank =
        static_cast<int>(std::find(handles.begin(), handles.end(), own) - handles.begin());
    meeting.way.size = static_cast<int>(handles.size());
    if (meeting.way.size == 1) meeting.way.meeting = Meeting::kSingle;
    // Who has the handles belongs to the meeting, whatever launcher has started it.
    meeting.secret = to_hex(sha256(fmt::format("{} {}", number, fmt::join(handles, " "))));
    return meeting;
  });
}

void meet_without(const std::vector<int>& excluded, std::optional<std::chrono::seconds> timeout) {
  const int rank = kolo::rank();
  const int size = kolo::size();
  regroup([&](InitOptions& options) {
    if (options.store == nullptr) {
      raise(KOLO_ERROR(kUnsupported,
                       "rank {}: the ranks that are left meet over InitOptions::store, which was "
                       "not given to kolo::init(); give one, or call reconfigure()",
                       rank));
    }
    options.group_name += fmt::format(" without {}", fmt::join(excluded, ","));
    Regroup meeting{.way = way_by(Meeting::kStore, "store", "the group was shrunk"),
                    .timeout = timeout};
    const auto below = std::lower_bound(excluded.begin(), excluded.end(), rank);
    meeting.way.rank = rank - static_cast<int>(below - excluded.begin());
    meeting.way.size = size - static_cast<int>(excluded.size());
    if (meeting.way.size == 1) meeting.way.meeting = Meeting::kSingle;
    return meeting;
  });
}

bool has_failed() { return runtime_for("has_failed")->is_over(); }

void abort_process_set(const ProcessSet& set, const std::string& reason) {
  if (is_initialized() && !InCall::here())
    runtime_for("abort_process_set")->abort_process_set(set.id(), reason);
}

ProcessSet add_process_set_by_its_ranks(const std::vector<int>& ranks) {
  const auto work =
      value_or_throw(runtime_for("add_process_set")->add_process_set(ranks, /*by_its_ranks=*/true));
  synchronize(*work);
  return ProcessSet(static_cast<std::uint32_t>(work->outcome().value));
}

void remove_process_set_by_its_ranks(const ProcessSet& set) {
  static_cast<void>(value_or_throw(
      runtime_for("remove_process_set")->remove_process_set(set.id(), /*by_its_ranks=*/true)));
}

}  // namespace kolo
