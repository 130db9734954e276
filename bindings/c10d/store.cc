// Adapts torch's stores to kolo's KeyValueStore.
#include <kolo/c10d.h>
#include <kolo/torch/objects.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace kolo {
namespace {

/// Whether the socket listens at the TCP port.
bool listens_at(int socket, std::uint16_t port) {
  int listens = 0;
  socklen_t size = sizeof listens;
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return false;
  }
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port) == port;
  return address.ss_family == AF_INET6 &&
         ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port) == port;
}

class TorchStore final : public KeyValueStore {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    told([&] { store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return told([&] {
      store_->wait({key}, timeout);
      const std::vector<std::uint8_t> value = store_->get(key);
      return std::string(value.begin(), value.end());
    });
  }

  std::string set_once(const std::string& key, const std::string& value) override {
    return told([&] {
      const std::vector<std::uint8_t> now =
          store_->compareSet(key, {}, std::vector<std::uint8_t>(value.begin(), value.end()));
      return std::string(now.begin(), now.end());
    });
  }

  /// A TCPStore does not tell, so look for its server's socket.
  bool is_served_here() const override {
    c10d::Store* store = store_.get();
    if (auto* const prefix = dynamic_cast<c10d::PrefixStore*>(store))
      store = prefix->getUnderlyingNonPrefixStore().get();
    const auto* const tcp = dynamic_cast<const c10d::TCPStore*>(store);
    if (tcp == nullptr) return false;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error))
      if (listens_at(std::atoi(entry.path().filename().c_str()), tcp->getPort())) return true;
    return false;
  }

 private:
  /// LibTorch's errors would bring their stack.
  template <class Call>
  static auto told(Call call) -> decltype(call()) {
    try {
      return call();
    } catch (const c10::Error& error) {
      throw std::runtime_error(reason_of(error));
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<KeyValueStore> key_value_store(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<TorchStore>(std::move(store));
}

}  // namespace kolo
