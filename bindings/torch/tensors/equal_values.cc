#include "bindings/torch/tensors/equal_values.h"

#include "bindings/torch/tensors/text_lines.h"

#include <kolo/torch/functions.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kMostOthers = 4;  ///< values that a difference tells beside the first
constexpr int kDigits = 4;              ///< base-256 digits of a 32-bit number

std::uint64_t mixed(std::uint64_t hash, std::uint64_t with) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;  // 2^64 divided by the golden ratio
  hash = (hash ^ with) * kMultiplier;
  return hash ^ (hash >> 32);
}

std::uint32_t bits_of(double value) {
  if (std::isnan(value)) return 0x7FC00000;
  return std::bit_cast<std::uint32_t>(static_cast<float>(value) + 0.0F);  // no negative zero
}

/// Calls `add` with the name and the value of each option.
template <class Add>
void for_each_option(const torch::optim::OptimizerOptions& options, const Add& add) {
  using namespace torch::optim;
  const auto add_adam = [&](const auto& adam) {
    add("lr", adam.lr());
    add("beta 1", std::get<0>(adam.betas()));
    add("beta 2", std::get<1>(adam.betas()));
    add("eps", adam.eps());
    add("weight_decay", adam.weight_decay());
    add("amsgrad", adam.amsgrad());
  };
  if (const auto* const adamw = dynamic_cast<const AdamWOptions*>(&options)) {
    add_adam(*adamw);
  } else if (const auto* const adam = dynamic_cast<const AdamOptions*>(&options)) {
    add_adam(*adam);
  } else if (const auto* const sgd = dynamic_cast<const SGDOptions*>(&options)) {
    add("lr", sgd->lr());
    add("momentum", sgd->momentum());
    add("dampening", sgd->dampening());
    add("weight_decay", sgd->weight_decay());
    add("nesterov", sgd->nesterov());
  } else if (const auto* const rmsprop = dynamic_cast<const RMSpropOptions*>(&options)) {
    add("lr", rmsprop->lr());
    add("alpha", rmsprop->alpha());
    add("eps", rmsprop->eps());
    add("weight_decay", rmsprop->weight_decay());
    add("momentum", rmsprop->momentum());
    add("centered", rmsprop->centered());
  } else if (const auto* const adagrad = dynamic_cast<const AdagradOptions*>(&options)) {
    add("lr", adagrad->lr());
    add("lr_decay", adagrad->lr_decay());
    add("weight_decay", adagrad->weight_decay());
    add("initial_accumulator_value", adagrad->initial_accumulator_value());
    add("eps", adagrad->eps());
  } else if (const auto* const lbfgs = dynamic_cast<const LBFGSOptions*>(&options)) {
    add("lr", lbfgs->lr());
    add("max_iter", static_cast<double>(lbfgs->max_iter()));
    add("max_eval", static_cast<double>(lbfgs->max_eval().value_or(-1)));
    add("tolerance_grad", lbfgs->tolerance_grad());
    add("tolerance_change", lbfgs->tolerance_change());
    add("history_size", static_cast<double>(lbfgs->history_size()));
  } else {
    try {
      add("lr", options.get_lr());
    } catch (const c10::Error&) {
      // It has no learning rate.
    }
  }
}

/// 0 for a state that counts no steps.
std::int64_t steps_of(const torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  if (const auto* const adamw = dynamic_cast<const AdamWParamState*>(&state)) return adamw->step();
  if (const auto* const adam = dynamic_cast<const AdamParamState*>(&state)) return adam->step();
  if (const auto* const rms = dynamic_cast<const RMSpropParamState*>(&state)) return rms->step();
  if (const auto* const grad = dynamic_cast<const AdagradParamState*>(&state)) return grad->step();
  return 0;
}

/// Whether both texts are numbers that EqualValues::hash() takes as equal, or nearly so: of two
/// doubles that differ in their last bits, one may be rounded up and one down.
bool is_rounding(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return end == text.c_str() + text.size() ? value : std::numeric_limits<double>::quiet_NaN();
  };
  const double x = number(a);
  const double y = number(b);
  return std::abs(x - y) <=
         std::numeric_limits<float>::epsilon() * std::max(std::abs(x), std::abs(y));
}

using Line = std::pair<std::string, std::string>;  ///< name and value

Line split(const std::string& line) {
  const std::size_t tab = line.find('\t');
  return {line.substr(0, tab), line.substr(tab + 1)};
}

