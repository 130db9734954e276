#include "tools/perf/shared_lines.h"

#include <kolo/kolo.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace kolo::perf {

std::unique_ptr<SharedLines> SharedLines::open(int owner, bool takes_part, std::size_t size) {
  struct Process {
    std::int32_t id = 0;  // 0: takes no part
    std::int32_t file = -1;
  };
  Process mine;
  if (takes_part) mine.id = ::getpid();
  if (rank() == owner) mine.file = ::memfd_create("kolo-perf", MFD_CLOEXEC);
  int file = mine.file;
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(size)) != 0) mine.file = -1;
  std::vector<Process> processes(static_cast<std::size_t>(kolo::size()));
  allgather_ordered(&mine, processes.data(), sizeof(Process), DataType::kUInt8);

  std::unique_ptr<SharedLines> lines(new SharedLines(size));
  const Process& from = processes[static_cast<std::size_t>(owner)];
  if (takes_part && rank() != owner)
    file = ::open(fmt::format("/proc/{}/fd/{}", from.id, from.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file >= 0 && from.file >= 0) {
    void* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (data != MAP_FAILED) lines->data_ = data;
  }
  // The owner closes its file once the others have opened it.
  std::int64_t missing = takes_part && lines->data_ == nullptr ? 1 : 0;
  allreduce_ordered(&missing, &missing, 1, DataType::kInt64, ReduceOp::kMax);
  if (file >= 0) ::close(file);
  if (missing != 0) return nullptr;
  for (const Process& process : processes) {
    if (!takes_part || process.id == 0 || process.id == mine.id) continue;
    lines->partners_.push_back(static_cast<int>(::syscall(SYS_pidfd_open, process.id, 0)));
  }
  return lines;
}

SharedLines::~SharedLines() {
  if (data_ != nullptr) ::munmap(data_, size_);
  for (const int partner : partners_) {
    if (partner >= 0) ::close(partner);
  }
}

bool SharedLines::has_partner_ended() const {
  return std::any_of(partners_.begin(), partners_.end(), [](int partner) {
    pollfd ended{.fd = partner, .events = POLLIN, .revents = 0};
    return ::poll(&ended, 1, 0) > 0;
  });
}

}  // namespace kolo::perf
