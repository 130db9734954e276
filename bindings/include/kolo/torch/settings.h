// Settings: a file of `key: value` lines, such as a trainer's hyperparameters or Accelerate's
// configuration.
//
//   const auto settings = kolo::Settings::from_file("train.yaml");
//   const auto lr = settings.get<double>("optimizer.lr");
//   const auto epochs = settings.get<int>("epochs", 10);  // 10 without the key
//
// - It reads a part of YAML: scalars, quotes, comments and nested maps. Keys of nested maps are
//   joined by dots ("optimizer.lr").
// - Lists and other YAML are an error, with the key and the line number.
// - Each process reads the file itself.
// - Settings is a value. Any thread.
#pragma once

#include <kolo/export.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

class KOLO_API Settings {
 public:
  /// No settings: get() returns its second argument.
  Settings() = default;
  /// Both throw kInvalidArgument, with the name and the line, if they cannot read the text.
  static Settings from_file(const std::filesystem::path& path);
  static Settings from_text(const std::string& text, const std::string& name);

  /// Keys and values in the order of the file. A value of null, [] or {} counts as absent.
  const std::vector<std::pair<std::string, std::string>>& items() const { return items_; }
  bool has(const std::string& key) const;

  /// Returns the value as T: std::string, bool, an integer or a floating-point type. Throws
  /// kInvalidArgument, with key and value, if the value is not a T. Without a second argument the
  /// key must exist.
  template <class T>
  T get(const std::string& key) const {
    if constexpr (std::is_same_v<T, std::string>) {
      return text(key);
    } else if constexpr (std::is_same_v<T, bool>) {
      return boolean(key);
    } else if constexpr (std::is_integral_v<T>) {
      const std::int64_t value = integer(key);
      if (!std::in_range<T>(value)) refuse(key, "a number in the range of its type");
      return static_cast<T>(value);
    } else {
      static_assert(std::is_floating_point_v<T>, "a setting is text, a number or a truth value");
      return static_cast<T>(number(key));
    }
  }
  template <class T>
  T get(const std::string& key, T otherwise) const {
    return has(key) ? get<T>(key) : std::move(otherwise);
  }

 private:
  const std::string& text(const std::string& key) const;
  bool boolean(const std::string& key) const;
  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  [[noreturn]] void refuse(const std::string& key, const std::string& wanted) const;

  std::string name_ = "settings";
  std::vector<std::pair<std::string, std::string>> items_;
};

}  // namespace kolo
