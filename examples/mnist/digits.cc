#include "examples/mnist/digits.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace mnist {
namespace {

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kClasses = 10;
constexpr float kMean = 0.1307F;
constexpr float kDeviation = 0.3081F;
constexpr std::uint32_t kImagesMagic = 0x00000803;
constexpr std::uint32_t kLabelsMagic = 0x00000801;

/// One IDX file of unsigned bytes: its extents and what follows them.
struct IdxFile {
  std::filesystem::path path;
  std::vector<std::int64_t> extents;
  std::vector<std::uint8_t> bytes;

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(
        fmt::format("{}: {}; run tools/setup, or give the folder of MNIST's IDX files by --data",
                    path.string(), what));
  }
};

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

IdxFile read_idx(const std::filesystem::path& path, std::uint32_t magic) {
  IdxFile file{path, {}, {}};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) file.fail("is a folder");
  std::ifstream in(path, std::ios::binary);
  if (!in) file.fail(fmt::format("cannot be opened ({})", std::generic_category().message(errno)));
  std::vector<std::uint8_t> all((std::istreambuf_iterator<char>(in)), {});
  if (in.bad()) file.fail("cannot be read");

  const std::size_t dimensions = magic & 0xff;
  const std::size_t header = 4 + 4 * dimensions;
  if (all.size() >= 2 && all[0] == 0x1f && all[1] == 0x8b) {
    file.fail("is compressed by gzip, unpack it first");
  }
  if (all.size() < header) {
    file.fail(fmt::format("is {} bytes long, shorter than its header of {}", all.size(), header));
  }
  if (const std::uint32_t found = big_endian(all.data()); found != magic) {
    file.fail(
        fmt::format("starts with {:#010x} instead of {:#010x}, so it is not the IDX file "
                    "that its name promises",
                    found, magic));
  }
  std::uint64_t expected = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    file.extents.push_back(big_endian(all.data() + 4 + 4 * i));
    // All extents but the first must be 28, so the product of the 32-bit numbers cannot overflow.
    if (i > 0 && file.extents[i] != kSide) {
      file.fail(fmt::format("has images of extent {} instead of {}", file.extents[i], kSide));
    }
    expected *= static_cast<std::uint64_t>(file.extents[i]);
  }
  if (all.size() - header != expected) {
    file.fail(fmt::format("has {} bytes of data instead of the {} that its header promises",
                          all.size() - header, expected));
  }
  if (expected == 0) file.fail("is empty");
  file.bytes.assign(all.begin() + static_cast<std::ptrdiff_t>(header), all.end());
  return file;
}

}  // namespace

Digits load_digits(const std::filesystem::path& folder, const std::string& set) {
  const IdxFile images = read_idx(folder / (set + "-images-idx3-ubyte"), kImagesMagic);
  const IdxFile labels = read_idx(folder / (set + "-labels-idx1-ubyte"), kLabelsMagic);
  const std::int64_t count = images.extents[0];
  if (labels.extents[0] != count) {
    labels.fail(fmt::format("has {} labels for the {} images of {}", labels.extents[0], count,
                            images.path.filename().string()));
  }
  for (std::size_t i = 0; i < labels.bytes.size(); ++i) {
    if (labels.bytes[i] >= kClasses) {
      labels.fail(fmt::format("has the label {} at position {}, not 0 to {}", labels.bytes[i], i,
                              kClasses - 1));
    }
  }
  Digits digits;
  digits.images = torch::empty({count, 1, kSide, kSide}, torch::kUInt8);
  std::memcpy(digits.images.data_ptr(), images.bytes.data(), images.bytes.size());
  digits.labels = torch::empty({count}, torch::kInt64);
  std::int64_t* label = digits.labels.data_ptr<std::int64_t>();
  for (const std::uint8_t byte : labels.bytes) *label++ = byte;
  return digits;
}

std::filesystem::path default_data_folder() {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path start = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& first : {start, fs::current_path(error)}) {
    for (fs::path at = first; !at.empty(); at = at.parent_path()) {
      for (const char* inside : {"data/mnist", "build/data/mnist"}) {
        if (fs::is_directory(at / inside, error)) return at / inside;
      }
      if (at == at.root_path()) break;
    }
  }
  return "build/data/mnist";
}

torch::data::Example<> batch_of(const Digits& digits, const std::vector<std::int64_t>& indices) {
  const torch::Tensor index = torch::tensor(indices, torch::kInt64);
  torch::Tensor images = digits.images.index_select(0, index).to(torch::kFloat32);
  images.div_(255.0F).sub_(kMean).div_(kDeviation);
  return {images, digits.labels.index_select(0, index)};
}

torch::data::Example<> DigitDataset::get_batch(c10::ArrayRef<std::size_t> indices) {
  return batch_of(digits_, {indices.begin(), indices.end()});
}

}  // namespace mnist
