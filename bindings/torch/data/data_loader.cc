#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/data_loader.h>

namespace kolo {

torch::data::DataLoaderOptions loader_options(const DataLoaderOptions& options,
                                              std::size_t global_batch) {
  if (options.batch_size == 0) {
    raise(ErrorCode::kInvalidArgument, "data_loader: batch_size is 0; it must be at least 1");
  }
  if (options.workers > 0 && options.prefetch == 0) {
    raise(ErrorCode::kInvalidArgument, "data_loader: prefetch is 0, so its " +
                                           std::to_string(options.workers) +
                                           " workers would never read; it must be at least 1");
  }
  if (global_batch > 0 && options.batch_size != 1) {
    raise(ErrorCode::kInvalidArgument,
          "data_loader: batch_size is " + std::to_string(options.batch_size) +
              ", but the sampler deals out global batches of " + std::to_string(global_batch) +
              "; leave batch_size at 1");
  }
  if (global_batch > 0 && options.drop_last) {
    raise(ErrorCode::kInvalidArgument,
          "data_loader: drop_last with a sampler that deals out global batches; set drop_last in "
          "the sampler's options");
  }
  return torch::data::DataLoaderOptions(options.batch_size)
      .workers(options.workers)
      .max_jobs(options.workers * options.prefetch)
      .timeout(options.timeout)
      .drop_last(options.drop_last);
}

}  // namespace kolo
