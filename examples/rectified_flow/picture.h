// Writes the PNG files of the rectified_flow example with cairo. Used by main on rank 0 alone. Both
// functions throw std::runtime_error with the file's name if it cannot be written.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <vector>

namespace rectified {

/// `images` [n, 1, h, w] from -1 (black) to 1 (white), `columns` in a row, each twice as large.
void write_grid(const std::filesystem::path& file, const torch::Tensor& images,
                std::int64_t columns);

/// Draws the loss of each epoch, from the first on, as a line. Precondition: `losses` is not empty.
void write_curve(const std::filesystem::path& file, const std::vector<double>& losses);

}  // namespace rectified
