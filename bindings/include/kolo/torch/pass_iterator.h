// PassIterator: the pass under way of a loader, for `for (auto& batch : loader)`; once only, as an
// input iterator is. The loader hands it a batch at a time by a next() that it may keep private to
// this class. The training loop's thread.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace kolo {

template <class Loader, class Batch>
class PassIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;

  /// Takes the first batch. What stands for the pass lives as long as it, and its copies.
  explicit PassIterator(Loader* loader, std::shared_ptr<void> pass = nullptr)
      : loader_(loader),
        pass_(std::move(pass)),
        batch_(std::make_shared<std::optional<Batch>>(loader->next())) {}

  Batch& operator*() const { return **batch_; }
  Batch* operator->() const { return &**batch_; }
  PassIterator& operator++() {
    *batch_ = loader_->next();
    return *this;
  }
  bool operator==(std::default_sentinel_t) const { return !batch_->has_value(); }

 private:
  Loader* loader_;
  std::shared_ptr<void> pass_;
  std::shared_ptr<std::optional<Batch>> batch_;  // copies are at the same batch
};

}  // namespace kolo