std::string text_of(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// Describes how line `i` differs among the ranks that have this line; empty if it does not. What
/// most of them have comes first, and the others are named as those that differ from it.
std::string difference_at(std::size_t i, const std::map<int, std::vector<std::string>>& all) {
  std::vector<std::pair<Line, std::vector<int>>> kinds;
  std::size_t tellers = 0;
  for (const auto& [rank, lines] : all) {
    if (i >= lines.size()) continue;
    ++tellers;
    const Line line = split(lines[i]);
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) {
      return kind.first == line ||
             (kind.first.first == line.first && is_rounding(kind.first.second, line.second));
    });
    if (known == kinds.end()) {
      kinds.push_back({line, {rank}});
    } else {
      known->second.push_back(rank);
    }
  }
  if (kinds.size() < 2) return {};
  const auto most = std::find_if(kinds.begin(), kinds.end(), [tellers](const auto& kind) {
    return 2 * kind.second.size() > tellers;
  });
  const bool has_majority = most != kinds.end();
  if (has_majority) std::rotate(kinds.begin(), most, most + 1);
  const auto& [first, first_ranks] = kinds[0];
  const auto& [other, other_ranks] = kinds[1];
  if (first.first == other.first) {
    std::string text =
        fmt::format("{} is {} on {}, but", first.first, first.second, text_of(first_ranks));
    for (std::size_t k = 1; k < kinds.size() && k <= kMostOthers; ++k)
      text += fmt::format("{} {} on {}", k == 1 ? "" : ",", kinds[k].first.second,
                          text_of(kinds[k].second));
    if (kinds.size() > 1 + kMostOthers) text += ", …";
    return has_majority ? text + ", against most ranks" : text;
  }
  return fmt::format("{} has {} ({}) where {} has {} ({})", text_of(first_ranks), first.first,
                     first.second, text_of(other_ranks), other.first, other.second);
}

}  // namespace

void EqualValues::add(const char* name, double value, int group, int optimizer) {
  values_.push_back({name, value, group, optimizer});
}

void EqualValues::append(const EqualValues& others) {
  const auto same = [](const Value& a, const Value& b) {
    return a.name == b.name && a.value == b.value && a.group == b.group &&
           a.optimizer == b.optimizer;
  };
  if (std::search(values_.begin(), values_.end(), others.values_.begin(), others.values_.end(),
                  same) == values_.end())
    values_.insert(values_.end(), others.values_.begin(), others.values_.end());
}

std::uint32_t EqualValues::hash() const {
  std::uint64_t hash = values_.size();
  for (const Value& value : values_) {
    for (const char* at = value.name; *at != 0; ++at)
      hash = mixed(hash, static_cast<unsigned char>(*at));
    hash = mixed(hash, bits_of(value.value));
  }
  return static_cast<std::uint32_t>(hash);
}

std::vector<std::string> EqualValues::lines() const {
  std::vector<std::string> lines;
  for (const Value& value : values_) {
    std::string line = value.name;
    if (value.group >= 0) line += fmt::format(" of group {}", value.group);
    if (value.optimizer >= 0) line += fmt::format(" of optimizer {}", value.optimizer);
    lines.push_back(line + fmt::format("\t{:.9g}", value.value));
  }
  return lines;
}

EqualValues values_of(const torch::optim::Optimizer& optimizer, bool whole_state, int number) {
  EqualValues values;
  const auto& groups = optimizer.param_groups();
  values.add("number of groups", static_cast<double>(groups.size()), -1, number);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto group = static_cast<int>(g);
    const auto add = [&](const char* name, double value) {
      values.add(name, value, group, number);
    };
    if (groups[g].has_options()) for_each_option(groups[g].options(), add);
    if (!whole_state || groups[g].params().empty()) continue;
    const auto it = optimizer.state().find(groups[g].params().front().unsafeGetTensorImpl());
    const bool has_state = it != optimizer.state().end() && it->second != nullptr;
    add("count of steps", has_state ? static_cast<double>(steps_of(*it->second)) : 0);
  }
  if (whole_state)
    values.add("number of parameters with a state", static_cast<double>(optimizer.state().size()),
               -1, number);
  return values;
}

// The cells hold each digit d of the number and its square. If n ranks have the same d, then n
// times the sum of squares equals the square of the sum; otherwise it is greater (Cauchy-Schwarz).
// The sums fit int32 up to 33,000 ranks.
void tell_number(std::optional<std::uint32_t> number, std::int32_t* cells) {
  std::fill_n(cells, kNumberCells, 0);
  if (!number) return;
  cells[0] = 1;
  for (int i = 0; i < kDigits; ++i) {
    const auto digit = static_cast<std::int32_t>((*number >> (8 * i)) & 0xFF);
    cells[1 + 2 * i] = digit;
    cells[2 + 2 * i] = digit * digit;
  }
}

bool is_one_number(const std::int32_t* sums) {
  for (int i = 0; i < kDigits; ++i) {
    const std::int64_t sum = sums[1 + 2 * i];
    if (std::int64_t{tellers(sums)} * sums[2 + 2 * i] != sum * sum) return false;
  }
  return true;
}

TensorWork tell_lines(const std::vector<std::string>& lines, const std::string& name,
                      const ProcessSet& set) {
  const std::string text = join_lines(lines);
  torch::Tensor bytes = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kUInt8);
  std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<std::uint8_t>());
  return allgather_async(bytes, {.name = name, .process_set = set});
}

Difference difference_of(TensorWork& told, const ProcessSet& set) {
  const torch::Tensor bytes = told.wait();
  const auto* at = reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>());
  std::map<int, std::vector<std::string>> all;
  std::size_t most = 0;
  const std::vector<int> ranks = set.ranks();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto length = static_cast<std::size_t>(told.received_splits()[r]);
    if (length > 0) most = std::max(most, (all[ranks[r]] = split_lines({at, length})).size());
    at += length;
  }
  Difference found;
  found.first = all.empty() ? 0 : all.begin()->first;
  for (std::size_t i = 0; i < most && found.text.empty(); ++i) found.text = difference_at(i, all);
  return found;
}

}  // namespace kolo
