#include "runtime/observe/flight_recorder.h"

#include "runtime/base/check.h"
#include "runtime/base/resource_limits.h"
#include "runtime/base/system_error.h"
#include "runtime/observe/json_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

namespace kolo {
namespace {

using flight::File;

constexpr std::size_t kMostTensors = 0xFFFF;

void append_words(fmt::memory_buffer& out, std::string_view key,
                  std::span<const std::string_view> words) {
  fmt::format_to(std::back_inserter(out), ", \"{}\": [", key);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_json_text(out, words[i]);
  }
  out.push_back(']');
}

template <class Enum>
std::vector<std::string_view> words_of(int count) {
  std::vector<std::string_view> words;
  for (int i = 0; i < count; ++i) words.push_back(to_string(static_cast<Enum>(i)));
  return words;
}

/// The first page: one line of JSON.
fmt::memory_buffer describe(const FlightOptions& options) {
  fmt::memory_buffer out;
  const auto end = std::back_inserter(out);
  const auto unix = std::chrono::system_clock::now().time_since_epoch();
  fmt::format_to(end, R"({{"kolo_flight": {}, "rank": {}, "size": {}, "pid": {}, "host": )",
                 flight::kVersion, options.rank, options.size, options.pid);
  append_json_text(out, options.host);
  fmt::format_to(end, R"(, "job": )");
  append_json_text(out, options.job);
  fmt::format_to(end, R"(, "init_method": )");
  append_json_text(out, options.init_method);
  fmt::format_to(end, R"(, "started": {}, "started_unix_ns": {})", trace_now(),
                 std::chrono::duration_cast<std::chrono::nanoseconds>(unix).count());
  append_words(out, "modes", options.modes);
  append_words(out, "kinds", words_of<OperationKind>(kOperationKindCount));
  append_words(out, "types", words_of<DataType>(kDataTypeCount));
  append_words(out, "ops", words_of<ReduceOp>(kReduceOpCount));
  constexpr int kCodes = static_cast<int>(ErrorCode::kInternal) + 1;
  append_words(out, "codes", words_of<ErrorCode>(kCodes));
  const auto ring = [&](std::string_view name, std::size_t offset, std::size_t count,
                        std::size_t bytes) {
    fmt::format_to(end, R"(, "{}": [{}, {}, {}])", name, offset, count, bytes);
  };
  ring("state", offsetof(File, state), 1, sizeof(flight::State));
  ring("names", offsetof(File, names), flight::kNames, sizeof(flight::Name));
  ring("announcements", offsetof(File, announcements), flight::kAnnouncements,
       sizeof(flight::Announcement));
  ring("tensors", offsetof(File, tensors), flight::kTensors, sizeof(flight::Tensor));
  ring("operations", offsetof(File, operations), flight::kOperations, sizeof(flight::Operation));
  ring("calls", offsetof(File, calls), flight::kCalls, sizeof(flight::Call));
  ring("steps", offsetof(File, steps), flight::kSteps, sizeof(flight::Step));
  ring("sets", offsetof(File, sets), flight::kSets, sizeof(flight::Set));
  fmt::format_to(end, "}}\n");
  return out;
}

/// The slot of record `number`; null if another record has it by now, or none was made.
template <class Ring>
auto* find(Ring& ring, std::uint64_t number) {
  auto* const slot = number == 0 ? nullptr : &ring[(number - 1) % ring.size()];
  return slot != nullptr && slot->number.load(std::memory_order_relaxed) == number ? slot : nullptr;
}

bool has_owner(const std::string& path) {
  const UniqueDescriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return !file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
}

}  // namespace

FlightRecorder::~FlightRecorder() { close(true); }

void FlightRecorder::open(const FlightOptions& options, const Log& log) {
  if (options.local_rank == 0) remove_flight_leftovers(options.folder);
  if (const Status made = make_file(options); !made.ok()) {
    log.warning("no flight recorder: {}; KOLO_FLIGHT_RECORDER names another folder, or 0 for none",
                made.error().message);
    return;
  }
  on_ = true;
}

