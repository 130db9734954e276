// Adapts torch's stores to kolo's KeyValueStore.
#include <kolo/c10d.h>

#include <cstdint>
#include <utility>

namespace kolo {
namespace {

class TorchStore final : public KeyValueStore {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    store_->wait({key}, timeout);
    const std::vector<std::uint8_t> value = store_->get(key);
    return {value.begin(), value.end()};
  }

  std::string set_once(const std::string& key, const std::string& value) override {
    const std::vector<std::uint8_t> now =
        store_->compareSet(key, {}, std::vector<std::uint8_t>(value.begin(), value.end()));
    return {now.begin(), now.end()};
  }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<KeyValueStore> key_value_store(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<TorchStore>(std::move(store));
}

}  // namespace kolo
