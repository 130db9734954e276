// Environment: a snapshot of the process's variables, the only place that reads them. Tests pass
// their own. Immutable after construction.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace kolo {

class Environment {
 public:
  using Variables = std::map<std::string, std::string, std::less<>>;

  explicit Environment(Variables variables) : variables_(std::move(variables)) {}
  /// A snapshot of this process's variables.
  static Environment of_process();

  /// The value, or nothing when unset or empty.
  std::optional<std::string> get(std::string_view name) const;
  /// The value as a non-negative integer, or nothing when unset or not a number.
  std::optional<int> get_int(std::string_view name) const;
  const Variables& variables() const { return variables_; }

 private:
  Variables variables_;
};

}  // namespace kolo
