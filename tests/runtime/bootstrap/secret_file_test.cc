// The job's secret in a file: what is accepted, and what is refused with advice.
#include "runtime/bootstrap/secret_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace kolo::secret_file_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SecretFile : public testing::Test {
 protected:
  ~SecretFile() override { std::filesystem::remove(path_); }
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  void expect_refusal(const std::string& words) const {
    const auto secret = read_secret_file(path_);
    ASSERT_FALSE(secret.ok()) << *secret;
    EXPECT_EQ(secret.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(secret.error().message, AllOf(HasSubstr(path_), HasSubstr(words)));
  }
  const std::string path_ = testing::TempDir() + "kolo_secret_" + std::to_string(::getpid());
};

TEST_F(SecretFile, ALineIsTheSecret) {
  for (const char* text : {"a b", "a b\n"}) {
    write(text);
    EXPECT_EQ(*read_secret_file(path_), "a b");
  }
  write("a b\n", 0400);
  EXPECT_EQ(*secret_or_file("", path_), "a b");
  EXPECT_EQ(*secret_or_file("given", path_), "given");
  EXPECT_EQ(*secret_or_file("given", "/nosuch"), "given");
  EXPECT_EQ(*secret_or_file("", ""), "");
}

TEST_F(SecretFile, WhatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0660, 0644}) {
    write("a", mode);
    expect_refusal("chmod 600");
  }
}

TEST_F(SecretFile, WhatIsNoSecretIsRefused) {
  expect_refusal("No such file");
  write("\n");
  expect_refusal("is empty");
  write(std::string("a\0b", 3));
  expect_refusal("no text");
  write(std::string(5000, 'x'));
  expect_refusal("longer than 4096");
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refusal("no regular file");
}

}  // namespace
}  // namespace kolo::secret_file_test
