// PNG files of the rectified_flow example, through cairo. Used by main on rank 0 alone. Both throw
// std::runtime_error that names the file if it cannot be written.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <vector>

namespace rectified {

/// `images` [n, 1, h, w] from -1 (black) to 1 (white), `columns` in a row, each twice as large.
void write_grid(const std::filesystem::path& file, const torch::Tensor& images,
                std::int64_t columns);

/// The loss of each epoch, from the first on, as a line. Precondition: there is one.
void write_curve(const std::filesystem::path& file, const std::vector<double>& losses);

}  // namespace rectified
