// Operations that count in rows, over in-process ranks: any number of ranks, uneven rows, odd
// widths, three types, in place; then again from the response cache.
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace kolo::test::rows_test {
namespace {

using testing::HasSubstr;

/// Rank `from`'s element in row `row` at `column`: unique, and so small that sums over ranks are
/// exact.
template <class T>
T value(int from, std::int64_t row, std::int64_t column) {
  return static_cast<T>(from * 10007 + row * 101 + column);
}

template <class T>
std::vector<T> rows_from(int from, std::int64_t first, std::int64_t rows, std::int64_t width) {
  std::vector<T> values;
  for (std::int64_t row = first; row < first + rows; ++row) {
    for (std::int64_t column = 0; column < width; ++column)
      values.push_back(value<T>(from, row, column));
  }
  return values;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::int64_t uneven(int rank, int step) { return (rank * 5 + step * 3) % 7; }

class RowsOf : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }

  template <class T>
  void allgather(Runtime& runtime, int rank, int step, std::int64_t width) {
    Rows<T> rows{rows_from<T>(rank, 0, uneven(rank, step), width), {}, {}};
    const auto work = submit(runtime, rows_of(OperationKind::kAllgather, "allgather", rows,
                                              {uneven(rank, step), width}));
    ASSERT_DONE(work);
    std::vector<T> expected;
    Splits splits;
    for (int r = 0; r < size(); ++r) {
      append(expected, rows_from<T>(r, 0, uneven(r, step), width));
      splits.push_back(uneven(r, step));
    }
    EXPECT_EQ(rows.output, expected);
    EXPECT_EQ(work->received_splits(), splits);
    EXPECT_EQ(rows.output_shape,
              (Shape{std::accumulate(splits.begin(), splits.end(), std::int64_t{0}), width}));
    EXPECT_EQ(rows.allocations, 1);
  }

  template <class T>
  void alltoall(Runtime& runtime, int rank, int step, std::int64_t width) {
    const auto sends = [&](int from, int to) { return (from * 3 + to * 2 + step) % 4; };
    Rows<T> rows;
    Splits splits;
    std::int64_t total = 0;
    for (int to = 0; to < size(); ++to) {
      splits.push_back(sends(rank, to));
      total += splits.back();
    }
    rows.input = rows_from<T>(rank, 0, total, width);
    auto submission = rows_of(OperationKind::kAlltoall, "alltoall", rows, {total, width});
    submission.splits = splits;
    const auto work = submit(runtime, std::move(submission));
    ASSERT_DONE(work);
    std::vector<T> expected;
    Splits received;
    for (int from = 0; from < size(); ++from) {
      std::int64_t first = 0;
      for (int to = 0; to < rank; ++to) first += sends(from, to);
      append(expected, rows_from<T>(from, first, sends(from, rank), width));
      received.push_back(sends(from, rank));
    }
    EXPECT_EQ(rows.output, expected);
    EXPECT_EQ(work->received_splits(), received);
  }

  template <class T>
  void reducescatter(Runtime& runtime, int rank, int step, std::int64_t width) {
    const std::int64_t total = 11 + step;
    Rows<T> rows{rows_from<T>(rank, 0, total, width), {}, {}};
    ASSERT_DONE(submit(
        runtime, rows_of(OperationKind::kReduceScatter, "reducescatter", rows, {total, width})));
    std::int64_t first = 0;
    for (int r = 0; r < rank; ++r) first += even_share(total, r, size());
    std::vector<T> expected;
    for (std::int64_t row = first; row < first + even_share(total, rank, size()); ++row) {
      for (std::int64_t column = 0; column < width; ++column) {
        T sum{};
        for (int r = 0; r < size(); ++r) sum += value<T>(r, row, column);
        expected.push_back(sum);
      }
    }
    EXPECT_EQ(rows.output, expected);
  }

  template <class T>
  void gather_and_scatter(Runtime& runtime, int rank, int step, std::int64_t width) {
    const int root = step % size();
    Rows<T> mine{rows_from<T>(rank, 0, uneven(rank, step), width), {}, {}};
    auto submission = rows_of(OperationKind::kGather, "gather", mine, {uneven(rank, step), width});
    submission.signature.root = root;
    ASSERT_DONE(submit(runtime, std::move(submission)));
    std::vector<T> expected;
    Splits splits;
    for (int r = 0; r < size(); ++r) {
      append(expected, rows_from<T>(r, 0, uneven(r, step), width));
      splits.push_back(uneven(r, step));
    }
    EXPECT_EQ(mine.output, rank == root ? expected : std::vector<T>());

    // And back again.
    Rows<T> back{mine.output, {}, {}};
    const std::int64_t total = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
    submission =
        rows_of(OperationKind::kScatter, "scatter", back, {rank == root ? total : 0, width});
    submission.signature.root = root;
    if (rank == root) submission.splits = splits;
    ASSERT_DONE(submit(runtime, std::move(submission)));
    EXPECT_EQ(back.output, mine.input);
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, RowsOf, testing::Values(1, 2, 3, 4, 5, 9));

TEST_P(RowsOf, EveryTypeWidthAndStepAreRight) {
  run_local_world(size(), [&](int rank, Runtime& runtime) {
    for (int step = 0; step < 8; ++step) {
      const std::int64_t width = step % 3 == 0 ? 1 : 13 * step;
      allgather<float>(runtime, rank, step, width);
      allgather<std::int64_t>(runtime, rank, step, width);
      alltoall<double>(runtime, rank, step, width);
      alltoall<float>(runtime, rank, step, width);
      reducescatter<std::int64_t>(runtime, rank, step, width);
      reducescatter<float>(runtime, rank, step, width);
      gather_and_scatter<double>(runtime, rank, step, width);
      gather_and_scatter<std::int64_t>(runtime, rank, step, width);
    }
  });
}

TEST_P(RowsOf, TheSameRowsAgainComeFromTheCache) {
  run_local_world(size(), [&](int rank, Runtime& runtime) {
    for (int step = 0; step < 6; ++step) {
      allgather<float>(runtime, rank, 1, 5);
      alltoall<float>(runtime, rank, 1, 5);
      gather_and_scatter<float>(runtime, rank, 1, 5);
      reducescatter<float>(runtime, rank, 1, 5);
    }
    EXPECT_EQ(runtime.negotiation_counters().requests, 5U);
    EXPECT_EQ(runtime.negotiation_counters().cached, 25U);
    // One rank alone has other rows: it sends a full request, and all ranks get the new table.
    Rows<float> rows{rows_from<float>(rank, 0, rank == 0 ? 9 : uneven(rank, 1), 5), {}, {}};
    const std::int64_t mine = rank == 0 ? 9 : uneven(rank, 1);
    const auto work =
        submit(runtime, rows_of(OperationKind::kAllgather, "allgather", rows, {mine, 5}));
    ASSERT_DONE(work);
    EXPECT_EQ(work->received_splits().front(), 9);
    EXPECT_EQ(runtime.negotiation_counters().requests, rank == 0 ? 6U : 5U);
  });
}

TEST_P(RowsOf, InputsMayLieInTheOutput) {
  run_local_world(size(), [&](int rank, Runtime& runtime) {
    constexpr std::int64_t kWidth = 3;
    const auto at = [&](std::vector<float>& values, std::int64_t row) {
      return reinterpret_cast<std::byte*>(values.data() + row * kWidth);
    };
    // Allgather with each rank's input at its own part of the output; two rows each.
    std::vector<float> all(static_cast<std::size_t>(2 * size() * kWidth));
    const auto mine = rows_from<float>(rank, 0, 2, kWidth);
    std::copy(mine.begin(), mine.end(), all.begin() + rank * 2 * kWidth);
    Submission submission;
    submission.name = "allgather";
    submission.signature.kind = OperationKind::kAllgather;
    submission.signature.shape = {2, kWidth};
    submission.input = at(all, rank * 2);
    submission.output = at(all, 0);
    ASSERT_DONE(submit(runtime, submission));
    std::vector<float> expected;
    for (int r = 0; r < size(); ++r) append(expected, rows_from<float>(r, 0, 2, kWidth));
    EXPECT_EQ(all, expected);

    // Alltoall over its own input.
    std::vector<float> exchanged = rows_from<float>(rank, 0, size(), kWidth);
    submission.name = "alltoall";
    submission.signature.kind = OperationKind::kAlltoall;
    submission.signature.shape = {size(), kWidth};
    submission.input = submission.output = at(exchanged, 0);
    ASSERT_DONE(submit(runtime, submission));
    expected.clear();
    for (int r = 0; r < size(); ++r) append(expected, rows_from<float>(r, rank, 1, kWidth));
    EXPECT_EQ(exchanged, expected);

    // Reduce-scatter into the first rows of its input.
    std::vector<float> summed(static_cast<std::size_t>(size() * kWidth));
    std::iota(summed.begin(), summed.end(), 0.0F);
    submission.name = "reducescatter";
    submission.signature.kind = OperationKind::kReduceScatter;
    submission.input = submission.output = at(summed, 0);
    ASSERT_DONE(submit(runtime, submission));
    for (std::int64_t i = 0; i < kWidth; ++i) {
      EXPECT_EQ(summed[static_cast<std::size_t>(i)],
                static_cast<float>(size()) * static_cast<float>(rank * kWidth + i));
    }
  });
}

TEST(RowMemory, ARankWithoutMemoryFailsAlone) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    Rows<float> rows{rows_from<float>(rank, 0, 2, 4), {}, {}};
    auto submission = rows_of(OperationKind::kAllgather, "big", rows, {2, 4});
    if (rank == 1) submission.allocate = [](const Shape&) { return nullptr; };
    const Status status = submit(runtime, submission)->wait();
    EXPECT_EQ(status.ok(), rank != 1);
    if (rank == 1) {
      EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
      EXPECT_THAT(status.error().message,
                  HasSubstr("allgather 'big': there is no memory for its output of shape [6, 4]"));
    } else {
      EXPECT_EQ(rows.output.size(), 24U);
    }
    Rows<float> next{rows_from<float>(rank, 0, 2, 4), {}, {}};
    ASSERT_DONE(submit(runtime, rows_of(OperationKind::kAllgather, "big", next, {2, 4})));
  });
}

}  // namespace
}  // namespace kolo::test::rows_test
