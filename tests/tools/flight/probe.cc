// A training for the flight recorder's tests. Arguments: steps; then a fault, a rank and a step, in
// which this rank stops before it submits anything ("stop"), aborts the job ("abort"), leaves out
// layer.2 ("skip"), takes the loss's maximum ("maximum"; "handled": and all ranks go on),
// broadcasts it from itself ("root"), gives a wrong argument for its sum ("refused"), or makes
// another in-order call than the others ("order"). Then the status with which ranks end that kolo
// did not fail, and "shutdown" if they call that before. Ends with 3 if kolo fails.
#include "bindings/core/refusals.h"
#include "bindings/core/step_scope.h"

#include <kolo/kolo.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int kLayers = 4;

void take_maximum(std::vector<float>& loss, bool is_odd) {
  kolo::allreduce(loss.data(), loss.data(), {4}, kolo::DataType::kFloat32,
                  {.op = is_odd ? kolo::ReduceOp::kMax : kolo::ReduceOp::kSum, .name = "loss"});
}

void take_sum_or_refuse(std::vector<float>& loss, bool is_odd) {
  if (!is_odd) take_maximum(loss, false);
  for (const auto& work : kolo::refuse_allreduces({"loss"}, "a wrong argument", "", {}))
    kolo::synchronize(*work);
}

void train(int steps, const std::string& fault, int rank, int at) {
  std::vector<std::vector<float>> layers(kLayers, std::vector<float>(8, 1.0F));
  std::vector<float> loss(4, 1.0F);
  for (int step = 1; step <= steps; ++step) {
    const bool fails = kolo::rank() == rank && step == at;
    if (fails && fault == "stop")
      while (true) ::pause();
    if (fails && fault == "abort") kolo::abort("a fault of its own");
    const auto losses = static_cast<std::int64_t>(fails && fault == "order" ? 2 : loss.size());
    kolo::allreduce_ordered(loss.data(), loss.data(), losses, kolo::DataType::kFloat32,
                            kolo::ReduceOp::kSum);
    const kolo::StepScope scope(static_cast<std::uint64_t>(step));
    if (step == at && fault == "root")
      kolo::broadcast(loss.data(), {4}, kolo::DataType::kFloat32, fails ? rank : 0,
                      {.name = "loss"});
    if (step == at && fault == "maximum") take_maximum(loss, fails);
    if (step == at && fault == "refused") take_sum_or_refuse(loss, fails);
    if (step == at && fault == "handled") {
      try {
        take_maximum(loss, fails);
      } catch (const kolo::Exception&) {
      }
    }
    std::vector<std::shared_ptr<kolo::Work>> works;
    for (int i = 0; i < kLayers; ++i) {
      if (fails && fault == "skip" && i == 2) continue;
      auto& layer = layers[static_cast<std::size_t>(i)];
      works.push_back(kolo::allreduce_async(layer.data(), layer.data(), {8},
                                            kolo::DataType::kFloat32,
                                            {.name = "layer." + std::to_string(i)}));
    }
    for (const auto& work : works) kolo::synchronize(*work);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    kolo::init(argc, argv);
    train(std::stoi(argv[1]), argc > 2 ? argv[2] : "", argc > 3 ? std::stoi(argv[3]) : -1,
          argc > 4 ? std::stoi(argv[4]) : 0);
    if (argc > 6) kolo::shutdown();
    return argc > 5 ? std::stoi(argv[5]) : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
