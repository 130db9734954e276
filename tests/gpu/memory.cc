#include "tests/gpu/device_check.h"

#include "runtime/base/check.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace kolo::gpu {
namespace {

constexpr std::size_t kBytes = 3 << 20;

std::vector<std::byte> pattern(unsigned seed) {
  std::vector<std::byte> bytes(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i)
    bytes[i] = static_cast<std::byte>(i * 31 + i / 997 + seed);
  return bytes;
}

Status finish(DeviceStream& stream) {
  KOLO_ASSIGN(const auto done, stream.record());
  return done->synchronize();
}

/// Whether the memory holds `wanted`.
Result<bool> holds(DeviceStream& stream, const std::byte* memory,
                   const std::vector<std::byte>& wanted) {
  std::vector<std::byte> seen(wanted.size());
  KOLO_TRY(stream.copy(seen.data(), memory, seen.size()));
  KOLO_TRY(finish(stream));
  return seen == wanted;
}

Status check_events(Accelerator& accelerator, Verdicts& verdicts) {
  KOLO_ASSIGN(const auto first, accelerator.new_stream());
  KOLO_ASSIGN(const auto second, accelerator.new_stream());
  KOLO_ASSIGN(const auto memory, accelerator.allocate(2 * kBytes));
  std::byte* const base = memory->bytes().data();
  KOLO_ASSIGN(const bool is_zero, holds(*first, base, std::vector<std::byte>(2 * kBytes)));
  verdicts.expect(is_zero, "allocated memory is zero");

  // From stream to stream and back, many times; each must see the other's writes.
  const auto numbers = pattern(1);
  KOLO_TRY(first->copy(base, numbers.data(), kBytes));
  std::shared_ptr<DeviceEvent> last;
  for (int i = 0; i < 50; ++i) {
    KOLO_ASSIGN(last, first->record());
    KOLO_TRY(second->wait(*last));
    KOLO_TRY(second->copy(base + kBytes, base, kBytes));
    KOLO_ASSIGN(last, second->record());
    KOLO_TRY(last->order(first->native()));
    KOLO_TRY(first->copy(base, base + kBytes, kBytes));
  }
  KOLO_ASSIGN(last, accelerator.record(first->native()));
  KOLO_TRY(last->synchronize());
  KOLO_ASSIGN(const bool is_done, last->is_done());
  verdicts.expect(is_done, "an event that was waited for is done");
  KOLO_ASSIGN(const bool is_right, holds(*second, base, numbers));
  verdicts.expect(is_right, "streams see what events order");
  KOLO_TRY(first->zero(base, kBytes));
  KOLO_ASSIGN(const bool is_zero_again, holds(*first, base, std::vector<std::byte>(kBytes)));
  verdicts.expect(is_zero_again, "memory is zeroed");
  return {};
}

Status check_places(Accelerator& accelerator, Verdicts& verdicts) {
  KOLO_ASSIGN(const auto stream, accelerator.new_stream());
  KOLO_ASSIGN(const auto memory, accelerator.allocate(kBytes));
  KOLO_ASSIGN(const auto pinned, accelerator.allocate_pinned(kBytes));
  void* const pages =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return KOLO_ERROR(kOutOfMemory, "no memory to pin");
  verdicts.expect(accelerator.location_of(memory->bytes().data()) == MemoryLocation::kDevice,
                  "device memory is of the device");
  verdicts.expect(accelerator.location_of(pinned->bytes().data()) == MemoryLocation::kPinnedHost,
                  "pinned memory is pinned");
  verdicts.expect(accelerator.location_of(pages) == MemoryLocation::kHost,
                  "other memory is the host's");
  {
    KOLO_ASSIGN(const auto pin, accelerator.pin({static_cast<std::byte*>(pages), kBytes}));
    verdicts.expect(accelerator.location_of(pages) == MemoryLocation::kPinnedHost,
                    "pages are pinned");
    // A kernel reads and writes pinned memory in place.
    const auto numbers = pattern(2);
    std::copy(numbers.begin(), numbers.end(), static_cast<std::byte*>(pages));
    const auto* const from = static_cast<const std::byte*>(pages);
    std::byte* const to = pinned->bytes().data();
    const std::uint64_t count = kBytes;
    KOLO_TRY(stream->combine({.type = DataType::kUInt8}, {{&from, 1}, {&to, 1}, {&count, 1}}));
    KOLO_TRY(finish(*stream));
    verdicts.expect(std::equal(numbers.begin(), numbers.end(), to),
                    "a kernel copies pinned memory");
  }
  verdicts.expect(accelerator.location_of(pages) == MemoryLocation::kHost, "pages are let go");
  munmap(pages, kBytes);
  const auto no_memory = accelerator.allocate(accelerator.info().memory + (std::size_t{1} << 30));
  verdicts.expect(!no_memory.ok() && no_memory.error().code == ErrorCode::kOutOfMemory,
                  "too much memory is an error");
  verdicts.expect(!accelerator.import_memory("nonsense").ok(), "a wrong key is an error");
  verdicts.expect(!accelerator.export_memory(*pinned).ok(), "pinned memory is not exported");
  return {};
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

/// If processes cannot share device memory, as in some containers, kolo goes through the host's.
template <class Outcome>
bool lacks_ipc(const Outcome& outcome) {
  if (outcome.ok() || outcome.error().code != ErrorCode::kUnsupported) return false;
  fmt::print("not run: memory of another process: {}\n", outcome.error().message);
  return true;
}

Status check_peer(Accelerator& accelerator, Verdicts& verdicts) {
  KOLO_ASSIGN(const auto stream, accelerator.new_stream());
  KOLO_ASSIGN(const auto memory, accelerator.allocate(kBytes));
  const auto given = pattern(3);
  KOLO_TRY(stream->copy(memory->bytes().data(), given.data(), kBytes));
  KOLO_TRY(finish(*stream));
  const auto exported = accelerator.export_memory(*memory);
  if (lacks_ipc(exported)) return {};
  KOLO_ASSIGN(const std::string key, exported);
  KOLO_ASSIGN(const auto own, accelerator.import_memory(key));
  verdicts.expect(own->bytes().data() == memory->bytes().data() &&
                      own->bytes().size() == memory->bytes().size(),
                  "one's own key leads to one's own memory");

  std::string program = "/proc/self/exe";
  std::string option = "--import";
  std::string text = hexadecimal(key);
  std::string device = fmt::format("--device={}", accelerator.info().ordinal);
  char* arguments[] = {program.data(), device.data(), option.data(), text.data(), nullptr};
  const pid_t child = fork();
  if (child == 0) {
    execv(program.c_str(), arguments);
    _exit(127);
  }
  if (child < 0) return KOLO_ERROR(kInternal, "no second process could be started");
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNothingRun) return {};  // it has printed why
  verdicts.expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "another process imports memory");
  KOLO_ASSIGN(const bool is_written, holds(*stream, memory->bytes().data(), pattern(4)));
  verdicts.expect(is_written, "what another process writes is there");
  return {};
}

