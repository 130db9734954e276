// The IDX loader of the mnist example: the result for a good file, and one clear line for each
// broken one.
#include "examples/mnist/digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace mnist {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

void append_big_endian(std::string& bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<char>(value >> shift & 0xff));
}

/// A folder with three good digits, which a test then breaks.
class Digits3 : public testing::Test {
 protected:
  Digits3()
      : folder_(fs::path(testing::TempDir()) /
                (std::string("digits_") +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_);
    write("images-idx3", images(3, 28));
    write("labels-idx1", labels({7, 0, 9}));
  }
  ~Digits3() override { fs::remove_all(folder_); }

  static std::string images(std::uint32_t count, std::uint32_t side) {
    std::string bytes;
    for (const std::uint32_t value : {0x803U, count, side, side}) append_big_endian(bytes, value);
    for (std::uint32_t i = 0; i < count * side * side; ++i)
      bytes.push_back(static_cast<char>(i % 251));
    return bytes;
  }
  static std::string labels(const std::string& values) {
    std::string bytes;
    for (const std::uint32_t value : {0x801U, static_cast<std::uint32_t>(values.size())})
      append_big_endian(bytes, value);
    return bytes + values;
  }
  static std::string labels(std::initializer_list<char> values) {
    return labels(std::string(values));
  }
  fs::path path(const std::string& kind) const { return folder_ / ("train-" + kind + "-ubyte"); }
  void write(const std::string& kind, const std::string& bytes) {
    std::ofstream(path(kind), std::ios::binary) << bytes;
  }
  std::string error() {
    try {
      load_digits(folder_, "train");
    } catch (const std::runtime_error& failure) {
      const std::string line = failure.what();
      EXPECT_EQ(line.find('\n'), std::string::npos) << "one line";
      EXPECT_THAT(line, HasSubstr("run tools/setup, or give the folder"));
      return line;
    }
    return "(no error)";
  }

  fs::path folder_;
};

TEST_F(Digits3, GoodFilesGiveImagesAndLabels) {
  const Digits digits = load_digits(folder_, "train");
  EXPECT_EQ(digits.count(), 3U);
  EXPECT_EQ(digits.images.sizes(), (std::vector<std::int64_t>{3, 1, 28, 28}));
  EXPECT_EQ(digits.images[0][0][0][1].item<int>(), 1);
  EXPECT_EQ(digits.labels[2].item<int>(), 9);
  const auto batch = batch_of(digits, {2, 0});
  EXPECT_EQ(batch.target[0].item<int>(), 9);
  EXPECT_NEAR(batch.data[1][0][0][1].item<float>(), (1.0F / 255 - 0.1307F) / 0.3081F, 1e-6);
}

TEST_F(Digits3, AMissingFileIsNamed) {
  fs::remove(path("labels-idx1"));
  EXPECT_THAT(error(), HasSubstr("train-labels-idx1-ubyte: cannot be opened (No such file"));
}

TEST_F(Digits3, AFolderInItsPlaceIsNamed) {
  fs::remove(path("images-idx3"));
  fs::create_directory(path("images-idx3"));
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte: is a folder"));
}

TEST_F(Digits3, ATornFileIsRefused) {
  write("images-idx3", images(3, 28).substr(0, 1000));
  EXPECT_THAT(error(), HasSubstr("has 984 bytes of data instead of the 2352"));
  write("images-idx3", "abc");
  EXPECT_THAT(error(), HasSubstr("is 3 bytes long, shorter than its header of 16"));
  write("images-idx3", "");
  EXPECT_THAT(error(), HasSubstr("is 0 bytes long"));
}

TEST_F(Digits3, AnotherFormatIsRefused) {
  write("images-idx3", "\x1f\x8b and so on");
  EXPECT_THAT(error(), HasSubstr("is compressed by gzip"));
  write("images-idx3", labels("0123456789ab"));
  EXPECT_THAT(error(), HasSubstr("starts with 0x00000801 instead of 0x00000803"));
  write("images-idx3", images(3, 32));
  EXPECT_THAT(error(), HasSubstr("has images of extent 32 instead of 28"));
}

TEST_F(Digits3, FilesThatDoNotFitTogetherAreRefused) {
  write("labels-idx1", labels({1, 2}));
  EXPECT_THAT(error(), HasSubstr("has 2 labels for the 3 images of train-images-idx3-ubyte"));
  write("labels-idx1", labels({1, 10, 2}));
  EXPECT_THAT(error(), HasSubstr("has the label 10 at position 1, not 0 to 9"));
  write("images-idx3", images(0, 28));
  EXPECT_THAT(error(), HasSubstr("is empty"));
}

}  // namespace
}  // namespace mnist
