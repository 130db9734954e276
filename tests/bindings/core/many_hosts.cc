// A job of many hosts with one rank each, as far as kolo can tell (KOLO_HOST_ID). The ranks start
// with few descriptors and connect over TCP. Then they all end at once, or one dies. Started by
// kolo-run: many_hosts end|ordered|die|connect|receive. `ordered` makes no negotiated calls, which
// all pass through rank 0. With `connect`, the rank dies in the first call that has messages for
// all other ranks. With `receive`, one rank waits for a message from another, which leaves.
#include <kolo/kolo.h>

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

void begin_with_few_descriptors() {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &files);
}

void sum(bool ordered) {
  float value = 1.0F;
  if (ordered) {
    kolo::allreduce_ordered(&value, &value, 1, kolo::DataType::kFloat32, kolo::ReduceOp::kSum);
  } else {
    kolo::allreduce(&value, &value, {1}, kolo::DataType::kFloat32, {.name = "sum"});
  }
  if (value == static_cast<float>(kolo::size())) return;
  std::fprintf(stderr, "rank %d: the sum is wrong: %g\n", kolo::rank(), value);
  std::exit(4);
}

void exchange_with_all() {
  const std::vector<float> input(static_cast<std::size_t>(kolo::size()), 1.0F);
  std::vector<float> output(input.size());
  kolo::alltoall_ordered(input.data(), output.data(), 1, kolo::DataType::kFloat32);
}

/// Until another rank's death ends it, perhaps before the first sum has ended everywhere.
int go_on(int dying, bool while_connecting) {
  try {
    if (while_connecting) {
      // About as long as the exchange takes.
      const itimerval soon{{}, {0, 20'000}};
      std::signal(SIGALRM, [](int) { std::raise(SIGKILL); });
      if (kolo::rank() == dying) setitimer(ITIMER_REAL, &soon, nullptr);
      while (true) exchange_with_all();
    }
    sum(false);
    if (kolo::rank() == dying) std::raise(SIGKILL);
    while (true) sum(true);
  } catch (const kolo::Exception& error) {
    const std::string name = "rank " + std::to_string(dying) + " ";
    if (std::string_view(error.what()).find(name) != std::string_view::npos) return 0;
    std::fprintf(stderr, "rank %d blames another one: %s\n", kolo::rank(), error.what());
    return 3;
  }
}

/// Waits for a message from `sender`, which never sends one and may have left already.
int wait_in_vain(int sender) {
  const int receiver = 1;
  float value = 0;
  std::shared_ptr<kolo::Work> receive;
  if (kolo::rank() == receiver)
    receive = kolo::recv_async(&value, 1, kolo::DataType::kFloat32, sender);
  sum(false);
  if (kolo::rank() != receiver) return 0;
  try {
    kolo::synchronize(*receive);
  } catch (const kolo::Exception& error) {
    const std::string name = "rank " + std::to_string(sender) + " has shut down";
    if (std::string_view(error.what()).find(name) != std::string_view::npos) return 0;
    std::fprintf(stderr, "rank %d blames another one: %s\n", kolo::rank(), error.what());
  }
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  setenv("KOLO_HOST_ID", ("host" + std::to_string(getpid())).c_str(), 1);
  begin_with_few_descriptors();
  kolo::init();
  const std::string_view mode = argv[1];
  sum(true);
  if (mode == "die" || mode == "connect") return go_on(kolo::size() / 2, mode == "connect");
  if (mode != "ordered") sum(false);
  const int status = mode == "receive" ? wait_in_vain(kolo::size() - 1) : 0;
  kolo::shutdown();
  return status;
}
