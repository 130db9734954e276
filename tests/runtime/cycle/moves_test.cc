// Operations that move rows against a plain reference, byte by byte: every operation, every type, 1
// to 9 ranks, numbers of rows around the algorithms' rounding, no rows on some ranks, out of place
// and in place. Ranks are threads.
#include "tests/support/guarded_memory.h"
#include "tests/support/rows.h"
#include "tests/support/sanitizers.h"

#include <gtest/gtest.h>

namespace kolo::test {
namespace {

/// Rows of rank `r` in round `step`. Round 7: no rank has any; round 8: all have the same number.
std::int64_t rows_in(int r, int step) {
  constexpr std::int64_t kRows[] = {0, 1, 7, 63, 64, 65, 1000};
  if (step == 7) return 0;
  if (step == 8) return 7;
  return kRows[(r * 3 + step) % 7];
}
constexpr int kSteps = 9;
/// Types differ in their bytes alone.
constexpr int kTypeStride = kSanitized ? 5 : 1;

/// Number of rows that rank `from` sends to rank `to`.
std::int64_t dealt(int from, int to, int step) { return rows_in(from + 2 * to, step) % 67; }

/// `rows` rows of rank `from`, starting at row `first`. Bytes differ between ranks and offsets;
/// they are 0 or 1 for bool.
Bytes rows_of_rank(DataType type, int from, std::int64_t first, std::int64_t rows,
                   std::size_t row_bytes) {
  Bytes bytes(static_cast<std::size_t>(rows) * row_bytes);
  std::uint64_t place = static_cast<std::uint64_t>(first) * row_bytes;
  for (std::byte& byte : bytes) {
    const std::uint64_t mixed =
        (place++ + static_cast<std::uint64_t>(from + 1) * 1'000'003) * 0x9E3779B97F4A7C15U;
    byte = static_cast<std::byte>(type == DataType::kBool ? mixed >> 63 : mixed >> 56);
  }
  return bytes;
}

/// One call on one rank: input and expected output.
struct Call {
  Submission submission;  ///< without memory
  Bytes input = {};
  Bytes expected = {};
  std::size_t own_offset = 0;  ///< bytes, for Placement::kAtItsPlace
  Splits received = {};        ///< empty: not given
};

class Moves : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }

  Call call(OperationKind kind, DataType type, int step, int root, std::int64_t rows,
            std::size_t row_elements) const {
    Call call;
    call.submission.name = fmt::format("{} of {}", to_string(kind), to_string(type));
    call.submission.signature.kind = kind;
    call.submission.signature.type = type;
    call.submission.signature.root = root;
    call.submission.signature.shape = {rows, static_cast<std::int64_t>(row_elements)};
    if (step % 2 == 0 && row_elements == 1) call.submission.signature.shape = {rows};
    return call;
  }

