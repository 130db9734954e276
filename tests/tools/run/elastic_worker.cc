// A training job that knows how many steps were made: each takes 1 from a weight that starts at 0.
// It trains until a file is there. kolo_run_elastic_test and tests/cluster start it by kolo-run.
//
//   kolo-run -np 2 --min-np 1 sh -c 'exec elastic_worker /tmp/stop $KOLO_PROCESS'
//
// It prints a line each time a world stands ("world …"), and "done …" at the end. After SIGTERM it
// says "saved …" at the next step, as a program that writes a checkpoint, and ends with 0.
#include <kolo/torch.h>

#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace {

constexpr std::chrono::milliseconds kStep(5);

volatile std::sig_atomic_t asked = 0;
void ask(int) { asked = 1; }

/// In one write, so that lines of several processes do not mix.
template <class... Values>
void say(const char* format, Values... values) {
  std::array<char, 256> line;
  const int size = std::snprintf(line.data(), line.size(), format, values...);
  if (::write(STDOUT_FILENO, line.data(), static_cast<std::size_t>(size)) != size) std::_Exit(98);
}

int train(const char* stop, const char* process) {
  torch::nn::Linear model(torch::nn::LinearOptions(1, 1).bias(false));
  torch::nn::init::zeros_(model->weight);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 1.0),
                                       model->named_parameters());
  kolo::elastic::State state({.module = model.get(), .optimizer = &optimizer});
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  const auto check = [&] {
    const auto progress = static_cast<double>(state.progress());
    if (model->weight.item<double>() == -progress) return;
    say("WRONG: process %s has %g at step %g\n", process, model->weight.item<double>(), progress);
    std::_Exit(99);
  };
  kolo::elastic::run(state, [&] {
    check();
    kolo::barrier();
    say("world %d: process %s (pid %d) is rank %d of %d on %s\n", state.generation(), process,
        ::getpid(), kolo::rank(), kolo::size(), host.data());
    while (!kolo::any(std::filesystem::exists(stop))) {
      std::this_thread::sleep_for(kStep);
      if (asked != 0) {
        say("saved: process %s on %s\n", process, host.data());
        std::exit(0);
      }
      optimizer.zero_grad();
      model->weight.sum().backward();
      optimizer.step();
      state.commit();
      check();
    }
  });
  say("done: process %s is rank %d of %d\n", process, kolo::rank(), kolo::size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::signal(SIGTERM, ask);
    kolo::init(argc, argv);
    at::set_num_threads(1);
    if (argc != 3) throw std::invalid_argument("usage: elastic_worker FILE PROCESS");
    return train(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pid %d: %s\n", ::getpid(), kolo::reason_of(error).c_str());
    return 1;
  }
}