Status FlightRecorder::make_file(const FlightOptions& options) {
  std::string path = fmt::format("{}/{}{}.{}.{}", options.folder, flight::kPrefix, options.job,
                                 options.rank, options.pid);
  if (!has_owner(path)) ::unlink(path.c_str());  // left by an earlier init() of this process
  UniqueDescriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return KOLO_ERROR(kOutOfMemory, "cannot create '{}' ({})", path, reason(errno));
  const auto refused = [&path](int error) {
    ::unlink(path.c_str());
    return KOLO_ERROR(kOutOfMemory, "'{}' cannot have {} bytes ({}{})", path, sizeof(File),
                      reason(error), error == EFBIG ? ": see ulimit -f" : "");
  };
  ::flock(file.get(), LOCK_EX | LOCK_NB);
  const FileSizeErrors file_size_errors;
  // Without room for all of it, a later store would raise SIGBUS.
  if (const int error = ::posix_fallocate(file.get(), 0, sizeof(File)); error != 0)
    return refused(error);
  void* const memory = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (memory == MAP_FAILED) return refused(errno);
  file_ = static_cast<File*>(memory);
  failed_alone_ = false;
  const fmt::memory_buffer text = describe(options);
  KOLO_CHECK(text.size() < kPage);
  std::memcpy(file_->description.data(), text.data(), text.size());
  path_ = std::move(path);
  descriptor_ = std::move(file);
  return {};
}

void FlightRecorder::close(bool keep) {
  on_ = false;
  if (file_ == nullptr) return;
  if (!keep && !failed_alone_) ::unlink(path_.c_str());
  ::munmap(file_, sizeof(File));
  file_ = nullptr;
  descriptor_.reset();
}

template <class Slot>
std::uint8_t FlightRecorder::set_name(Slot& slot, std::string_view name) {
  const std::size_t bytes = std::min(name.size(), slot.name.size());
  std::copy_n(name.data(), bytes, slot.name.data());
  return static_cast<std::uint8_t>(bytes);
}

flight::Set* FlightRecorder::find_set(std::uint32_t id) {
  for (std::size_t i = 0; i < sets_; ++i)
    if (file_->sets[i].id == id) return &file_->sets[i];
  return nullptr;
}

void FlightRecorder::name(std::uint32_t slot, const Tensor& tensor) {
  flight::Name& to = file_->names[names_++ % flight::kNames];
  set_number(to.number, 0);
  to.process_set = tensor.process_set;
  to.slot = slot;
  to.bytes = tensor.bytes;
  to.kind = static_cast<std::uint8_t>(tensor.kind);
  to.type = static_cast<std::uint8_t>(tensor.type);
  to.op = static_cast<std::uint8_t>(tensor.op);
  to.name_bytes = set_name(to, tensor.name);
  set_number(to.number, names_);
}

void FlightRecorder::announced(std::uint32_t process_set, std::uint64_t step, TraceTime now,
                               std::span<const std::uint64_t> slots) {
  flight::Announcement& to = file_->announcements[announcements_++ % flight::kAnnouncements];
  const std::size_t words = std::min(slots.size(), to.slots.size());
  set_number(to.number, 0);
  to.time = now;
  to.step = step;
  to.process_set = process_set;
  to.words = static_cast<std::uint32_t>(words);
  std::copy_n(slots.begin(), words, to.slots.begin());
  set_number(to.number, announcements_);
  if (flight::Set* const set = find_set(process_set))
    for (std::size_t i = 0; i < words; ++i) set->open[i] |= slots[i];
  count_step(step, now);
}

void FlightRecorder::agreed(std::uint32_t process_set, std::span<const std::uint64_t> slots) {
  flight::Set* const set = find_set(process_set);
  if (set == nullptr) return;
  const std::size_t words = std::min(slots.size(), set->open.size());
  for (std::size_t i = 0; i < words; ++i) set->open[i] &= ~slots[i];
}

