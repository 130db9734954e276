#include "runtime/runtime.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/handshake.h"
#include "runtime/device/device.h"
#include "runtime/submission/prepare.h"

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

Entry Runtime::make_entry(Submission submission) {
  Entry entry;
  const bool joins = submission.signature.kind == OperationKind::kJoin;
  entry.name = joins ? kJoinName : std::move(submission.name);
  entry.signature = std::move(submission.signature);
  entry.input = submission.input;
  entry.output = submission.output;
  entry.absent = submission.absent;
  entry.splits = std::move(submission.splits);
  entry.allocate = std::move(submission.allocate);
  entry.keep_alive = std::move(submission.keep_alive);
  entry.work = std::make_shared<Work>(
      [weak = std::weak_ptr(driver_)](Work& work, std::chrono::steady_clock::time_point until) {
        const auto driver = weak.lock();
        return driver && driver->drive(work, until);
      });
  prepare(entry, communicator_);
  return entry;
}

Result<std::shared_ptr<Work>> Runtime::submit(Submission submission) {
  const bool will_wait = submission.will_wait;
  std::vector<Entry> entries;
  entries.push_back(make_entry(std::move(submission)));
  std::shared_ptr<Work> work = entries.front().work;
  KOLO_TRY(table_.submit(std::move(entries), will_wait));
  return work;
}

Result<std::vector<std::shared_ptr<Work>>> Runtime::submit_group(
    std::vector<Submission> submissions, const std::string& group) {
  std::vector<Entry> entries;
  std::vector<std::shared_ptr<Work>> works;
  const auto members = static_cast<int>(submissions.size());
  for (Submission& submission : submissions) {
    Entry& entry = entries.emplace_back(make_entry(std::move(submission)));
    entry.signature.group = group;
    entry.signature.group_size = members;
    works.push_back(entry.work);
  }
  KOLO_TRY(table_.submit(std::move(entries), false));
  return works;
}

Result<std::shared_ptr<Work>> Runtime::submit_ordered(Submission submission) {
  submission.name = "(ordered)";
  Entry entry = make_entry(std::move(submission));
  if (!entry.complaint.empty()) {
    return KOLO_ERROR(kInvalidArgument, "rank {}: {}: {}", communicator_.rank(),
                      to_string(entry.signature.kind), entry.complaint);
  }
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
