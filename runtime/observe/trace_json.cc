// Hand-written without a JSON library: at a thousand events per training step, the writer thread's
// CPU time is the cost of a timeline.
#include "runtime/observe/trace_json.h"

#include "runtime/observe/json_text.h"

#include <fmt/compile.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>

namespace kolo {
namespace {

// Kinds of tracks, from top to bottom.
enum Order : int { kOperations = 1, kWaits = 2, kSteps = 3, kTensors = 4 };

constexpr std::array<std::string_view, 4> kPhases = {"submit", "negotiate", "queue", "run"};

/// `format`: an FMT_COMPILE.
template <class Format, class... Args>
void put(fmt::memory_buffer& out, const Format& format, const Args&... args) {
  fmt::format_to(std::back_inserter(out), format, args...);
}

void append(fmt::memory_buffer& out, std::string_view text) {
  if (!text.empty()) out.append(text.data(), text.data() + text.size());
}

}  // namespace

void TraceJson::begin(const TimelineOrigin& origin) {
  origin_ = origin;
  last_ = origin.zero;
  const auto since_zero = std::chrono::nanoseconds(trace_now() - origin.zero);
  const auto unix_zero = std::chrono::system_clock::now() - since_zero;
  const auto unix_us =
      std::chrono::duration_cast<std::chrono::microseconds>(unix_zero.time_since_epoch()).count();
  put(out_, FMT_COMPILE(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":)"),
      origin.rank);
  append_json_text(out_, fmt::format("rank {} ({}, pid {})", origin.rank, origin.host, origin.pid));
  append(out_, "}}");
  metadata("process_sort_index", 0);
  put(out_, FMT_COMPILE(R"("sort_index":{}}}}})"), origin.rank);
  metadata("kolo", 0);
  put(out_, FMT_COMPILE(R"("rank":{},"size":{},"host":)"), origin.rank, origin.size);
  append_json_text(out_, origin.host);
  put(out_, FMT_COMPILE(R"(,"pid":{},"zero_unix_us":{},"clock_offset_us":)"), origin.pid, unix_us);
  microseconds(origin.offset_ns);
  append(out_, R"(,"clock_error_us":)");
  microseconds(origin.error_ns);
  append(out_, "}}");
}

void TraceJson::add(const TraceRecord& record, std::string_view text) {
  std::visit([&](const auto& value) { event(value, text); }, record);
}

void TraceJson::event(const TensorRecord& tensor, std::string_view name) {
  const std::array<TraceTime, 4> points = {tensor.submitted, tensor.drained, tensor.agreed,
                                           tensor.started};
  const int number = track(name, kTensors, tensor.submitted, tensor.ended);
  slice("tensor", tensor.kind, number, tensor.submitted, tensor.ended);
  append(out_, R"(,"args":{"tensor":)");
  append_json_text(out_, name);
  put(out_, FMT_COMPILE(R"(,"bytes":{},"type":"{}","process_set":{})"), tensor.bytes, tensor.type,
      tensor.process_set);
  if (!tensor.error.empty()) put(out_, FMT_COMPILE(R"(,"error":"{}")"), tensor.error);
  append(out_, "}}");
  for (std::size_t i = 0; i < points.size() && points[i] != 0; ++i) {
    const bool reached_next = i + 1 < points.size() && points[i + 1] != 0;
    const TraceTime end = reached_next ? points[i + 1] : tensor.ended;
    if (end == points[i]) continue;
    slice("phase", kPhases[i], number, points[i], end);
    out_.push_back('}');
  }
}

void TraceJson::event(const OperationRecord& operation, std::string_view text) {
  const std::size_t names = std::min(text.find('\0'), text.size());
  slice("operation", text.substr(0, names),
        track("operations", kOperations, operation.started, operation.ended), operation.started,
        operation.ended);
  put(out_,
      FMT_COMPILE(
          R"(,"args":{{"kind":"{}","type":"{}","mode":"{}","sequence":{},)"
          R"("process_set":{},"elements":{},"bytes":{},"tensors":{},"blocking":{},"names":[)"),
      operation.kind, operation.type, operation.mode, operation.sequence, operation.process_set,
      operation.elements, operation.bytes, operation.tensors, operation.blocking);
  for (std::size_t at = names; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at + 1), text.size());
    if (at != names) out_.push_back(',');
    append_json_text(out_, text.substr(at + 1, end - at - 1));
    at = end;
  }
  append(out_, R"(],"pack_us":)");
  microseconds(operation.pack_ns);
  append(out_, R"(,"reduce_us":)");
  microseconds(operation.reduce_ns);
  append(out_, R"(,"unpack_us":)");
  microseconds(operation.unpack_ns);
  if (!operation.error.empty()) put(out_, FMT_COMPILE(R"(,"error":"{}")"), operation.error);
  append(out_, "}}");
}

