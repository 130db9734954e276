// Training of a network so small that the host computes it without LibTorch. Its trajectory shows
// differences between ways of reducing gradients. Header-only; any thread. Used by nccl_test and
// nccl_check.
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace kolo::test {

/// One array per tensor: weights and biases of both layers; for gradients, followed by the loss.
using Arrays = std::vector<std::vector<float>>;

/// Regression with 6 inputs, 10 tanh units and one output. Each rank has 16 samples of its own, and
/// all take the same steps by the ranks' mean gradients.
class SmallTraining {
 public:
  static constexpr std::size_t kInputs = 6;
  static constexpr std::size_t kUnits = 10;
  static constexpr std::size_t kSamples = 16;

  explicit SmallTraining(int rank) : rank_(static_cast<std::size_t>(rank)) {
    for (std::size_t t = 0; t < parameters_.size(); ++t)
      for (std::size_t i = 0; i < parameters_[t].size(); ++i)
        parameters_[t][i] = static_cast<float>(0.4 * number(1000 * (t + 1) + i));
  }

  /// `average` replaces the rank's gradients and its loss by the mean over the ranks. Returns the
  /// mean loss of each step.
  std::vector<double> run(int steps, const std::function<void(Arrays&)>& average) {
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      Arrays gradients = backward();
      average(gradients);
      losses.push_back(gradients.back().front());
      for (std::size_t t = 0; t < parameters_.size(); ++t)
        for (std::size_t i = 0; i < parameters_[t].size(); ++i)
          parameters_[t][i] -= 0.2F * gradients[t][i];
    }
    return losses;
  }
  /// After the steps: ranks that got equal bits have equal bits.
  const Arrays& parameters() const { return parameters_; }

 private:
  /// Between -1 and 1, always the same for the same `seed`.
  static double number(std::size_t seed) { return std::sin(12.9898 * static_cast<double>(seed)); }

  /// Gradients of half the mean squared error of the rank's samples, followed by the error itself.
  Arrays backward() const {
    const std::vector<float>& w1 = parameters_[0];
    const std::vector<float>& b1 = parameters_[1];
    const std::vector<float>& w2 = parameters_[2];
    const std::vector<float>& b2 = parameters_[3];
    Arrays gradients;
    for (const auto& parameter : parameters_) gradients.emplace_back(parameter.size(), 0.0F);
    gradients.emplace_back(1, 0.0F);
    for (std::size_t s = 0; s < kSamples; ++s) {
      float inputs[kInputs];
      float target = 0;
      for (std::size_t i = 0; i < kInputs; ++i) {
        inputs[i] = static_cast<float>(number((rank_ * kSamples + s) * kInputs + i + 7));
        target += inputs[i] * static_cast<float>(i % 3) - 0.5F;
      }
      float units[kUnits];
      float output = b2[0];
      for (std::size_t u = 0; u < kUnits; ++u) {
        float sum = b1[u];
        for (std::size_t i = 0; i < kInputs; ++i) sum += w1[u * kInputs + i] * inputs[i];
        units[u] = std::tanh(sum);
        output += w2[u] * units[u];
      }
      const float error = (output - target) / static_cast<float>(kSamples);
      gradients[4][0] += 0.5F * error * (output - target);
      gradients[3][0] += error;
      for (std::size_t u = 0; u < kUnits; ++u) {
        gradients[2][u] += error * units[u];
        const float below = error * w2[u] * (1 - units[u] * units[u]);
        gradients[1][u] += below;
        for (std::size_t i = 0; i < kInputs; ++i)
          gradients[0][u * kInputs + i] += below * inputs[i];
      }
    }
    return gradients;
  }

  const std::size_t rank_;
  Arrays parameters_ = {std::vector<float>(kInputs * kUnits), std::vector<float>(kUnits),
                        std::vector<float>(kUnits), std::vector<float>(1)};
};

/// The largest difference of two trajectories, relative to the second's values; infinite if one is
/// shorter.
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::fmax(worst, std::fabs(a[i] - b[i]) / std::fabs(b[i]));
  return worst;
}

/// The allowed difference of two libraries' trajectories: float32 sums in other orders, step after
/// step.
inline constexpr double kTrajectoryTolerance = 1e-5;
inline constexpr int kTrajectorySteps = 30;

}  // namespace kolo::test
