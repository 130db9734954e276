// NameNumber: tells the names of operations of an object, such as an optimizer, from those of
// others of its kind that live at the same time. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace kolo {

/// The lowest number that no living object of this kind on this process set has. Ranks make and end
/// their objects in the same order, so they have the same numbers; so have ranks that come to a
/// world later than others, whose objects of earlier worlds have gone.
class NameNumber {
 public:
  NameNumber() = default;  ///< none
  explicit NameNumber(std::string kind, std::uint32_t process_set = 0);
  NameNumber(NameNumber&& other) noexcept { *this = std::move(other); }
  NameNumber& operator=(NameNumber&& other) noexcept;
  ~NameNumber();

  /// "optimizer0/", of the kind "optimizer".
  std::string prefix() const { return kind_ + std::to_string(number_) + "/"; }

 private:
  std::string kind_;
  std::uint32_t process_set_ = 0;
  int number_ = -1;
};

}  // namespace kolo
