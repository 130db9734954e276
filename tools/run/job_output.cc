// The part of Job that handles the ranks' output.
#include "runtime/base/check.h"
#include "tools/run/job.h"
#include "tools/run/say.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace kolo::run {

Status Job::make_outputs(Rank& rank, bool is_remote) {
  const int number = rank.process.place.rank;
  // A process in the place of a lost one writes on.
  const bool is_new = std::none_of(ranks_.begin(), ranks_.end(), [number](const Rank& other) {
    return other.process.place.rank == number;
  });
  const std::string whose = fmt::format("rank {}", number);
  if (const std::string& folder = options_.output_directory; !folder.empty()) {
    const std::string base = fmt::format("{}/rank.{}", folder, number);
    KOLO_ASSIGN(auto out, Sink::to_file(base + ".out", whose, is_new));
    KOLO_ASSIGN(auto error, Sink::to_file(base + ".err", whose, is_new));
    rank.out.emplace(out, "");
    rank.error.emplace(error, "");
    sinks_.insert(sinks_.end(), {out, error});
  } else if (options_.tags_output || is_remote) {
    if (!out_) {
      out_ = Sink::to_descriptor(STDOUT_FILENO, "the standard output", "the ranks");
      // Two sinks for the same file would cut each other's lines.
      error_ = are_same(STDOUT_FILENO, STDERR_FILENO)
                   ? out_
                   : Sink::to_descriptor(STDERR_FILENO, "the standard error", "the ranks");
      sinks_.push_back(out_);
      if (error_ != out_) sinks_.push_back(error_);
    }
    const std::string tag = options_.tags_output ? fmt::format("[{}] ", number) : "";
    rank.out.emplace(out_, tag);
    rank.error.emplace(error_, tag);
  }
  return {};
}

void Job::take_banner(Rank& rank) {
  pollfd output = {rank.process.out.get(), POLLIN, 0};
  while (rank.is_logging_in && rank.process.out && ::poll(&output, 1, 0) > 0)
    take_output(rank, rank.process.out, *rank.out);
}

void Job::take_output(Rank& rank, UniqueDescriptor& from, Output& to) {
  std::array<char, 65536> bytes;
  const auto got = ::read(from.get(), bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return;
  std::string_view text(bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  const bool is_banner = rank.is_logging_in && &from == &rank.process.out;
  if (is_banner) {
    rank.banner += text;
    const auto mark = rank.banner.find(kLoggedIn);
    if (mark == std::string::npos && got > 0) return;
    rank.has_logged_in = mark != std::string::npos;
    if (rank.has_logged_in) rank.banner.erase(mark, kLoggedIn.size());
    rank.is_logging_in = false;
    text = rank.banner;
  }
  to.write(text);
  if (is_banner) rank.banner = {};
  if (got > 0) return;
  to.finish();
  from.reset();
}

void Job::flush_outputs() {
  for (auto sink = sinks_.begin(); sink != sinks_.end();) {
    (*sink)->flush();
    if ((*sink)->error() == 0) {
      ++sink;
      continue;
    }
    if ((*sink)->error() == EPIPE) {
      // Close the pipe, so that a rank that writes on learns that nobody reads, as without
      // kolo-run.
      for (Rank& rank : ranks_) {
        if (rank.out && &rank.out->sink() == sink->get()) {
          rank.process.out.reset();
          rank.is_logging_in = false;  // its login line will not be read
        }
        if (rank.error && &rank.error->sink() == sink->get()) rank.process.error.reset();
      }
    } else {
      has_lost_output_ = true;
      tell(fmt::format("cannot write {}: {}; output of {} is lost from here on", (*sink)->name(),
                       std::generic_category().message((*sink)->error()), (*sink)->whose()));
    }
    sink = sinks_.erase(sink);
  }
}

void Job::close_what_is_left_open() {
  close_at_ = Clock::now() + kGrace;  // for outputs whose bytes wait for room
  for (Rank& rank : ranks_) {
    for (const auto& [from, to] :
         {std::pair(&rank.process.out, &rank.out), std::pair(&rank.process.error, &rank.error)}) {
      if (!*from || (*to)->sink().is_full()) continue;
      (*to)->finish();
      from->reset();
    }
  }
}

void Job::tell(const std::string& line) {
  if (error_ && !error_->is_empty()) {
    error_->add("kolo-run: " + line + "\n");
  } else {
    say(line);
  }
}

}  // namespace kolo::run
