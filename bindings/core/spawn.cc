// spawn(): the caller restarts the program once for each rank. Each child runs the function and
// exits. The caller's thread.
#include <kolo/spawn.h>

#include "bindings/core/global.h"
#include "runtime/base/check.h"
#include "runtime/bootstrap/launcher.h"
#include "runtime/bootstrap/local_ranks.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace kolo {
namespace {

[[noreturn]] void run_as_rank(const std::function<int()>& fn) {
  // A rank must not outlive the process that waits for it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!spawned_by_call(Environment::of_process())) std::_Exit(1);
  int status = 1;
  try {
    status = fn();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  std::exit(status);
}

void check_call(int nprocs) {
  if (nprocs < 0) {
    raise(KOLO_ERROR(kInvalidArgument,
                     "kolo::spawn: {} processes; expected 1 or more, or 0 for one "
                     "a CUDA device",
                     nprocs));
  }
  if (is_initialized()) {
    raise(KOLO_ERROR(kUnsupported,
                     "kolo::spawn() was called after kolo::init(): the ranks that it "
                     "starts call init(), the caller does not"));
  }
}

}  // namespace

int spawn(int nprocs, const std::function<int()>& fn) {
  static std::atomic<int> calls = 0;
  const int call = ++calls;
  check_call(nprocs);
  const Environment environment = Environment::of_process();
  if (const auto mine = spawned_by_call(environment)) {
    if (*mine == call) run_as_rank(fn);
    return 0;  // an earlier call, whose ranks have ended
  }
  if (is_orphan_of_spawn(environment)) std::_Exit(1);
  if (environment.get("KOLO_RANK")) return fn();
  if (const auto hint = value_or_throw(find_launcher(environment))) {
    if (hint->size == 1 && nprocs > 1) {
      fmt::print(stderr,
                 "kolo::spawn({}) runs on 1 rank: {} has started this process alone ({}=1); "
                 "have {} started there, or start the program without it\n",
                 nprocs, hint->launcher, hint->variable, nprocs);
    }
    return fn();
  }
  const int count = nprocs > 0 ? nprocs : std::max(1, visible_devices(environment));
  return value_or_throw(run_local_ranks(count, call, environment));
}

}  // namespace kolo
