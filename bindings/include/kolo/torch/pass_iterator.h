// PassIterator: iterates over a loader's current pass. It is an input iterator, so a pass is read
// once. It gets each batch from the loader's next(), which may be private with PassIterator as a
// friend. Used by the training loop's thread.
//
//   using Iterator = PassIterator<MyLoader, Batch>;    // in MyLoader
//   Iterator begin() { return Iterator(this); }        // takes the first batch
//   std::default_sentinel_t end() const { return {}; }
//   std::optional<Batch> next();                       // nullopt at the end of the pass
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

  /// Takes the first batch. `pass` lives as long as the iterator and its copies.
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
