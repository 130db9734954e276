// Reads MNIST digits from IDX files (https://yann.lecun.com/exdb/mnist describes the format) and
// passes them to torch's data loader. main calls it before training; the loader calls the data set.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mnist {

/// Images and labels in memory, laid out as in the files.
struct Digits {
  torch::Tensor images;  ///< [n, 1, 28, 28] uint8
  torch::Tensor labels;  ///< [n] int64, 0 … 9
  std::size_t count() const { return static_cast<std::size_t>(labels.size(0)); }
};

/// Reads `folder`/`set`-images-idx3-ubyte and `set`-labels-idx1-ubyte; `set` is "train" or "t10k".
/// Throws std::runtime_error with one line: the file, what is wrong with it and what to do.
Digits load_digits(const std::filesystem::path& folder, const std::string& set);

/// The folder where tools/setup puts the digits. Searches upwards from the program's own folder,
/// then from the working directory; "build/data/mnist" if there is none.
std::filesystem::path default_data_folder();

/// The digits of `indices` as network input: float, normalised by MNIST's mean and deviation.
torch::data::Example<> batch_of(const Digits& digits, const std::vector<std::int64_t>& indices);

/// For torch::data::make_data_loader; copies share the memory.
class DigitDataset
    : public torch::data::datasets::BatchDataset<DigitDataset, torch::data::Example<>> {
 public:
  explicit DigitDataset(Digits digits) : digits_(std::move(digits)) {}
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) override;
  std::optional<std::size_t> size() const override { return digits_.count(); }

 private:
  Digits digits_;
};

}  // namespace mnist
