#include "bindings/torch/tensors/name_number.h"

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace kolo {
namespace {

struct Taken {
  std::mutex mutex;
  std::map<std::pair<std::string, std::uint32_t>, std::set<int>> numbers;
};

/// Never destroyed: a program's static objects, such as an optimizer, may be destroyed later.
Taken& taken() {
  static Taken& all = *new Taken;
  return all;
}

}  // namespace

NameNumber::NameNumber(std::string kind, std::uint32_t process_set)
    : kind_(std::move(kind)), process_set_(process_set), number_(0) {
  Taken& all = taken();
  const std::lock_guard lock(all.mutex);
  std::set<int>& numbers = all.numbers[{kind_, process_set_}];
  while (!numbers.insert(number_).second) ++number_;
}

NameNumber& NameNumber::operator=(NameNumber&& other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(process_set_, other.process_set_);
  std::swap(number_, other.number_);
  return *this;
}

NameNumber::~NameNumber() {
  if (number_ < 0) return;
  Taken& all = taken();
  const std::lock_guard lock(all.mutex);
  all.numbers[{kind_, process_set_}].erase(number_);
}

}  // namespace kolo
