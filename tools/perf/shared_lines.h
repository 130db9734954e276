// Cache lines that ranks of one host share: the probe and the barrier pass flags through them. Main
// thread of every rank.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace kolo::perf {

/// Zeroed memory without a name: nothing is left, however the ranks end.
class SharedLines {
 public:
  /// Collective over all ranks; those that take part map the memory of rank `owner`, one of them.
  /// Null on every rank if one of them cannot.
  static std::unique_ptr<SharedLines> open(int owner, bool takes_part, std::size_t size);

  SharedLines(const SharedLines&) = delete;
  SharedLines& operator=(const SharedLines&) = delete;
  ~SharedLines();

  /// Null on a rank that takes no part.
  void* data() const { return data_; }
  /// Whether the process of another rank that takes part has ended.
  bool has_partner_ended() const;

 private:
  explicit SharedLines(std::size_t size) : size_(size) {}

  const std::size_t size_;
  void* data_ = nullptr;
  std::vector<int> partners_;  // descriptors of their processes
};

}  // namespace kolo::perf