void TraceJson::event(const StepRecord& step, std::string_view) {
  const std::string title =
      step.peer < 0 ? "local steps" : fmt::format(FMT_COMPILE("{} {}"), step.kind, step.peer);
  slice("step", step.kind, track(title, kSteps, step.begun, step.ended), step.begun, step.ended);
  put(out_, FMT_COMPILE(R"(,"args":{{"sequence":{},"peer":{},"bytes":{}}}}})"), step.sequence,
      step.peer, step.bytes);
}

void TraceJson::event(const WaitRecord& wait, std::string_view) {
  slice("wait", "wait", track("waits", kWaits, wait.begun, wait.ended), wait.begun, wait.ended);
  out_.push_back('}');
}

void TraceJson::event(const CounterRecord& counter, std::string_view) {
  for (const bool bytes : {true, false}) {
    put(out_, FMT_COMPILE(",\n{{\"ph\":\"C\",\"name\":\"{} in flight\",\"pid\":{},\"ts\":"),
        bytes ? "bytes" : "operations", origin_.rank);
    microseconds(counter.at - origin_.zero);
    put(out_, FMT_COMPILE(R"(,"args":{{"{}":{}}}}})"), bytes ? "bytes" : "operations",
        bytes ? counter.bytes : counter.operations);
  }
  last_ = std::max(last_, counter.at);
}

void TraceJson::event(const NoteRecord& happened, std::string_view text) {
  note(happened.at, text);
}

void TraceJson::add_dropped(std::uint64_t count) {
  note(last_, fmt::format("{} records lost so far: the ring was full", count));
}

void TraceJson::end(std::uint64_t written, std::uint64_t dropped) {
  metadata("kolo_end", 0);
  put(out_, FMT_COMPILE(R"("records":{},"dropped":{}}}}})"), written, dropped);
}

int TraceJson::track(std::string_view title, int order, TraceTime begin, TraceTime end) {
  const TrackTable::Track track = tracks_.assign(title, begin, end);
  if (!track.is_new) return track.number;
  metadata("thread_name", track.number);
  append(out_, R"("name":)");
  append_json_text(out_, track.copies == 0 ? std::string(title)
                                           : fmt::format("{} ({})", title, track.copies + 1));
  append(out_, "}}");
  metadata("thread_sort_index", track.number);
  // By kind, then by first use.
  put(out_, FMT_COMPILE(R"("sort_index":{}}}}})"), order * 1'000'000 + track.number);
  return track.number;
}

void TraceJson::slice(std::string_view category, std::string_view name, int track, TraceTime begin,
                      TraceTime end) {
  put(out_,
      FMT_COMPILE(",\n{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":\"{}\",\"pid\":{},\"tid\":{},"
                  "\"ts\":"),
      category, name, origin_.rank, track);
  microseconds(begin - origin_.zero);
  append(out_, R"(,"dur":)");
  microseconds(end - begin);
  last_ = std::max(last_, end);
}

void TraceJson::metadata(std::string_view name, int track) {
  put(out_, FMT_COMPILE(",\n{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{"),
      name, origin_.rank, track);
}

void TraceJson::note(TraceTime at, std::string_view text) {
  append(out_, ",\n{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"note\",\"name\":");
  append_json_text(out_, text);
  put(out_, FMT_COMPILE(R"(,"pid":{},"tid":0,"ts":)"), origin_.rank);
  microseconds(at - origin_.zero);
  out_.push_back('}');
}

void TraceJson::microseconds(std::int64_t ns) {
  if (ns < 0) {
    out_.push_back('-');
    ns = -ns;
  }
  put(out_, FMT_COMPILE("{}.{:03}"), ns / 1000, ns % 1000);
}

}  // namespace kolo
