// Started by the tests of lost ranks: makes sums over all ranks without end, until one fails; then
// prints the error and ends with 3. Prints "running" after the first sum. Argument: the number of
// float32 elements.
#include <kolo/kolo.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  try {
    kolo::init(argc, argv);
    std::vector<float> values(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1);
    const kolo::Shape shape = {static_cast<std::int64_t>(values.size())};
    for (bool first = true;; first = false) {
      kolo::allreduce(values.data(), values.data(), shape, kolo::DataType::kFloat32,
                      {.op = kolo::ReduceOp::kSum, .name = "endless"});
      if (!first) continue;
      std::puts("running");
      std::fflush(stdout);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
