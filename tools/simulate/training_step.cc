#include "tools/simulate/training_step.h"

#include "runtime/fusion/fusion_plan.h"
#include "runtime/negotiation/count_dissemination.h"
#include "tools/perf/problem.h"
#include "tools/simulate/collective.h"

#include <fmt/format.h>
#include <kolo/config.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace kolo::simulate {
namespace {

using nlohmann::json;

/// A submitted all-reduce of a timeline.
struct Submitted {
  double at_us;
  std::string name;
  Gradient gradient;
};

struct Step {
  double begin_us;
  double end_us;  ///< when the next one begins
  std::vector<Submitted> calls;
};

std::vector<Submitted> calls_of(const json& trace) {
  const auto types = perf::types_by_name();
  std::vector<Submitted> calls;
  for (const json& event : trace) {
    if (event.value("cat", "") != "tensor" || event.value("name", "") != "allreduce") continue;
    const json& of = event.at("args");
    const auto name = of.at("tensor").get<std::string>();
    const auto type = types.find(of.at("type").get<std::string>());
    if (type == types.end() || of.value("process_set", 0) != 0 || name.starts_with('('))
      continue;  // in order
    calls.push_back({event.at("ts").get<double>(),
                     name,
                     {.bytes = of.at("bytes").get<std::uint64_t>(), .type = type->second}});
  }
  std::sort(calls.begin(), calls.end(),
            [](const Submitted& a, const Submitted& b) { return a.at_us < b.at_us; });
  return calls;
}

std::vector<Step> steps_of(std::vector<Submitted> calls) {
  std::vector<Step> steps;
  std::set<std::string> names;
  for (Submitted& call : calls) {
    if (steps.empty() || !names.insert(call.name).second) {
      if (!steps.empty()) steps.back().end_us = call.at_us;
      steps.push_back({.begin_us = call.at_us, .end_us = call.at_us, .calls = {}});
      names = {call.name};
    }
    steps.back().calls.push_back(std::move(call));
  }
  return steps;
}

double waited_us(const json& trace, const Step& step) {
  double waited = 0;
  for (const json& event : trace) {
    if (event.value("cat", "") != "wait") continue;
    const double begin = event.at("ts").get<double>();
    const double end = begin + event.at("dur").get<double>();
    waited += std::max(0.0, std::min(end, step.end_us) - std::max(begin, step.begin_us));
  }
  return waited;
}

Result<Profile> profile_of(const json& trace) {
  std::vector<Step> steps = steps_of(calls_of(trace));
  if (steps.size() < 3)
    return KOLO_ERROR(kInvalidArgument,
                      "it has {} steps of named all-reduces, and the first and the last do not "
                      "count: record three at least",
                      steps.size());
  const auto first = steps.begin() + 1, last = steps.end() - 1;
  const auto middle = first + (last - first) / 2;
  std::nth_element(first, middle, last, [](const Step& a, const Step& b) {
    return a.end_us - a.begin_us < b.end_us - b.begin_us;
  });
  Profile profile;
  profile.compute_us = middle->end_us - middle->begin_us - waited_us(trace, *middle);
  for (Submitted& call : middle->calls) {
    call.gradient.ready_us = call.at_us - middle->begin_us;
    profile.gradients.push_back(call.gradient);
  }
  return profile;
}

/// When the gradients from `first` on are announced: as a batch, after its window, or because the
/// step waits for them.
double announced_us(const std::vector<Gradient>& gradients, std::size_t first,
                    const Config& config) {
  double at = std::min(gradients[first].ready_us + static_cast<double>(config.batch_window_us),
                       gradients.back().ready_us);
  std::uint64_t bytes = 0;
  for (std::size_t i = first; i < gradients.size() && gradients[i].ready_us < at; ++i) {
    bytes += gradients[i].bytes;
    if (bytes >= static_cast<std::uint64_t>(config.batch_size)) at = gradients[i].ready_us;
  }
  return at;
}

Response response_of(const Gradient& gradient, const Machine& machine) {
  Response response;
  response.signature.type = gradient.type;
  response.signature.shape = {static_cast<std::int64_t>(gradient.bytes / size_of(gradient.type))};
  response.contributors = response.participants = machine.ranks();
  return response;
}

/// Times of all-reduces that were played already.
class KnownTimes {
 public:
  explicit KnownTimes(const Machine& machine) : machine_(machine) {}

  Result<double> of(std::uint64_t bytes, DataType type) {
    const auto key = std::pair(bytes, type);
    if (const auto known = times_.find(key); known != times_.end()) return known->second;
    Call call{.bytes = bytes, .type = type};
    call.algorithm = choice_of(machine_, call);
    KOLO_ASSIGN(const Time time, time_of(machine_, call));
    return times_[key] = time.us;
  }

 private:
  const Machine& machine_;
  std::map<std::pair<std::uint64_t, DataType>, double> times_;
};

}  // namespace

Result<Profile> read_profile(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    return KOLO_ERROR(kInvalidArgument, "'{}' is no timeline of a training: {}", path, why);
  };
  std::ifstream file(path);
  if (!file) return refuse("it cannot be read");
  try {
    const json read = json::parse(file);
    auto profile = profile_of(read.is_object() ? read.at("traceEvents") : read);
    return profile.ok() ? profile : refuse(profile.error().message);
  } catch (const json::exception& error) {
    return refuse(error.what());
  }
}

double agreement_us(const Machine& machine) {
  const Link& link = machine.across;
  double us = 0;
  for (const std::vector<int>& round : dissemination_rounds(machine.hosts))
    us += link.latency_us + static_cast<double>(round.size() + 1) * link.overhead_us;
  return us;
}

double negotiation_us(const Machine& machine) {
  const auto degree = static_cast<int>(Config().control_degree);
  const Link& link = machine.hosts > 1 ? machine.across : machine.inside;
  double us = 0;
  for (int ranks = machine.ranks(); ranks > 1; ranks = (ranks + degree - 1) / degree) {
    const bool is_flat = ranks - 1 <= degree;
    const int children = is_flat ? ranks - 1 : degree;
    us += 2 * (link.latency_us + (children + 1) * link.overhead_us);
    if (is_flat) break;
  }
  return us;
}

Result<StepTime> time_of(const Machine& machine, const Profile& profile) {
  const std::vector<Gradient>& gradients = profile.gradients;
  const Config config;
  KnownTimes played(machine);
  StepTime step;
  double now = 0;
  for (std::size_t next = 0; next < gradients.size();) {
    now = std::max(now, announced_us(gradients, next, config));
    std::vector<Response> ready;
    for (; next < gradients.size() && gradients[next].ready_us <= now; ++next)
      ready.push_back(response_of(gradients[next], machine));
    std::vector<const Response*> list;
    for (const Response& response : ready) list.push_back(&response);
    double us = agreement_us(machine);
    for (const FusedGroup& group : plan_fusion(list, {})) {
      std::uint64_t bytes = 0;
      for (const std::size_t member : group) bytes += ready[member].signature.bytes();
      KOLO_ASSIGN(const double time, played.of(bytes, ready[group.front()].signature.type));
      us += time;
      ++step.operations;
    }
    step.communication_us += us;
    now += us;
  }
  step.exposed_us = now - gradients.back().ready_us;
  return step;
}

}  // namespace kolo::simulate
