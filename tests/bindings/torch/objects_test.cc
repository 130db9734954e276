#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using kolo::test::message_of;

std::string text_of(int rank) {
  std::string text(static_cast<std::size_t>(rank * 1000 + 3), static_cast<char>('a' + rank));
  text[1] = '\0';
  return text;
}

TEST(Objects, BytesFromEveryRoot) {
  for (int root = 0; root < kolo::size(); ++root) {
    EXPECT_EQ(kolo::broadcast_object(text_of(kolo::rank()), root), text_of(root));
    EXPECT_EQ(kolo::broadcast_object(std::string(), root, {.name = "nothing"}), "");
  }
}

TEST(Objects, ByteStringsOfAllRanks) {
  const auto all = kolo::allgather_object(text_of(kolo::rank()));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(kolo::size()));
  for (int rank = 0; rank < kolo::size(); ++rank) {
    EXPECT_EQ(all[static_cast<std::size_t>(rank)], text_of(rank));
  }
  EXPECT_THAT(kolo::allgather_object(std::string(), {.name = "nothing"}), testing::Each(""));
}

TEST(Objects, WhatTorchSaves) {
  const int root = kolo::size() - 1;
  const auto mine = torch::full({kolo::rank() + 1, 2}, kolo::rank(), torch::kInt16);
  EXPECT_TRUE(torch::equal(kolo::broadcast_object(mine, root),
                           torch::full({root + 1, 2}, root, torch::kInt16)));

  const std::vector<torch::Tensor> list(static_cast<std::size_t>(kolo::rank()), mine);
  const auto lists = kolo::allgather_object(list);
  for (int rank = 0; rank < kolo::size(); ++rank) {
    const auto& from = lists[static_cast<std::size_t>(rank)];
    ASSERT_EQ(from.size(), static_cast<std::size_t>(rank));
    if (rank > 0) {
      EXPECT_TRUE(torch::equal(from[0], torch::full({rank + 1, 2}, rank, torch::kInt16)));
    }
  }

  c10::Dict<std::string, double> scores;
  scores.insert("rank", kolo::rank());
  const auto got = kolo::broadcast_object(torch::IValue(scores), root);
  EXPECT_EQ(got.toGenericDict().at("rank").toDouble(), root);
}

TEST(Objects, Numbers) {
  EXPECT_EQ(kolo::broadcast_object(kolo::rank() + 5, 0), 5);
  EXPECT_TRUE(kolo::broadcast_object(kolo::rank() == 0, 0));
  const std::vector<double> all = kolo::allgather_object(kolo::rank() * 0.5);
  for (int rank = 0; rank < kolo::size(); ++rank) {
    EXPECT_EQ(all[static_cast<std::size_t>(rank)], rank * 0.5);
  }
  EXPECT_THAT(message_of([] { kolo::from_bytes<double>(kolo::to_bytes(7)); }),
              testing::HasSubstr("4 bytes came where a number of 8 is expected"));
}

TEST(Objects, AViewOfMuchMemoryIsNoMoreThanItShows) {
  const auto much = torch::arange(1 << 16);
  const std::string bytes = kolo::to_bytes<torch::Tensor>(much.slice(0, 7, 9));
  EXPECT_LT(bytes.size(), 8192);
  EXPECT_TRUE(torch::equal(kolo::from_bytes<torch::Tensor>(bytes), torch::tensor({7, 8})));
}

TEST(Objects, AFailureOfOneRankIsToldToAll) {
  const int odd = kolo::size() - 1;
  // An undefined tensor in a list has no bytes.
  const std::vector<torch::Tensor> list = {kolo::rank() == odd ? torch::Tensor() : torch::ones(2)};
  const auto expected = testing::StartsWith("rank " + std::to_string(odd) +
                                            ": the value to send is, or has, an undefined tensor");
  EXPECT_THAT(message_of([&] { kolo::broadcast_object(list, odd); }), expected);
  EXPECT_THAT(message_of([&] { kolo::broadcast_object(list[0], odd); }), expected);
  EXPECT_THAT(message_of([&] { kolo::broadcast_object(torch::IValue(list[0]), odd); }), expected);
  EXPECT_THAT(message_of([&] { kolo::allgather_object(list); }), expected);
  EXPECT_EQ(kolo::broadcast_object(std::string("x"), odd), "x") << "still usable";
}

}  // namespace
