#include "tests/bindings/core/stress/reduced_output.h"

namespace kolo::test {

ReducedOutput::ReducedOutput(const Step& step, int rank, std::vector<int> contributors, int divisor,
                             Dice& dice, perf::Gpu* gpu)
    : step_(step),
      rank_(rank),
      contributors_(std::move(contributors)),
      divisor_(divisor),
      count_(step.rows * step.tail_elements()),
      output_(static_cast<std::size_t>(count_) * size_of(step.type), size_of(step.type), dice, gpu),
      shape_(shape_of(step, step.rows)),
      absent_(!step.absent.empty() && step.absent[static_cast<std::size_t>(step.place_of(rank))]) {
  fill(output_.data(), step_.type, count_, 0, own_values());
  output_.push();
  input_ = output_.place();
  if (dice.one_in(2)) return;
  Block block(static_cast<std::size_t>(count_) * size_of(step_.type), size_of(step_.type), dice,
              gpu);
  fill(block.data(), step_.type, count_, 0, own_values());
  block.push();
  input_ = block.place();
  if (dice.one_in(3)) {
    handed_over_ = block.owner();
  } else {
    kept_ = block;
  }
}

ValueOf ReducedOutput::own_values() const {
  return [this](std::int64_t i) { return input_value(step_, rank_, i); };
}

std::string ReducedOutput::wrong() const {
  output_.pull();
  const std::string found = compare(output_.data(), step_.type, count_, 0, [this](std::int64_t i) {
    return contributors_.empty() ? input_value(step_, rank_, i)
                                 : reduced_value(step_, contributors_, divisor_, i);
  });
  if (!found.empty()) return found;
  if (kept_) {
    kept_->pull();
    const std::string changed = compare(kept_->data(), step_.type, count_, 0, own_values());
    if (!changed.empty()) return "of the input: " + changed;
  }
  return output_.damage();
}

}  // namespace kolo::test
