// Numbers of each rank that must be equal on all ranks, such as a learning rate. Their hash travels
// in a message that is sent anyway. If the hashes differ, ranks exchange the values by name.
// Private to bindings/torch; one thread.
//
//   EqualValues values = values_of(optimizer, true);
//   tell_number(values.hash(), cells);       // int32 cells of a message that the ranks sum up
//   if (!is_one_number(sums)) {              // the same result on all ranks
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
  /// `name` is a literal. `group` and `optimizer` are the numbers of the value's owner, if any.
  void add(const char* name, double value, int group = -1, int optimizer = -1);
  /// Appends `others` unless they are already here.
  void append(const EqualValues& others);
  bool empty() const { return values_.empty(); }
  /// Hashes the values as float32: the last bits of a double may differ between processors.
  std::uint32_t hash() const;
  /// One line for each value: its name, a tab, and the value.
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

/// The options of an optimizer's groups. `whole_state`: the optimizer has the state of whole
/// parameters, so the number of parameters with a state and each group's step count (of its first
/// parameter) are added. For an optimizer that is not LibTorch's: only the learning rates, if
/// available.
EqualValues values_of(const torch::optim::Optimizer& optimizer, bool whole_state, int number = -1);

/// Number of int32 cells that one number takes in a message that is summed over the ranks.
inline constexpr std::size_t kNumberCells = 9;
/// Writes this rank's number, or that it has none.
void tell_number(std::optional<std::uint32_t> number, std::int32_t* cells);
/// Number of ranks that have told a number.
inline std::int32_t tellers(const std::int32_t* sums) { return sums[0]; }
/// Whether those ranks told the same number. It depends on the sums only, so all ranks agree.
bool is_one_number(const std::int32_t* sums);

/// Starts to send these lines to all ranks of `set`. A rank may have none.
TensorWork tell_lines(const std::vector<std::string>& lines, const std::string& name,
                      const ProcessSet& set);
struct Difference {
  std::string text;  ///< first difference, with the ranks and both values; empty if none
  int first = 0;     ///< lowest world rank that has told lines
};
/// Waits for tell_lines(). A line is compared among the ranks that have it. Values that differ by
/// rounding only count as equal.
Difference difference_of(TensorWork& told, const ProcessSet& set);

}  // namespace kolo
