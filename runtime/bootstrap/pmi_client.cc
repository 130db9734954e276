#include "runtime/bootstrap/pmi_client.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/socket.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kLongestAnswer = std::size_t{1} << 16;
constexpr std::size_t kLongestQuestion = 1024 - 128;  // minus command words and key
// The server is on this host and answers at once, whatever other ranks do.
constexpr std::chrono::seconds kHandshakeTimeout(30);
// Launchers announce 1024 or more. A smaller value is not valid.
constexpr int kLeastValue = 64;

}  // namespace

bool offers_pmi(const Environment& environment) {
  return environment.get_int("PMI_FD") || environment.get("PMI_PORT");
}

Result<std::unique_ptr<PmiClient>> PmiClient::connect(const Environment& environment,
                                                      Deadline deadline) {
  std::unique_ptr<PmiClient> client(new PmiClient);
  const auto greeting = Deadline::after(deadline.remaining(kHandshakeTimeout));
  KOLO_TRY(client->open(environment, greeting));
  KOLO_TRY(client->begin(greeting));
  return client;
}

Status PmiClient::open(const Environment& environment, Deadline deadline) {
  if (const auto fd = environment.get_int("PMI_FD")) {
    where_ = fmt::format("PMI_FD={}", *fd);
    fd_.reset(::fcntl(*fd, F_DUPFD_CLOEXEC, 0));
    const auto rank = environment.get_int("PMI_RANK");
    const auto size = environment.get_int("PMI_SIZE");
    if (!fd_ || !rank || !size || *rank >= *size) {
      return KOLO_ERROR(kInvalidArgument,
                        "{} is of no use here ({}); start the program by mpirun itself, or with "
                        "its descriptors left open, or use another init method",
                        where_,
                        fd_ ? fmt::format("PMI_RANK='{}', PMI_SIZE='{}'",
                                          environment.get("PMI_RANK").value_or(""),
                                          environment.get("PMI_SIZE").value_or(""))
                            : "the descriptor is closed: not passed on to this process, "
                              "or MPI_Finalize() came before");
    }
    rank_ = *rank;
    size_ = *size;
    return {};
  }
  const auto port = environment.get("PMI_PORT");
  if (!port) {
    return KOLO_ERROR(kInvalidArgument,
                      "neither PMI_FD nor PMI_PORT is set; start the program with the mpirun of "
                      "MPICH or Intel MPI, or use another init method");
  }
  where_ = fmt::format("PMI_PORT={}", *port);
  KOLO_ASSIGN(const Endpoint endpoint, parse_endpoint(*port));
  KOLO_ASSIGN(fd_, connect_to(endpoint, deadline));
  return ask_who_i_am(environment.get("PMI_ID").value_or("0"), deadline);
}

/// At PMI_PORT the server tells rank and size, in three lines of one value each.
Status PmiClient::ask_who_i_am(std::string_view id, Deadline deadline) {
  KOLO_TRY(ask(fmt::format("initack pmiid={}", id), "initack", deadline));
  int rank = -1;
  for (int line = 0; line < 3; ++line) {
    KOLO_ASSIGN(const PmiAnswer told, expect("set", deadline));
    rank = told.number("rank").value_or(rank);
    size_ = told.number("size").value_or(size_);
  }
  rank_ = rank;
  if (rank >= 0 && rank < size_) return {};
  return KOLO_ERROR(kTransport, "{} tells rank {} of {}", where_, rank, size_);
}

Status PmiClient::begin(Deadline deadline) {
  KOLO_TRY(ask("init pmi_version=1 pmi_subversion=1", "response_to_init", deadline));
  KOLO_ASSIGN(const PmiAnswer limits, ask("get_maxes", "maxes", deadline));
  KOLO_ASSIGN(const PmiAnswer table, ask("get_my_kvsname", "my_kvsname", deadline));
  job_ = table.field("kvsname");
  const int longest = limits.number("vallen_max").value_or(0);
  if (job_.empty() || longest < kLeastValue) {
    return KOLO_ERROR(kTransport, "{} offers a table '{}' with values of {} characters", where_,
                      job_, longest);
  }
  // vallen_max may include the terminator. Also, whatever they announce, some servers read only so
  // much of a line; the longest line is "cmd=put kvsname=… key=… value=…".
  const std::size_t room = kLongestQuestion - std::min(job_.size(), kLongestQuestion / 2);
  value_max_ = std::min(static_cast<std::size_t>(longest), room) - 1;
  return {};
}

