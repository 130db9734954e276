#include "bindings/torch/gradients/agreement.h"

#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/tensors/text_lines.h"

#include <kolo/torch/functions.h>
#include <kolo/torch/objects.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

namespace kolo {
namespace {

/// First character of the text of a rank that has no list. The code of its error and the reason
/// follow.
constexpr char kIsWrong = '!';

std::string told_error(ErrorCode code, const std::string& reason) {
  return std::string{kIsWrong, static_cast<char>(code)} + reason;
}

using Fields = std::vector<std::string>;

/// The name and the fields after it.
Fields fields_of(const std::string& line) {
  Fields fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

bool has_name(const std::vector<std::string>& lines, const std::string& name) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.compare(0, line.find('\t'), name) == 0;
  });
}

std::string lack(const Fields& fields, int has, int lacks) {
  return fmt::format("rank {} has {} ({}), which rank {} lacks", has, fields.front(),
                     fmt::join(std::span(fields).subspan(1), ", "), lacks);
}

/// Every rank's text, by rank in the set.
std::vector<std::string> allgather_texts(const std::string& text, const std::string& name,
                                         const ProcessSet& set) {
  const auto count = static_cast<std::int64_t>(text.size());
  const auto sizes = allgather(torch::tensor({count}, torch::kInt64),
                               {.name = name + "/sizes", .process_set = set});
  std::vector<std::string> texts(static_cast<std::size_t>(sizes.numel()));
  if (sizes.sum().item<std::int64_t>() == 0) return texts;
  const auto all =
      allgather(torch::from_blob(const_cast<char*>(text.data()), {count}, torch::kUInt8),
                {.name = name, .process_set = set});
  const char* at = static_cast<const char*>(all.const_data_ptr());
  for (std::size_t r = 0; r < texts.size(); ++r) {
    const auto length = sizes[static_cast<std::int64_t>(r)].item<std::int64_t>();
    texts[r].assign(at, static_cast<std::size_t>(length));
    at += length;
  }
  return texts;
}

/// How two lines differ of which both ranks have one.
std::string line_difference(const Fields& mine, int first_rank, const Fields& theirs,
                            int other_rank) {
  if (mine.front() != theirs.front()) {
    return fmt::format("rank {} has {} where rank {} has {}", first_rank, mine.front(), other_rank,
                       theirs.front());
  }
  for (std::size_t i = 1; i < std::min(mine.size(), theirs.size()); ++i) {
    if (mine[i] == theirs[i]) continue;
    return fmt::format("{} is {} on rank {}, but {} on rank {}", mine.front(), mine[i], first_rank,
                       theirs[i], other_rank);
  }
  return lack(mine.size() > theirs.size() ? mine : theirs, first_rank, other_rank);
}

}  // namespace

std::string difference(const std::vector<std::string>& first, int first_rank,
                       const std::vector<std::string>& other, int other_rank) {
  const auto [a, b] = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
  if (a == first.end() && b == other.end()) return {};
  const Fields mine = a == first.end() ? Fields() : fields_of(*a);
  const Fields theirs = b == other.end() ? Fields() : fields_of(*b);
  if (!mine.empty() && !has_name(other, mine.front())) return lack(mine, first_rank, other_rank);
  if (!theirs.empty() && !has_name(first, theirs.front()))
    return lack(theirs, other_rank, first_rank);
  if (mine.empty()) return lack(theirs, other_rank, first_rank);
  if (theirs.empty()) return lack(mine, first_rank, other_rank);
  return line_difference(mine, first_rank, theirs, other_rank);
}

void agree(const std::string& who, const std::string& name, const ProcessSet& set,
           const std::function<std::vector<std::string>()>& list) {
  std::string mine;
  try {
    mine = join_lines(list());
  } catch (const Exception& error) {
    mine = told_error(error.code(), error.what());
  } catch (const std::exception& error) {
    mine = told_error(ErrorCode::kInvalidArgument, reason_of(error));
  }
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>()(mine));
  const torch::Tensor hashes =
      allgather(torch::tensor({hash}, torch::kInt64), {.name = name + "/hash", .process_set = set});
  if (hashes.eq(hash).all().item<bool>() && !mine.starts_with(kIsWrong)) return;
  const std::vector<std::string> all = allgather_texts(mine, name, set);
  const std::vector<int> ranks = set.ranks();
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].starts_with(kIsWrong)) continue;
    const std::string reason = all[r].substr(2);
    raise(
        static_cast<ErrorCode>(all[r][1]),
        fmt::format("{}rank {}: {}", reason.starts_with(who) ? "" : who + ": ", ranks[r], reason));
  }
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const std::string& text) { return text != all.front(); });
  raise(ErrorCode::kMismatch,
        fmt::format("{}: {}; make the same, with the same options, on every rank", who,
                    difference(split_lines(all.front()), ranks.front(), split_lines(*other),
                               ranks[static_cast<std::size_t>(other - all.begin())])));
}

}  // namespace kolo