Status write_as_peer(Accelerator& accelerator, std::span<std::byte> memory) {
  KOLO_ASSIGN(const auto stream, accelerator.new_stream());
  KOLO_ASSIGN(const bool is_there, holds(*stream, memory.data(), pattern(3)));
  if (memory.size() != kBytes || !is_there)
    return KOLO_ERROR(kInternal, "the peer's memory holds something else");
  const auto written = pattern(4);
  KOLO_TRY(stream->copy(memory.data(), written.data(), kBytes));
  return finish(*stream);
}

}  // namespace

void check_memory(Accelerator& accelerator, bool is_quick, Verdicts& verdicts) {
  verdicts.succeeds(check_events(accelerator, verdicts), "streams and events");
  verdicts.succeeds(check_places(accelerator, verdicts), "places of memory");
  // A tool that watches only this process cannot follow the other one's memory.
  if (!is_quick) verdicts.succeeds(check_peer(accelerator, verdicts), "memory of peers");
}

int import_as_peer(Accelerator& accelerator, const std::string& key) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < key.size(); i += 2)
    bytes += static_cast<char>(std::stoi(key.substr(i, 2), nullptr, 16));
  const auto imported = accelerator.import_memory(bytes);
  if (lacks_ipc(imported)) return kNothingRun;
  const Status done =
      imported.ok() ? write_as_peer(accelerator, (*imported)->bytes()) : Status(imported.error());
  if (!done.ok()) fmt::print("FAILED: the peer: {}\n", done.error().message);
  return done.ok() ? 0 : 1;
}

}  // namespace kolo::gpu
