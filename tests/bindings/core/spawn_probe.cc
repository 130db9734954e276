// Started by spawn_test: ranks without a launcher. Arguments: what they do, then their number.
#include <kolo/kolo.h>

#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

int report(const char* when) {
  kolo::init();
  double sum = kolo::rank() + 1;
  kolo::allreduce(&sum, &sum, {1}, kolo::DataType::kFloat64,
                  {.op = kolo::ReduceOp::kSum, .name = "ranks"});
  std::printf("%s: rank=%d size=%d local=%d/%d sum=%g\n", when, kolo::rank(), kolo::size(),
              kolo::local_rank(), kolo::local_size(), sum);
  kolo::shutdown();
  return 0;
}

int misbehave(const std::string& how) {
  kolo::init();
  if (kolo::rank() == 1) {
    if (how == "throws") throw std::runtime_error("rank 1 has had enough");
    if (how == "dies") std::raise(SIGKILL);
    if (how == "returns") return 7;
  }
  while (true) ::pause();  // until it is ended
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  // Threads must be no obstacle.
  std::mutex mutex;
  std::condition_variable_any never;
  std::jthread other([&](const std::stop_token& token) {
    std::unique_lock lock(mutex);
    never.wait(lock, token, [] { return false; });
  });
  try {
    if (what == "twice") {
      const int first = kolo::spawn(number, [] { return report("first"); });
      return first + kolo::spawn(number, [] { return report("second"); });
    }
    if (what == "report") return kolo::spawn(number, [] { return report("spawned"); });
    if (what == "initialized") kolo::init();
    return kolo::spawn(number, [&] { return misbehave(what); });
  } catch (const kolo::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