Result<PmiAnswer> PmiClient::receive(Deadline deadline) {
  for (;;) {
    if (const auto end = received_.find('\n'); end != std::string::npos) {
      const std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return parse_pmi(line);
    }
    if (received_.size() > kLongestAnswer) {
      return KOLO_ERROR(kTransport, "{} sends a line without an end", where_);
    }
    KOLO_ASSIGN(const std::string bytes, receive_some(fd_.get(), deadline));
    received_ += bytes;
  }
}

Result<PmiAnswer> PmiClient::expect(std::string_view command, Deadline deadline) {
  for (;;) {
    auto answer = receive(deadline);
    if (!answer.ok()) {
      Error error = std::move(answer).error();
      error.message = fmt::format(
          "rank {}: the launcher did not say '{}' at {} ({}); see whether it ended, or whether "
          "MPI_Finalize() came before kolo::init()",
          rank_, command, where_, error.message);
      return error;
    }
    if (answer->command == command) return answer;
    // A barrier may end while another request waits for its answer.
    if (answer->command == "barrier_out" && std::exchange(in_barrier_, false)) continue;
    return KOLO_ERROR(kTransport,
                      "rank {}: the launcher said '{}' at {} where '{}' was due; see whether "
                      "something else uses its PMI at the same time, or an earlier kolo::init() "
                      "failed",
                      rank_, answer->command, where_, command);
  }
}

Result<PmiAnswer> PmiClient::ask(std::string_view question, std::string_view answer,
                                 Deadline deadline) {
  KOLO_TRY(send_all(fd_.get(), fmt::format("cmd={}\n", question), deadline));
  return expect(answer, deadline);
}

Status PmiClient::put(std::string_view key, std::string_view value, Deadline deadline) {
  KOLO_ASSIGN(
      const PmiAnswer answer,
      ask(fmt::format("put kvsname={} key={} value={}", job_, key, value), "put_result", deadline));
  if (answer.succeeded()) return {};
  return KOLO_ERROR(kTransport, "rank {}: the launcher refused the value of {} ({})", rank_, key,
                    answer.field("msg"));
}

Result<std::string> PmiClient::get(std::string_view key, Deadline deadline) {
  KOLO_ASSIGN(const PmiAnswer answer,
              ask(fmt::format("get kvsname={} key={}", job_, key), "get_result", deadline));
  if (answer.succeeded()) return std::string(answer.field("value"));
  return KOLO_ERROR(kTransport, "rank {}: the launcher has no value of {} ({})", rank_, key,
                    answer.field("msg"));
}

Status PmiClient::enter_barrier(Deadline deadline) {
  KOLO_TRY(send_all(fd_.get(), "cmd=barrier_in\n", deadline));
  in_barrier_ = true;
  return {};
}

Result<bool> PmiClient::await_barrier(Deadline deadline) {
  if (!in_barrier_) return true;
  auto out = expect("barrier_out", deadline);
  if (out.ok()) {
    in_barrier_ = false;
    return true;
  }
  if (out.error().code == ErrorCode::kTimeout) return false;
  return std::move(out).error();
}

Status PmiClient::announce(std::string_view name, Deadline deadline) {
  KOLO_TRY(ask(fmt::format("publish_name service={} port=here", name), "publish_result", deadline));
  return {};
}

Result<bool> PmiClient::is_announced(std::string_view name, Deadline deadline) {
  KOLO_ASSIGN(const PmiAnswer answer,
              ask(fmt::format("lookup_name service={}", name), "lookup_result", deadline));
  return answer.succeeded() && !answer.field("port").empty();
}

Status PmiClient::withdraw(std::string_view name, Deadline deadline) {
  KOLO_TRY(ask(fmt::format("unpublish_name service={}", name), "unpublish_result", deadline));
  return {};
}

void PmiClient::finalize(Deadline deadline) {
  // A failure means that MPI_Finalize() has already said it.
  [[maybe_unused]] const auto ended = ask("finalize", "finalize_ack", deadline);
}

}  // namespace kolo
