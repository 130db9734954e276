// PrefixStore: puts "<prefix>/" before every key of another store, so that several meetings over
// one store stay apart. Used by the thread that calls init.
#pragma once

#include "runtime/bootstrap/store.h"

#include <memory>
#include <string>
#include <utility>

namespace kolo {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::unique_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {}

  Status set(std::string_view key, std::string value) override {
    return store_->set(prefixed(key), std::move(value));
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    return store_->get(prefixed(key), deadline);
  }
  Result<Gathered> exchange(std::string_view phase, int rank, int size, std::string value,
                            Deadline deadline) override {
    return store_->exchange(prefixed(phase), rank, size, std::move(value), deadline);
  }
  Error give_up(Error why) override { return store_->give_up(std::move(why)); }
  void leave() override { store_->leave(); }

 private:
  std::string prefixed(std::string_view key) const { return prefix_ + std::string(key); }

  const std::string prefix_;
  const std::unique_ptr<Store> store_;
};

}  // namespace kolo
