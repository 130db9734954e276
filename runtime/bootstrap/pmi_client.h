// PmiClient: a process's connection to the PMI 1 server of its launcher (Hydra: MPICH, Intel MPI),
// at the descriptor PMI_FD or the address PMI_PORT. Used by pmi_bootstrap, on the thread that calls
// init. An MPI of the program's own may use the same server before, after, and (on this thread)
// meanwhile: the descriptor is duplicated, its flags are left alone, and every answer is read.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/environment.h"
#include "runtime/base/unique_handle.h"
#include "runtime/bootstrap/pmi_wire.h"

#include <memory>
#include <string>
#include <string_view>

namespace kolo {

/// Whether a launcher of this kind started the process.
bool offers_pmi(const Environment& environment);

class PmiClient {
 public:
  /// kInvalidArgument where variables make no sense or the descriptor is not open, kTransport for
  /// answers that are no PMI, kTimeout for none.
  static Result<std::unique_ptr<PmiClient>> connect(const Environment& environment,
                                                    Deadline deadline);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The name of the job's table; another one for every job of a launcher.
  const std::string& job() const { return job_; }
  /// The longest value, in characters.
  std::size_t value_max() const { return value_max_; }

  /// Others see it after a barrier. No spaces and no '=' in either.
  Status put(std::string_view key, std::string_view value, Deadline deadline);
  Result<std::string> get(std::string_view key, Deadline deadline);

  /// Collective: once all ranks have entered, await_barrier() is true; false at the deadline.
  Status enter_barrier(Deadline deadline);
  Result<bool> await_barrier(Deadline deadline);

  /// A name that others see at once, also while a barrier is under way.
  Status announce(std::string_view name, Deadline deadline);
  Result<bool> is_announced(std::string_view name, Deadline deadline);
  Status withdraw(std::string_view name, Deadline deadline);

  /// Without it, a launcher ends the whole job when this process ends. Once MPI has been finalised
  /// there is nobody to tell, which is no error.
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
  std::string received_;  ///< beyond the last line
  bool in_barrier_ = false;
  int rank_ = 0;
  int size_ = 0;
  std::string job_;
  std::size_t value_max_ = 0;
};

}  // namespace kolo
