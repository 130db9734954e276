// StoreBootstrap: exchanges blobs over any Store, under the keys "<phase>/<rank>". For in-process
// worlds, and for every rendezvous method that has a store and no collective.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/store.h"

namespace kolo {

class StoreBootstrap final : public Bootstrap {
 public:
  /// The store must outlive the bootstrap.
  StoreBootstrap(Store& store, int rank, int size) : store_(store), rank_(rank), size_(size) {}

  std::string description() const override { return "store"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<std::vector<std::string>> exchange(std::string_view phase, std::string blob,
                                            Deadline deadline) override;

 private:
  Store& store_;
  const int rank_;
  const int size_;
};

}  // namespace kolo
