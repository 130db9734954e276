#include "runtime/runtime.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/handshake.h"
#include "runtime/device/device.h"

#include <cmath>
#include <utility>

namespace kolo {

Runtime::Runtime(World world, RuntimeParts parts)
    : config_(std::move(parts.config)),
      log_(std::move(parts.log)),
      communicator_(0, std::move(world)),
      transport_(std::move(parts.transport)),
      table_(waker_, static_cast<std::uint64_t>(config_.batch_size)),
      cycle_(communicator_, *transport_, host_device(), table_, ordered_, window_, config_, log_),
      driver_(std::make_shared<Driver>(cycle_, table_, *transport_, waker_,
                                       communicator_.world().has_core_for_each_rank())) {}

Result<std::unique_ptr<Runtime>> Runtime::start(Bootstrap& bootstrap, RuntimeParts parts) {
  const std::chrono::seconds timeout(parts.config.init_timeout_s);
  Handshake mine;
  mine.transport = std::string(parts.transport->name());
  mine.address = parts.transport->address();
  mine.settings = parts.config.agreed_settings();
  mine.info = describe_this_process(parts.config.host_id);
  KOLO_ASSIGN(std::vector<Handshake> all,
              exchange_handshake(bootstrap, std::move(mine), Deadline::after(timeout)));

  std::vector<RankInfo> infos;
  for (const Handshake& handshake : all) infos.push_back(handshake.info);
  World world(bootstrap.rank(), std::move(infos));
  std::vector<Peer> peers;
  for (int rank = 0; rank < world.size(); ++rank) {
    peers.push_back({std::move(all[static_cast<std::size_t>(rank)].address),
                     world.same_host(rank, world.rank())});
  }
  parts.log.set_rank(world.rank());
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(world), std::move(parts)));
  KOLO_TRY(runtime->connect(bootstrap, std::move(peers)));
  runtime->log_start(bootstrap);
  runtime->driver_->start();
  return runtime;
}

Status Runtime::connect(Bootstrap& bootstrap, std::vector<Peer> peers) {
  const auto deadline = [this] {
    return Deadline::after(std::chrono::seconds(config_.init_timeout_s));
  };
  KOLO_TRY(transport_->connect(communicator_.rank(), std::move(peers), cycle_,
                               communicator_.abort(), deadline()));
  return window_.open(bootstrap, *transport_, communicator_.world(),
                      static_cast<std::size_t>(config_.shared_memory), log_, deadline());
}

void Runtime::log_start(const Bootstrap& bootstrap) const {
  const World& world = communicator_.world();
  const RankInfo& info = world.info(world.rank());
  log_.info("hostname={} LOCAL_RANK={} RANK={} WORLD_SIZE={} pid={}", info.hostname,
            world.local_rank(), world.rank(), world.size(), info.pid);
  if (world.rank() == 0) {
    log_.info("kolo {}: bootstrap {}, transport {}", KOLO_VERSION, bootstrap.description(),
              transport_->description());
  }
}

Runtime::~Runtime() { shut_down(); }

Status Runtime::check(const Submission& submission) const {
  const Signature& signature = submission.signature;
  const auto wrong = [&](std::string_view what) -> Error {
    return KOLO_ERROR(kInvalidArgument, "rank {}: {} '{}': {}", communicator_.rank(),
                      to_string(signature.kind), submission.name, what);
  };
  for (const std::int64_t extent : signature.shape) {
    if (extent < 0) return wrong(fmt::format("shape {} is negative", to_string(signature.shape)));
  }
  if (signature.elements() > 0 &&
      ((submission.input == nullptr && !submission.absent) || submission.output == nullptr)) {
    return wrong("the memory is a null pointer");
  }
  if (signature.root < 0 || signature.root >= communicator_.size()) {
    return wrong(fmt::format("root {} is no rank; ranks are 0 to {}", signature.root,
                             communicator_.size() - 1));
  }
  if (!std::isfinite(signature.prescale) || !std::isfinite(signature.postscale)) {
    return wrong(fmt::format("prescale {} and postscale {} must be finite", signature.prescale,
                             signature.postscale));
  }
  return {};
}

Entry Runtime::make_entry(Submission submission) {
  Entry entry;
  entry.name = std::move(submission.name);
  entry.signature = std::move(submission.signature);
  entry.input = submission.input;
  entry.output = submission.output;
  entry.absent = submission.absent;
  entry.keep_alive = std::move(submission.keep_alive);
  entry.work = std::make_shared<Work>(
      [weak = std::weak_ptr(driver_)](Work& work, std::chrono::steady_clock::time_point until) {
        const auto driver = weak.lock();
        return driver && driver->drive(work, until);
      });
  return entry;
}

Result<std::shared_ptr<Work>> Runtime::submit(Submission submission) {
  KOLO_TRY(check(submission));
  if (submission.name.empty()) {
    submission.name = fmt::format("{}.unnamed.{}", to_string(submission.signature.kind),
                                  unnamed_.fetch_add(1, std::memory_order_relaxed));
  }
  const bool will_wait = submission.will_wait;
  Entry entry = make_entry(std::move(submission));
  std::shared_ptr<Work> work = entry.work;
  KOLO_TRY(table_.submit(std::move(entry), will_wait));
  return work;
}

Result<std::shared_ptr<Work>> Runtime::submit_ordered(Submission submission) {
  submission.name = "(ordered)";
  KOLO_TRY(check(submission));
  Entry entry = make_entry(std::move(submission));
  std::shared_ptr<Work> work = entry.work;
  KOLO_TRY(ordered_.submit(std::move(entry)));
  return work;
}

void Runtime::shut_down() {
  driver_->stop([this] { cycle_.shut_down(); });
}

bool Runtime::failed() const {
  const Abort& abort = communicator_.abort();
  return abort.raised() && abort.error().code != ErrorCode::kShutdown;
}

Controller::Counters Runtime::negotiation_counters() {
  Controller::Counters counters;
  driver_->with_token([&] { counters = cycle_.negotiation_counters(); });
  return counters;
}

}  // namespace kolo
