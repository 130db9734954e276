#include "tools/run/binding.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/store_wire.h"
#include "runtime/topology/cpu_limit.h"
#include "runtime/topology/host.h"
#include "tools/run/cannot_run.h"
#include "tools/run/placement.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace kolo::run {

Result<std::vector<int>> cores_of_rank(const std::string& bind, int local_rank, int local_size,
                                       const std::vector<int>& cores) {
  const auto count = static_cast<std::ptrdiff_t>(cores.size());
  if (bind == "core" && local_size > count) {
    return KOLO_ERROR(kInvalidArgument,
                      "--bind core: {} ranks on this host, {}, but {} cores that they may use; "
                      "start fewer ranks there, or leave --bind out",
                      local_size, this_host(), count);
  }
  if (bind == "none" || local_size > count) return std::vector<int>();
  const auto begin = count * local_rank / local_size;
  const auto end = count * (local_rank + 1) / local_size;
  return std::vector<int>(cores.begin() + begin, cores.begin() + end);
}

int threads_of_rank(int local_size, const std::vector<int>& cores) {
  return std::max(1, cores_within_limit(static_cast<int>(cores.size())) / local_size);
}

Error become_rank(const std::vector<std::string>& words, const Environment& environment) {
  const bool complete = words.size() > 3;
  const int rank = complete ? parse_count(words[0]).value_or(0) : 0;
  const int size = complete ? parse_count(words[1]).value_or(0) : 0;
  if (rank >= size) {
    return KOLO_ERROR(kInvalidArgument,
                      "{} is kolo-run's own and takes a local rank, their number, what --bind says "
                      "and a program; is another version of kolo installed on {}?",
                      kAsRank, this_host());
  }
  const std::vector<int> cores = usable_cores();
  const auto own = cores_of_rank(words[2], rank, size, cores);
  if (!own.ok()) return own.error();
  if (!own->empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : *own) CPU_SET(static_cast<std::size_t>(core), &set);
    // An unbound rank is slower, not wrong.
    if (::sched_setaffinity(0, sizeof set, &set) != 0) {
      fmt::print(stderr, "kolo-run: local rank {} on {} is not bound to cores: {}\n", rank,
                 this_host(), std::generic_category().message(errno));
    }
  }
  Environment::Variables variables = environment.variables();
  variables.emplace("OMP_NUM_THREADS", std::to_string(threads_of_rank(size, cores)));
  return become({words.begin() + 3, words.end()}, variables);
}

Error become(std::vector<std::string> command, const Environment::Variables& variables) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
  std::vector<char*> arguments;
  std::vector<char*> settings;
  for (std::string& word : command) arguments.push_back(word.data());
  for (std::string& text : texts) settings.push_back(text.data());
  arguments.push_back(nullptr);
  settings.push_back(nullptr);
  ::execvpe(arguments[0], arguments.data(), settings.data());
  const std::string why = why_it_cannot_run(command[0], errno);
  return KOLO_ERROR(kInvalidArgument, "cannot run '{}' on {}: {}", command[0], this_host(), why);
}

}  // namespace kolo::run