void FlightRecorder::settled(std::uint32_t process_set, std::uint32_t slot) {
  flight::Set* const set = find_set(process_set);
  if (set != nullptr && slot < flight::kSlots)
    set->open[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
}

void FlightRecorder::count_step(std::uint64_t step, TraceTime now) {
  if (step == 0) return;
  if (step_ == nullptr || step_->step != step) {
    step_ = &file_->steps[steps_++ % flight::kSteps];
    set_number(step_->number, 0);
    step_->step = step;
    step_->first = now;
    step_->ended = 0;
    set_number(step_->number, steps_);
  }
  step_->last = now;
}

std::uint64_t FlightRecorder::submitted(const Tensor& tensor) {
  flight::Tensor& slot = file_->tensors[tensors_++ % flight::kTensors];
  set_number(slot.number, 0);
  slot.submitted = tensor.submitted;
  slot.agreed = 0;
  slot.bytes = tensor.bytes;
  slot.step = tensor.step;
  slot.failed = 0;
  slot.process_set = tensor.process_set;
  slot.root = tensor.root;
  slot.mode = tensor.mode;
  slot.kind = static_cast<std::uint8_t>(tensor.kind);
  slot.type = static_cast<std::uint8_t>(tensor.type);
  slot.op = static_cast<std::uint8_t>(tensor.op);
  slot.name_bytes = set_name(slot, tensor.name);
  set_number(slot.number, tensors_);
  count_step(tensor.step, now_);
  return tensors_;
}

void FlightRecorder::agreed(std::uint64_t tensor) {
  if (flight::Tensor* const slot = find(file_->tensors, tensor)) slot->agreed = now_;
}

void FlightRecorder::failed_alone(std::uint64_t record, const Tensor& tensor) {
  failed_alone_ = true;
  if (find(file_->tensors, record) == nullptr) record = submitted(tensor);
  find(file_->tensors, record)->failed = now_;
}

std::uint64_t FlightRecorder::planned(const Operation& operation) {
  const Tensor& first = operation.first;
  flight::Operation& slot = file_->operations[operations_++ % flight::kOperations];
  set_number(slot.number, 0);
  slot.sequence = operation.sequence;
  slot.fingerprint = operation.fingerprint;
  slot.submitted = first.submitted;
  slot.agreed = now_;
  slot.started = 0;
  slot.ended = 0;
  slot.step = first.step;
  slot.bytes = first.bytes;
  slot.process_set = first.process_set;
  slot.tensors = static_cast<std::uint16_t>(std::min(operation.tensors, kMostTensors));
  slot.mode = first.mode;
  slot.kind = static_cast<std::uint8_t>(first.kind);
  slot.type = static_cast<std::uint8_t>(first.type);
  slot.name_bytes = set_name(slot, first.name);
  set_number(slot.number, operations_);
  return operations_;
}

void FlightRecorder::started(std::uint64_t operation) {
  if (flight::Operation* const slot = find(file_->operations, operation)) slot->started = now_;
}

void FlightRecorder::ended(std::uint64_t operation) {
  flight::Operation* const slot = find(file_->operations, operation);
  if (slot == nullptr) return;
  slot->ended = now_;
  if (step_ != nullptr && step_->step == slot->step) step_->ended = slot->ended;
}

void FlightRecorder::add_set(std::uint32_t id, int size, int rank) {
  if (sets_ == flight::kSets) return;
  flight::Set& slot = file_->sets[sets_++];
  slot.id = id;
  slot.size = size;
  slot.rank = rank;
  set_number(slot.number, sets_);
}

void FlightRecorder::failed(const Error& error, int culprit) {
  flight::State& state = file_->state;
  const std::size_t bytes = std::min(error.message.size(), state.message.size() - 1);
  std::memcpy(state.message.data(), error.message.data(), bytes);
  state.code = static_cast<std::int32_t>(error.code);
  state.culprit = culprit;
  std::atomic_ref(state.failed_at).store(trace_now(), std::memory_order_release);
  on_ = false;
}

void remove_flight_leftovers(const std::string& folder) {
  struct Old {
    timespec changed;
    std::string path;
  };
  std::vector<Old> files;
  std::error_code unknown;
  std::filesystem::directory_iterator entry(folder, unknown);
  for (const std::filesystem::directory_iterator end; !unknown && entry != end;
       entry.increment(unknown)) {
    struct stat status = {};
    const std::string path = entry->path();
    if (!entry->path().filename().string().starts_with(flight::kPrefix) ||
        ::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != ::geteuid())
      continue;
    files.push_back({status.st_mtim, path});
  }
  if (files.size() <= kKeptFlightFiles) return;
  std::sort(files.begin(), files.end(), [](const Old& a, const Old& b) {
    return a.changed.tv_sec != b.changed.tv_sec ? a.changed.tv_sec > b.changed.tv_sec
                                                : a.changed.tv_nsec > b.changed.tv_nsec;
  });
  for (auto file = files.begin() + kKeptFlightFiles; file != files.end(); ++file)
    if (!has_owner(file->path)) ::unlink(file->path.c_str());
}

}  // namespace kolo
