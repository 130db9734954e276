// The lines of PMI 1, as launchers write them, and bytes as text.
#include "runtime/bootstrap/pmi_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo::pmi_wire_test {
namespace {

using testing::HasSubstr;

TEST(PmiWire, AnswersOfLaunchers) {
  const auto found = parse_pmi("cmd=get_result rc=0 msg=success value=abc-_9");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->command, "get_result");
  EXPECT_TRUE(found->succeeded());
  EXPECT_EQ(found->field("value"), "abc-_9");
  EXPECT_EQ(found->field("nothing"), "");
  EXPECT_FALSE(parse_pmi("cmd=get_result rc=-1 msg=key_a_not_found value=unknown")->succeeded());
  EXPECT_FALSE(parse_pmi("cmd=get_result rc=1")->succeeded());
  EXPECT_TRUE(parse_pmi("cmd=barrier_out tag=0")->succeeded());
  const auto limits = parse_pmi("cmd=maxes rc=0  keylen_max=64 vallen_max=1024 b=-1 c=x d=1x e=");
  EXPECT_EQ(limits->number("vallen_max"), 1024);
  for (const char* name : {"b", "c", "d", "e", "f"}) EXPECT_FALSE(limits->number(name)) << name;
}

TEST(PmiWire, GarbageIsRefusedAndShown) {
  for (const char* line : {"", " ", "cmd", "cmd=", "rc=0 cmd=get_result", "HTTP/1.1 400 Bad"}) {
    EXPECT_FALSE(parse_pmi(line).ok()) << line;
  }
  const auto refused = parse_pmi("SSH-2.0\x01\xff" + std::string(1000, 'x'));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("'SSH-2.0?"));
  EXPECT_LT(refused.error().message.size(), 200U);
}

TEST(PmiWire, AnyBytesPassAsText) {
  std::string bytes;
  for (int length = 0; length < 600; ++length) {
    const std::string text = to_pmi_text(bytes);
    EXPECT_EQ(text.find_first_of(" =\n"), std::string::npos);
    EXPECT_EQ(from_pmi_text(text), bytes) << length;
    bytes += static_cast<char>(length * 7 % 256);
  }
  EXPECT_EQ(to_pmi_text("Many hands"), "TWFueSBoYW5kcw");  // as RFC 4648 has it
  EXPECT_EQ(to_pmi_text("\xff\xef"), "_-8");
}

TEST(PmiWire, OtherTextIsRefused) {
  for (const char* text : {"A", "AB=", "A B", "AAAAA", "A+/A", "AB\n", "AB", "AAB"}) {
    EXPECT_FALSE(from_pmi_text(text)) << text;
  }
}

}  // namespace
}  // namespace kolo::pmi_wire_test
