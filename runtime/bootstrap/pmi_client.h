// PmiClient: a process's connection to the PMI 1 server of its launcher (Hydra: MPICH, Intel MPI),
// at descriptor PMI_FD or address PMI_PORT. Used by pmi_bootstrap, on the thread that calls init.
// The program's own MPI may use the same server before, after and (on this thread) meanwhile. So
// the client duplicates the descriptor, leaves its flags alone, and reads every answer.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/environment.h"
#include "runtime/base/unique_handle.h"
#include "runtime/bootstrap/pmi_wire.h"

#include <memory>
#include <string>
#include <string_view>

namespace kolo {

/// Whether a launcher with PMI 1 started the process.
bool offers_pmi(const Environment& environment);

class PmiClient {
 public:
  /// kInvalidArgument if the variables make no sense or the descriptor is not open, kTransport if
  /// an answer is not PMI, kTimeout without an answer.
  static Result<std::unique_ptr<PmiClient>> connect(const Environment& environment,
                                                    Deadline deadline);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The name of the job's table, different for every job of a launcher.
  const std::string& job() const { return job_; }
  /// The longest value, in characters.
  std::size_t value_max() const { return value_max_; }

  /// Other ranks see the value after a barrier. Key and value contain no spaces and no '='.
  Status put(std::string_view key, std::string_view value, Deadline deadline);
  Result<std::string> get(std::string_view key, Deadline deadline);

  /// Collective: await_barrier() is true once all ranks have entered, false at the deadline.
  Status enter_barrier(Deadline deadline);
  Result<bool> await_barrier(Deadline deadline);

  /// Publishes a name that others see at once, even during a barrier.
  Status announce(std::string_view name, Deadline deadline);
  Result<bool> is_announced(std::string_view name, Deadline deadline);
  Status withdraw(std::string_view name, Deadline deadline);

  /// Without this call, the launcher ends the whole job when this process ends. After
  /// MPI_Finalize() the server is gone, which is no error.
  void finalize(Deadline deadline);

 private:
  PmiClient() = default;
  Status open(const Environment& environment, Deadline deadline);
  Status ask_who_i_am(std::string_view id, Deadline deadline);
  Status begin(Deadline deadline);
  Result<PmiAnswer> ask(std::string_view question, std::string_view answer, Deadline deadline);
  Result<PmiAnswer> expect(std::string_view command, Deadline deadline);
  Result<PmiAnswer> receive(Deadline deadline);

  UniqueDescriptor fd_;
  std::string where_;     ///< "PMI_FD=6"
  std::string received_;  ///< bytes after the last complete line
  bool in_barrier_ = false;
  int rank_ = 0;
  int size_ = 0;
  std::string job_;
  std::size_t value_max_ = 0;
};

}  // namespace kolo
