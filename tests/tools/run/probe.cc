// Started by the launching tests: joins the other ranks, sums over all of them and prints one line
// about itself; or prints the error and ends with 3. Arguments: an init method, then rank and size;
// or --until and a file, to stay in the job until the file exists; or --wait, to wait in kolo for a
// message that nobody sends, with a handler of SIGTERM that calls exit(0); or --abort, to end with
// 0 after rank 0 has given up.
#include <kolo/kolo.h>

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

/// Rank 0 gives up. The others learn of it.
int end_without_success() {
  try {
    if (kolo::rank() == 0) kolo::abort("the disk is full");
    kolo::barrier();
  } catch (const kolo::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 0;
  }
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    kolo::InitOptions options;
    const char* const file = argc > 2 && std::string(argv[1]) == "--until" ? argv[2] : nullptr;
    const bool waits = argc > 1 && std::string(argv[1]) == "--wait";
    const bool aborts = argc > 1 && std::string(argv[1]) == "--abort";
    if (waits) std::signal(SIGTERM, [](int) { std::exit(0); });
    if (argc > 1 && file == nullptr && !waits && !aborts) options.init_method = argv[1];
    if (argc > 3) {
      options.rank = std::stoi(argv[2]);
      options.size = std::stoi(argv[3]);
    }
    // Twice: the first init and shutdown must leave nothing behind that harms the next.
    for (int round = 0; round < 2; ++round) {
      kolo::init(argc, argv, options);
      double sum = kolo::rank() + 1;
      kolo::allreduce(&sum, &sum, {1}, kolo::DataType::kFloat64,
                      {.op = kolo::ReduceOp::kSum, .name = "ranks"});
      if (round == 1) {
        std::array<char, 256> host = {};
        ::gethostname(host.data(), host.size() - 1);
        std::printf("rank=%d size=%d local=%d/%d cross=%d/%d sum=%g host=%s\n", kolo::rank(),
                    kolo::size(), kolo::local_rank(), kolo::local_size(), kolo::cross_rank(),
                    kolo::cross_size(), sum, host.data());
        std::fflush(stdout);
        if (aborts) return end_without_success();
        if (waits) kolo::recv(&sum, 1, kolo::DataType::kFloat64, kolo::rank());
        while (file != nullptr && ::access(file, F_OK) != 0) ::usleep(10'000);
      }
      kolo::shutdown();
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
