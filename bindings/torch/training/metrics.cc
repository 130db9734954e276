#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>
#include <kolo/torch/metrics.h>
#include <kolo/torch/objects.h>

#include <limits>

namespace kolo {
namespace {

/// Gathers the rows of all ranks, whose numbers may differ. A rank without rows to give sends its
/// failure to all.
torch::Tensor gather_rows(const torch::Tensor& rows, const std::string& failure,
                          const std::string& name) {
  // Goes through the host: the archived tensor would come back on the sender's device, which may
  // have another number here or be missing.
  const Parcel mine = failure.empty() ? to_parcel(rows.cpu()) : Parcel{.failure = failure};
  const auto all = allgather_parcel<torch::Tensor>(mine, {.name = name});
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].sizes().slice(1) != all[0].sizes().slice(1) ||
        all[i].scalar_type() != all[0].scalar_type()) {
      const auto told = [](const torch::Tensor& tensor) {
        std::ostringstream text;
        text << tensor.scalar_type() << ' ' << tensor.sizes();
        return std::move(text).str();
      };
      raise(ErrorCode::kMismatch, "gather_for_metrics" + (name.empty() ? "" : " '" + name + "'") +
                                      ": rank 0 passed " + told(all[0]) + ", but rank " +
                                      std::to_string(i) + " passed " + told(all[i]) +
                                      "; only the first extent may differ");
    }
  }
  return torch::cat(all).to(rows.device());
}

/// Why these are not the rows of a batch of `size` elements; empty if they are.
std::string misfit_of(const torch::Tensor& tensor, std::int64_t size) {
  if (!tensor.defined() || tensor.dim() == 0)
    return "gather_for_metrics takes a tensor with a row for each element of the batch, but this "
           "one has no rows; metric_average() takes single numbers";
  const std::int64_t rows = tensor.size(0);
  if (rows == 0 || rows == size) return {};
  return "gather_for_metrics: the tensor has " + std::to_string(rows) +
         " rows, but the last batch of this rank's sampler has " + std::to_string(size) +
         " elements; pass the rows of that batch, and read by kolo::data_loader if there are "
         "workers (LibTorch's loader does not tell the sampler which batch the loop has got)";
}

}  // namespace

torch::Tensor gather_for_metrics(const torch::Tensor& tensor, const RankSampler& sampler,
                                 const GatherOptions& options) {
  const torch::NoGradGuard no_grad;
  const std::string misfit =
      misfit_of(tensor, static_cast<std::int64_t>(sampler.last_batch_size()));
  if (!misfit.empty()) return gather_rows({}, misfit, options.name);
  const auto padding = static_cast<std::int64_t>(sampler.last_batch_padding());
  const std::int64_t kept = tensor.size(0) == 0 ? 0 : tensor.size(0) - padding;
  return gather_rows(tensor.detach().slice(0, 0, kept).contiguous().clone(), {}, options.name);
}

double metric_average(double value, const std::string& name) {
  return allreduce(torch::tensor(value, torch::kFloat64), {.op = ReduceOp::kAverage, .name = name})
      .item<double>();
}

void Meter::add(double mean, std::int64_t count) {
  if (count < 0) {
    raise(ErrorCode::kInvalidArgument,
          "Meter::add(): a count of " + std::to_string(count) + "; a count is not negative");
  }
  if (count == 0) return;  // the mean of no samples is NaN
  sum_ += mean * static_cast<double>(count);
  count_ += count;
}

void Meter::reset() {
  sum_ = 0;
  count_ = 0;
}

double Meter::Total::mean() const {
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

Meter::Total Meter::total() const {
  // Counts up to 2⁵³ are exact in float64.
  const torch::Tensor sums = allreduce(
      torch::tensor({sum_, static_cast<double>(count_)}, torch::kFloat64), {.name = name_});
  return {sums[0].item<double>(), static_cast<std::int64_t>(sums[1].item<double>())};
}

}  // namespace kolo
