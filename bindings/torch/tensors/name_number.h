// NameNumber: a number that makes the operation names of an object, such as an optimizer, differ
// from those of other living objects of its kind. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace kolo {

/// The lowest number that no living object of this kind on this process set has. Ranks create and
/// destroy their objects in the same order, so numbers match. Ranks that join a later world match,
/// too: the objects of earlier worlds have gone.
class NameNumber {
 public:
  NameNumber() = default;  ///< no number
  explicit NameNumber(std::string kind, std::uint32_t process_set = 0);
  NameNumber(NameNumber&& other) noexcept { *this = std::move(other); }
  NameNumber& operator=(NameNumber&& other) noexcept;
  ~NameNumber();

  /// For example "optimizer0/" for the kind "optimizer".
  std::string prefix() const { return kind_ + std::to_string(number_) + "/"; }

 private:
  std::string kind_;
  std::uint32_t process_set_ = 0;
  int number_ = -1;
};

}  // namespace kolo
