#include "runtime/bootstrap/host_list.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/store_wire.h"

#include <optional>
#include <utility>

namespace kolo {
namespace {

// More hosts than any machine has: a typing error in a range must not fill the memory.
constexpr std::size_t kMostHosts = 1 << 20;

/// Splits at commas outside of brackets.
std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> items;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      items.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    } else {
      depth += list[i] == '[' ? 1 : list[i] == ']' ? -1 : 0;
    }
  }
  return items;
}

/// "08-10" → 08 09 10; nothing if `range` is malformed.
std::optional<std::vector<std::string>> expand_range(std::string_view range) {
  const auto dash = range.find('-');
  const std::string_view first_text = range.substr(0, dash);
  const auto first = parse_count(first_text);
  const auto last = dash == std::string_view::npos ? first : parse_count(range.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  if (static_cast<std::size_t>(*last - *first) >= kMostHosts) return std::nullopt;
  std::vector<std::string> numbers;
  for (int number = *first; number <= *last; ++number) {
    numbers.push_back(fmt::format("{:0{}}", number, first_text.size()));
  }
  return numbers;
}

/// Expands what stands between brackets.
std::optional<std::vector<std::string>> expand_ranges(std::string_view list) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split_list(list)) {
    const auto expanded = expand_range(range);
    if (!expanded) return std::nullopt;
    numbers.insert(numbers.end(), expanded->begin(), expanded->end());
  }
  return numbers;
}

std::vector<std::string> each_with_each(const std::vector<std::string>& names,
                                        const std::vector<std::string>& numbers) {
  std::vector<std::string> longer;
  for (const std::string& name : names) {
    for (const std::string& number : numbers) longer.push_back(name + number);
  }
  return longer;
}

/// Expands one item: text and brackets in turn. Nothing if brackets or ranges are malformed.
std::optional<std::vector<std::string>> expand_item(std::string_view item) {
  std::vector<std::string> names = {""};
  if (item.empty()) return std::nullopt;
  while (!item.empty()) {
    const auto open = item.find('[');
    for (std::string& name : names) name += item.substr(0, open);
    if (item.substr(0, open).find(']') != std::string_view::npos) return std::nullopt;
    if (open == std::string_view::npos) break;
    const auto close = item.find(']', open);
    if (close == std::string_view::npos) return std::nullopt;
    const auto numbers = expand_ranges(item.substr(open + 1, close - open - 1));
    if (!numbers || names.size() * numbers->size() > kMostHosts) return std::nullopt;
    names = each_with_each(names, *numbers);
    item.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view item : split_list(list)) {
    const auto names = expand_item(item);
    if (!names || hosts.size() + names->size() > kMostHosts) {
      return KOLO_ERROR(kInvalidArgument,
                        "the node list '{}' is wrong at '{}': expected names with ranges, as "
                        "n[1-3,7],m05",
                        list, item);
    }
    hosts.insert(hosts.end(), names->begin(), names->end());
  }
  return hosts;
}

Result<std::vector<int>> expand_task_counts(std::string_view counts) {
  std::vector<int> all;
  for (const std::string_view item : split_list(counts)) {
    const auto open = item.find("(x");
    const bool repeats = open != std::string_view::npos && item.ends_with(')');
    const auto count = parse_count(item.substr(0, open));
    const auto times =
        repeats ? parse_count(item.substr(open + 2, item.size() - open - 3)) : std::optional(1);
    const bool valid = count && times && repeats == (open != std::string_view::npos);
    if (!valid || all.size() + static_cast<std::size_t>(*times) > kMostHosts) {
      return KOLO_ERROR(kInvalidArgument,
                        "the task counts '{}' are wrong at '{}': expected numbers with "
                        "repetitions, as 3,1(x3)",
                        counts, item);
    }
    all.insert(all.end(), static_cast<std::size_t>(*times), *count);
  }
  return all;
}

std::uint16_t port_from_key(std::string_view key) {
  constexpr int kFirst = 20000;
  constexpr int kCount = 32768 - kFirst;
  int value = 0;
  for (const char byte : sha256(key).substr(0, 3)) {
    value = value << 8 | static_cast<unsigned char>(byte);
  }
  return static_cast<std::uint16_t>(kFirst + value % kCount);
}

}  // namespace kolo
