// Numbers that each rank has of its own and that must be equal on all ranks, such as a learning
// rate: a hash of them for a message that is sent anyway, and, where the hashes differ, the values
// themselves by name. Private to bindings/torch; one thread.
//
//   EqualValues values = values_of(optimizer, true);
//   tell_number(values.hash(), cells);       // of a message of int32 that is summed over the ranks
//   if (!is_one_number(sums)) {              // so on all ranks, or on none
//     TensorWork told = tell_lines(values.lines(), name, set);
//     what = difference_of(told, set).text;  // "lr of group 0 is 0.1 on rank 0, but 0.2 on rank 1"
//   }
#pragma once

#include <kolo/kolo.h>
#include <kolo/torch/tensor_work.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

class EqualValues {
 public:
  /// `name` is a literal; `group` and `optimizer` are numbers of what it belongs to, if any.
  void add(const char* name, double value, int group = -1, int optimizer = -1);
  /// Unless they are here already.
  void append(const EqualValues& others);
  bool empty() const { return values_.empty(); }
  /// Of the values as float32: the last bits of a double may differ where processors do.
  std::uint32_t hash() const;
  /// For each value its name, a tab, and the value.
  std::vector<std::string> lines() const;

 private:
  struct Value {
    const char* name;
    double value;
    int group;
    int optimizer;
  };
  std::vector<Value> values_;
};

/// The options of an optimizer's groups; with `whole_state`, where it has the state of whole
/// parameters, also how many have a state, and the steps of each group's first one. Of an optimizer
/// that is none of LibTorch's only the learning rates, if it tells them.
EqualValues values_of(const torch::optim::Optimizer& optimizer, bool whole_state, int number = -1);

/// How many int32 one number takes in a message that is summed over the ranks.
inline constexpr std::size_t kNumberCells = 9;
/// Writes this rank's number, or that it has none.
void tell_number(std::optional<std::uint32_t> number, std::int32_t* cells);
/// How many ranks have told one.
inline std::int32_t tellers(const std::int32_t* sums) { return sums[0]; }
/// Whether these have told the same one. A function of the sums alone, hence alike on all ranks.
bool is_one_number(const std::int32_t* sums);

/// Starts to tell all ranks of `set` these lines, of which a rank may have none.
TensorWork tell_lines(const std::vector<std::string>& lines, const std::string& name,
                      const ProcessSet& set);
struct Difference {
  std::string text;  ///< the first one, with the ranks and both values; empty if there is none
  int first = 0;     ///< the lowest rank of the world that has told something
};
/// Waits for tell_lines(). A line counts on the ranks that have it; values that are equal but for
/// their rounding do not differ.
Difference difference_of(TensorWork& told, const ProcessSet& set);

}  // namespace kolo
