// The text of char_transformer: UTF-8 characters, and the replacement of other bytes.
#include "examples/char_transformer/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace char_transformer {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class TextFile : public testing::Test {
 protected:
  ~TextFile() override { fs::remove(path_); }

  Text read(const std::string& bytes, std::int64_t least = 1) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return Text(path_, least);
  }
  /// The whole text, read as one stretch.
  static std::string spelt(const Text& text) {
    return text.spelt(text.stretches(1, text.size())[0]);
  }

  const fs::path path_ =
      fs::path(testing::TempDir()) /
      (std::string("text_") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(TextFile, HasCharactersAndNotBytes) {
  const std::string bytes = "añ – 漢字 🎉🎉\n\x7F";
  const Text text = read(bytes);
  EXPECT_EQ(text.size(), 12);
  EXPECT_EQ(text.characters(), 9);  // a ñ space – 漢 字 🎉 \n \x7F
  EXPECT_EQ(text.replaced(), 0);
  EXPECT_EQ(spelt(text), bytes);
}

TEST_F(TextFile, BytesThatAreNotUtf8AreReplacedOneByOne) {
  // A lone continuation, Latin-1, an overlong slash, a surrogate, beyond U+10FFFF, a cut sequence.
  const std::string replacement = "\xEF\xBF\xBD";
  for (const std::string bytes : {"\x80", "\xE4", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80",
                                  "\xF4\x90\x80\x80", "\xF0\x8F\xBF\xBF", "\xE6\xBC", "\xFF"}) {
    const Text text = read("a" + bytes + "b");
    std::string expected = "a";
    for (std::size_t i = 0; i < bytes.size(); ++i) expected += replacement;
    EXPECT_EQ(spelt(text), expected + "b");
    EXPECT_EQ(text.replaced(), static_cast<std::int64_t>(bytes.size()));
  }
  EXPECT_EQ(spelt(read("a\xE6\xBC")), "a" + replacement + replacement);
}

TEST_F(TextFile, OfTooFewCharactersIsRefused) {
  EXPECT_EQ(read("漢字", 2).size(), 2);
  try {
    read("漢字", 3);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(path_.string() + ": no text of at least 3 characters"));
  }
}

}  // namespace
}  // namespace char_transformer
