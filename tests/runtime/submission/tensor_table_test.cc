#include "runtime/submission/tensor_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kolo {
namespace {

class TensorTableTest : public testing::Test {
 protected:
  Status submit(const std::string& name) {
    auto entry = std::make_unique<Entry>();
    entry->name = name;
    return table_.submit(std::span(&entry, 1), false);
  }
  std::vector<EntryPtr> drain() {
    std::vector<EntryPtr> entries;
    table_.drain(entries);
    return entries;
  }

  Waker waker_;
  TensorTable table_{waker_, 1};
};

TEST_F(TensorTableTest, RefusesANameThatIsInFlightUntilItIsReleased) {
  ASSERT_TRUE(submit("a").ok());
  EXPECT_EQ(table_.in_flight(), 1U);
  const Status again = submit("a");
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, testing::HasSubstr("'a': an operation of this name is in"));
  table_.release("a");
  EXPECT_EQ(table_.in_flight(), 0U);
  EXPECT_TRUE(submit("a").ok());
}

TEST_F(TensorTableTest, ForgetsFreeNamesButNoneInFlight) {
  ASSERT_TRUE(submit("kept").ok());
  for (int i = 0; i < 100'000; ++i) {
    const std::string name = "step " + std::to_string(i);
    ASSERT_TRUE(submit(name).ok());
    table_.release(name);
  }
  EXPECT_EQ(table_.in_flight(), 1U);
  EXPECT_FALSE(submit("kept").ok());
  EXPECT_TRUE(submit("step 0").ok());
}

TEST_F(TensorTableTest, StatesWhenTheFirstEntryOfABatchCame) {
  ASSERT_TRUE(submit("a").ok());
  ASSERT_TRUE(submit("b").ok());
  const std::vector<EntryPtr> first = drain();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0]->submitted_at, first[1]->submitted_at);
  ASSERT_TRUE(submit("c").ok());
  EXPECT_GT(drain().at(0)->submitted_at, first[0]->submitted_at);
}

}  // namespace
}  // namespace kolo
