#include "tests/support/emulated_card.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <utility>

namespace kolo::test {
namespace {

class Region final : public MemoryRegion {
 public:
  Region(std::span<std::byte> bytes, std::shared_ptr<EmulatedDevice> device)
      : bytes_(bytes), device_(std::move(device)) {}
  /// The card does not write there after this.
  ~Region() override { device_->forget_network_writes(bytes_); }
  std::span<std::byte> bytes() const override { return bytes_; }
  MemoryType type() const override { return MemoryType::kCuda; }
  std::string key() const override { return {}; }

 private:
  const std::span<std::byte> bytes_;
  const std::shared_ptr<EmulatedDevice> device_;
};

}  // namespace

EmulatedCard::EmulatedCard(std::unique_ptr<Transport> inner, std::shared_ptr<EmulatedDevice> device,
                           EmulatedCardOptions options)
    : ForwardingTransport(std::move(inner)),
      device_(std::move(device)),
      options_(std::move(options)) {}

Status EmulatedCard::connect(int rank, std::vector<Peer> peers, TransportListener& listener,
                             const Abort& abort, Deadline deadline) {
  peers_ = peers;
  return inner_->connect(rank, std::move(peers), listener, abort, deadline);
}

bool EmulatedCard::is_devices(int peer, std::span<const std::byte> data,
                              const Transfer& transfer) const {
  const bool is_devices = EmulatedAccelerator::behind(data.data()) != data.data();
  KOLO_CHECK(is_devices == (type_of(transfer.memory()) == MemoryType::kCuda));
  if (!is_devices) return false;
  const std::span<std::byte> registered = transfer.memory()->bytes();
  KOLO_CHECK(data.data() >= registered.data());
  KOLO_CHECK(data.data() + data.size() <= registered.data() + registered.size());
  KOLO_CHECK(!peers_[static_cast<std::size_t>(peer)].same_host);
  return true;
}

void EmulatedCard::send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) {
  if (is_devices(peer, data, transfer))
    data = {EmulatedAccelerator::behind(data.data()), data.size()};
  inner_->send(peer, tag, data, transfer);
}

void EmulatedCard::receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) {
  if (!is_devices(peer, data, transfer)) return inner_->receive(peer, tag, data, transfer);
  transfer.start();
  Landing& landing = landings_.emplace_back(*this, data, transfer);
  inner_->receive(peer, tag, landing.bytes, landing.inner);
}

void EmulatedCard::on_transfer_done(Transfer& transfer) {
  const auto done = std::find_if(landings_.begin(), landings_.end(), [&](const Landing& landing) {
    return &landing.inner == &transfer;
  });
  Transfer& outer = *done->outer;
  Status status = transfer.status();
  if (status.ok()) device_->write_from_network(done->destination, std::move(done->bytes));
  landings_.erase(done);
  outer.finish(std::move(status));
}

Error EmulatedCard::mismatch(const Transfer& transfer, const TransferEnd& receiver,
                             const TransferEnd& sender) const {
  const auto landing = std::find_if(landings_.begin(), landings_.end(),
                                    [&](const Landing& each) { return &each.inner == &transfer; });
  return landing->outer->mismatch(receiver, sender);
}

Result<std::unique_ptr<MemoryRegion>> EmulatedCard::register_memory(std::span<std::byte> bytes,
                                                                    MemoryType type) {
  if (type == MemoryType::kHost) return inner_->register_memory(bytes, type);
  if (!options_.registers)
    return KOLO_ERROR(kTransport, "the emulated card has no room to register");
  return std::unique_ptr<MemoryRegion>(std::make_unique<Region>(bytes, device_));
}

Result<std::string> EmulatedCard::reach_device(std::span<std::byte> memory) {
  KOLO_CHECK(EmulatedAccelerator::behind(memory.data()) != memory.data());
  if (!options_.refusal.empty()) return KOLO_ERROR(kUnsupported, "{}", options_.refusal);
  return std::string("an emulated card");
}

}  // namespace kolo::test
