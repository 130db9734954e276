#include "bindings/torch/gradients/round.h"

#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>

#include <utility>

namespace kolo {

Round::Round(const Options& options)
    : holder_((check_initialized(options.holder), options.holder)),
      steps_(options.steps),
      process_set_(options.process_set),
      number_(options.kind, options.process_set.id()),
      prefix_(number_.prefix()),
      step_(options.process_set),
      comparison_({options.holder, prefix_, options.process_set, options.parameters,
                   options.begins_equal, options.trained}) {}

void Round::tell(const std::string& name, std::vector<std::int32_t> cells) {
  cells.resize(cells.size() + StateComparison::kCells);
  comparison_.tell(cells.data() + cells.size() - StateComparison::kCells);
  const StepScope scope = step_.scope();
  message_.drain();  // where something has failed before hear(); names are used again
  message_ = allreduce_async_(torch::tensor(cells, torch::kInt32),
                              {.name = prefix_ + name, .process_set = process_set_});
}

std::vector<std::int32_t> Round::hear() {
  TensorWork message = std::exchange(message_, {});
  const torch::Tensor sums = step_.await(message);
  participants_ = message.participants();
  const auto* const begin = sums.const_data_ptr<std::int32_t>();
  const auto* const compared = begin + sums.numel() - StateComparison::kCells;
  failure_.attempt([&] { comparison_.hear(compared, participants_); });
  return {begin, compared};
}

void Round::settle() {
  std::exchange(failure_, {}).rethrow();
  comparison_.settle();
}

void Round::drop() {
  message_.drain();
  message_ = {};
  failure_ = {};
  comparison_.forget();
}

void Round::raise_out_of_step(const OutOfStep& error) {
  step_.catch_up(error.latest());
  raise(error.code(), holder_ + ": " + error.what() + steps_ +
                          ". This step's gradients are of no use; go on with zero_grad()");
}

}  // namespace kolo
