#include "tools/run/discovery.h"

#include "runtime/base/check.h"
#include "tools/run/process.h"
#include "tools/run/say.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace kolo::run {
namespace {

/// What a run may print.
constexpr off_t kMostBytes = 16 << 20;

std::string text_of(int file) {
  struct stat status = {};
  if (::fstat(file, &status) != 0 || status.st_size > kMostBytes) return "";
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t count = ::pread(file, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

std::string last_line_of(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

UniqueDescriptor file_in_memory() {
  return UniqueDescriptor(::memfd_create("kolo-run", MFD_CLOEXEC));
}

}  // namespace

Discovery::~Discovery() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Status Discovery::keep(Clock::time_point now) {
  if (now < due_) return {};
  if (pid_ >= 0) {
    is_late_ = true;
    ::kill(-pid_, SIGKILL);
    return {};
  }
  due_ = now + kInterval;
  out_ = file_in_memory();
  error_ = file_in_memory();
  if (!out_ || !error_) {
    return KOLO_ERROR(kOutOfMemory, "--host-discovery {}: no memory for what it prints: {}",
                      program_, std::generic_category().message(errno));
  }
  auto started = start_process(
      {}, {.arguments = {program_}, .variables = Environment::of_process().variables()},
      {.out = out_.get(), .error = error_.get()});
  if (!started.ok()) {
    fail(started.error().message);
    return KOLO_ERROR(kInvalidArgument, "--host-discovery: {}", started.error().message);
  }
  pid_ = started->pid;
  is_late_ = false;
  due_ = now + kLimit;
  return {};
}

bool Discovery::take_end(pid_t pid, int status) {
  if (pid_ < 0 || pid != pid_) return false;
  pid_ = -1;
  ::kill(-pid, SIGKILL);  // what it has left running
  due_ = Clock::now() + kInterval;
  take_result(status);
  return true;
}

void Discovery::take_result(int status) {
  if (is_late_) return fail(fmt::format("it took longer than {} s", kLimit.count()));
  if (exit_code_of(status) != 0) {
    const std::string line = last_line_of(text_of(error_.get()));
    return fail(describe_status(status) + (line.empty() ? "" : ", after the line: " + line));
  }
  auto hosts = parse_hostfile(text_of(out_.get()));
  if (!hosts.ok()) return fail(hosts.error().message);
  found_ = *std::move(hosts);
  failure_.clear();
  reported_.clear();
}

void Discovery::fail(std::string reason) { failure_ = std::move(reason); }

std::string Discovery::take_failure() {
  if (failure_ == reported_) return "";
  reported_ = failure_;
  return fmt::format("--host-discovery {}: {}; the last list of hosts stays", program_, failure_);
}

Result<std::vector<Host>> await_hosts(const std::string& program, int slots,
                                      std::chrono::seconds limit) {
  Discovery discovery(program);
  const auto end = Discovery::Clock::now() + limit;
  int last = -1;
  while (true) {
    const auto now = Discovery::Clock::now();
    KOLO_TRY(discovery.keep(now));
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      discovery.take_end(pid, status);
    }
    if (const std::string failure = discovery.take_failure(); !failure.empty()) say(failure);
    if (auto hosts = discovery.take_hosts()) {
      int found = 0;
      for (const Host& host : *hosts) found += host.slots;
      if (found >= slots) return *std::move(hosts);
      if (found != last) {
        say(
            fmt::format("--host-discovery lists {} of at least {} slots; waiting for more, up to "
                        "{} s (--elastic-timeout)",
                        found, slots, limit.count()));
      }
      last = found;
    }
    if (now >= end) {
      return KOLO_ERROR(kTimeout,
                        "--host-discovery {} listed {} of at least {} slots within {} s "
                        "(--elastic-timeout)",
                        program, std::max(last, 0), slots, limit.count());
    }
    ::poll(nullptr, 0, 20);
  }
}

}  // namespace kolo::run
