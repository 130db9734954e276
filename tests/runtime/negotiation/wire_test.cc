#include "runtime/negotiation/wire.h"

#include <gtest/gtest.h>

namespace kolo::wire_test {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

template <class T>
std::string encoded(const std::vector<T>& list) {
  std::span<const T> rest(list);
  std::string bytes = encode_first(rest);
  EXPECT_TRUE(rest.empty());
  return bytes;
}

const Signature kSignature{
    OperationKind::kBroadcast, DataType::kBFloat16, ReduceOp::kAverage, 3, 0.5, 2.0, {4, 0, 7}};

TEST(Wire, RequestsSurvive) {
  const auto decoded = decode_requests(
      bytes_of(encoded(std::vector<Request>{{"a", kSignature, true}, {"b", Signature{}, false}})));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  ASSERT_EQ(decoded->size(), 2U);
  EXPECT_EQ((*decoded)[0].name, "a");
  EXPECT_EQ((*decoded)[0].signature, kSignature);
  EXPECT_TRUE((*decoded)[0].absent);
  EXPECT_EQ((*decoded)[1].signature, Signature{});
  EXPECT_FALSE((*decoded)[1].absent);
}

TEST(Wire, ResponsesSurvive) {
  std::vector<Response> responses{{"a", kSignature, 5, std::nullopt}, {"b", {}, 0, Error{}}};
  responses[1].error->code = ErrorCode::kMismatch;
  responses[1].error->message = "differ";
  const auto decoded = decode_responses(bytes_of(encoded(responses)));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ((*decoded)[0].signature, kSignature);
  EXPECT_EQ((*decoded)[0].contributors, 5);
  EXPECT_FALSE((*decoded)[0].error.has_value());
  ASSERT_TRUE((*decoded)[1].error.has_value());
  EXPECT_EQ((*decoded)[1].error->code, ErrorCode::kMismatch);
  EXPECT_EQ((*decoded)[1].error->message, "differ");
}

TEST(Wire, SplitsGroupsAndComplaintsSurvive) {
  Request request{"a", kSignature, false, {3, 0, 4}, "too short", 7};
  request.signature.kind = OperationKind::kAlltoall;
  request.signature.group = "g";
  request.signature.group_size = 2;
  const auto requests = decode_requests(bytes_of(encoded(std::vector<Request>{request})));
  ASSERT_TRUE(requests.ok());
  EXPECT_EQ(requests->front().signature, request.signature);
  EXPECT_EQ(requests->front().splits, request.splits);
  EXPECT_EQ(requests->front().complaint, "too short");
  EXPECT_EQ(requests->front().step, 7U);

  Response response{"a", request.signature, 3};
  response.participants = 2;
  response.splits = {1, 2, 0, 5};
  response.result = 7;
  response.missing = {1};
  const auto responses = decode_responses(bytes_of(encoded(std::vector<Response>{response})));
  ASSERT_TRUE(responses.ok());
  EXPECT_EQ(responses->front().participants, 2);
  EXPECT_EQ(responses->front().splits, response.splits);
  EXPECT_EQ(responses->front().result, 7);
  EXPECT_EQ(responses->front().missing, response.missing);
}

TEST(Wire, EqualSplitsOfManyRanksAreShort) {
  constexpr std::size_t kRanks = 2000;
  Response response{"tokens", {.kind = OperationKind::kAlltoall, .shape = {}}, kRanks};
  response.splits.assign(kRanks * kRanks, 7);
  response.splits[2 * kRanks - 1] = 8;
  const std::string bytes = encoded(std::vector<Response>{response});
  EXPECT_LT(bytes.size(), 100U);
  const auto responses = decode_responses(bytes_of(bytes));
  ASSERT_TRUE(responses.ok());
  EXPECT_EQ(responses->front().splits, response.splits);

  for (const Splits& splits :
       {Splits{}, Splits{0}, Splits{0, 0}, Splits{3, 3, 3}, Splits{3, 4}, Splits{3, 3, 3, 3, 4}}) {
    Request request{"tokens", response.signature};
    request.splits = splits;
    const auto requests = decode_requests(bytes_of(encoded(std::vector<Request>{request})));
    ASSERT_TRUE(requests.ok());
    EXPECT_EQ(requests->front().splits, splits);
  }
}

TEST(Wire, RefusesGarbage) {
  EXPECT_FALSE(decode_requests(bytes_of("\x0a\xff garbage")).ok());
  EXPECT_FALSE(decode_responses(bytes_of("\x0a\xff garbage")).ok());
  // An unknown type must not become an enumerator that does not exist.
  Request request{"a", {}, false};
  request.signature.type = static_cast<DataType>(77);
  EXPECT_FALSE(decode_requests(bytes_of(encoded(std::vector<Request>{request}))).ok());
  const auto decode_with = [](const std::string& splits) {
    const std::string item =
        std::string("\x0a\x01n\x22") + static_cast<char>(splits.size()) + splits;
    return decode_requests(bytes_of(std::string("\x0a") + static_cast<char>(item.size()) + item));
  };
  const auto even = decode_with("\x0a\x01\x07\x12\x01\x02");
  ASSERT_TRUE(even.ok());
  EXPECT_EQ(even->front().splits, (Splits{7, 7}));
  EXPECT_FALSE(decode_with("\x12\x01\x02").ok());                              // no number
  EXPECT_FALSE(decode_with("\x0a\x01\x07\x12\x05\xff\xff\xff\xff\x07").ok());  // 2 billion times
}

}  // namespace
}  // namespace kolo::wire_test