  /// An equal call on every rank; `rank` is the caller. `wider`: factor of the elements of a row.
  Call make(OperationKind kind, DataType type, int rank, int step, std::size_t wider = 1) const {
    const int root = step % size();
    const std::size_t width = (step % 3 == 0 ? 1 : 3) * wider;
    const std::size_t row = width * size_of(type);
    const bool is_root = rank == root;
    const std::int64_t mine = rows_in(rank, step);
    Call made = call(kind, type, step, root, mine, width);
    const auto from = [&](int r, std::int64_t first, std::int64_t rows) {
      return rows_of_rank(type, r, first, rows, row);
    };
    const auto expect = [&](const Bytes& bytes) {
      made.expected.insert(made.expected.end(), bytes.begin(), bytes.end());
    };
    if (kind == OperationKind::kBroadcast) {
      const std::int64_t rows = rows_in(0, step);
      made.submission.signature.shape[0] = rows;
      made.input = from(rank, 0, rows);
      made.expected = from(root, 0, rows);
    } else if (kind == OperationKind::kAllgather || kind == OperationKind::kGather) {
      made.input = from(rank, 0, mine);
      for (int r = 0; r < size(); ++r) {
        if (kind == OperationKind::kGather && !is_root) continue;
        if (r == rank) made.own_offset = made.expected.size();
        expect(from(r, 0, rows_in(r, step)));
        made.received.push_back(rows_in(r, step));
      }
    } else if (kind == OperationKind::kAlltoall) {
      std::int64_t all = 0;
      for (int r = 0; r < size(); ++r) {
        std::int64_t first = 0;
        for (int to = 0; to < rank; ++to) first += dealt(r, to, step);
        expect(from(r, first, dealt(r, rank, step)));
        made.received.push_back(dealt(r, rank, step));
        made.submission.splits.push_back(dealt(rank, r, step));
        all += dealt(rank, r, step);
      }
      made.submission.signature.shape[0] = all;
      made.input = from(rank, 0, all);
    } else {  // a scatter
      std::int64_t first = 0;
      std::int64_t all = 0;
      for (int r = 0; r < size(); ++r) {
        if (r == rank) first = all;
        all += dealt(root, r, step);
        if (is_root) made.submission.splits.push_back(dealt(root, r, step));
      }
      made.submission.signature.shape[0] = is_root ? all : 0;
      if (is_root) made.input = from(root, 0, all);
      made.expected = from(root, first, dealt(root, rank, step));
      if (is_root) made.own_offset = static_cast<std::size_t>(first) * row;
    }
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Moves, testing::Range(1, 10));

void check(Runtime& runtime, Call call, Placement placement) {
  GuardedMemory memory(call.input, call.expected.size(), placement, call.own_offset);
  Shape told;
  call.submission.input = memory.input();
  if (call.submission.signature.kind == OperationKind::kBroadcast) {
    call.submission.output = memory.output();
  } else {
    call.submission.allocate = [&](const Shape& shape) {
      told = shape;
      return memory.output();
    };
  }
  const bool allocates = call.submission.allocate != nullptr;
  const std::size_t element = size_of(call.submission.signature.type);
  const auto work = submit(runtime, std::move(call.submission));
  ASSERT_DONE(work);
  ASSERT_EQ(memory.damage(), "");
  ASSERT_TRUE(memory.result() == call.expected) << "the output is not the reference's";
  if (allocates) {
    ASSERT_EQ(static_cast<std::size_t>(element_count(told)) * element, call.expected.size());
  }
  if (!call.received.empty()) {
    ASSERT_EQ(work->received_splits(), call.received);
  }
}

TEST_P(Moves, EveryRowArrivesWhereItBelongs) {
  constexpr OperationKind kKinds[] = {OperationKind::kBroadcast, OperationKind::kAllgather,
                                      OperationKind::kGather, OperationKind::kAlltoall,
                                      OperationKind::kScatter};
  run_local_world(size(), [&](int rank, Runtime& runtime) {
    for (int t = 0; t < kDataTypeCount; t += kTypeStride) {
      const auto type = static_cast<DataType>(t);
      for (int step = 0; step < kSteps; ++step) {
        for (const OperationKind kind : kKinds) {
          for (const Placement placement :
               {Placement::kApart, Placement::kAtItsPlace, Placement::kSameStart}) {
            // Each rank has its own placement, on which no other rank's may depend.
            const auto its = static_cast<Placement>((static_cast<int>(placement) + rank) % 3);
            SCOPED_TRACE(fmt::format("rank {}: {} of {}, round {}, {}", rank, to_string(kind),
                                     to_string(type), step, to_string(its)));
            ASSERT_NO_FATAL_FAILURE(check(runtime, make(kind, type, rank, step), its));
          }
        }
      }
    }
  });
}

// Most of these are large enough for the windows.
TEST_P(Moves, WideRowsArriveAtAndFromEveryRoot) {
  run_local_world(size(), [&](int rank, Runtime& runtime) {
    for (int step = 0; step < kSteps; ++step)
      for (const auto& [kind, wider] :
           {std::pair(OperationKind::kGather, 201), std::pair(OperationKind::kScatter, 401)})
        for (const Placement placement :
             {Placement::kApart, Placement::kAtItsPlace, Placement::kSameStart}) {
          const auto its = static_cast<Placement>((static_cast<int>(placement) + rank) % 3);
          SCOPED_TRACE(fmt::format("rank {}: {}, round {}, {}", rank, to_string(kind), step,
                                   to_string(its)));
          ASSERT_NO_FATAL_FAILURE(
              check(runtime, make(kind, DataType::kFloat32, rank, step, wider), its));
        }
  });
}

// Each rank sends one message to each rank, itself included, with as many elements as both have
// rows.
TEST_P(Moves, EveryMessageArrives) {
  run_local_world(size(), [&](int rank, Runtime& runtime) {
    for (int t = 0; t < kDataTypeCount; t += kTypeStride) {
      const auto type = static_cast<DataType>(t);
      for (int step = 0; step < kSteps; ++step) {
        SCOPED_TRACE(fmt::format("rank {}: messages of {}, round {}", rank, to_string(type), step));
        std::vector<GuardedMemory> out;
        std::vector<GuardedMemory> in;
        std::vector<std::shared_ptr<Work>> works;
        out.reserve(static_cast<std::size_t>(size()));
        in.reserve(static_cast<std::size_t>(size()));
        const auto start = [&](OperationKind kind, int peer, std::byte* data, std::int64_t count) {
          Submission submission;
          submission.signature = {.kind = kind, .type = type, .root = peer, .shape = {count}};
          submission.input = submission.output = data;
          submission.tag = static_cast<std::uint32_t>(step);
          auto work = runtime.submit_message(std::move(submission));
          ASSERT_TRUE(work.ok()) << work.error().message;
          works.push_back(*std::move(work));
        };
        for (int peer = 0; peer < size(); ++peer) {
          const std::int64_t sent = rows_in(rank + peer * 2, step);
          const std::int64_t received = rows_in(peer + rank * 2, step);
          in.emplace_back(Bytes(), static_cast<std::size_t>(received) * size_of(type),
                          Placement::kApart, 0);
          ASSERT_NO_FATAL_FAILURE(
              start(OperationKind::kReceive, peer, in.back().output(), received));
          out.emplace_back(Bytes(), static_cast<std::size_t>(sent) * size_of(type),
                           Placement::kApart, 0);
          const Bytes values = rows_of_rank(type, rank, peer, sent, size_of(type));
          std::copy(values.begin(), values.end(), out.back().output());
          ASSERT_NO_FATAL_FAILURE(start(OperationKind::kSend, peer, out.back().output(), sent));
        }
        for (const auto& work : works) ASSERT_DONE(work);
        for (int peer = 0; peer < size(); ++peer) {
          const auto& message = in[static_cast<std::size_t>(peer)];
          ASSERT_EQ(message.damage(), "") << "from " << peer;
          ASSERT_TRUE(message.result() ==
                      rows_of_rank(type, peer, rank, rows_in(peer + rank * 2, step), size_of(type)))
              << "from " << peer;
        }
      }
    }
  });
}

}  // namespace
}  // namespace kolo::test
