// Sink: where the output of ranks goes, which is kolo-run's own output or a file. What it does not
// take yet waits in memory: whoever reads slowly, or not at all, must not keep kolo-run from its
// signals and deadlines. Used by kolo-run's main thread.
#pragma once

#include "runtime/base/unique_handle.h"

#include <kolo/error.h>

#include <memory>
#include <string>
#include <string_view>

namespace kolo::run {

class Sink {
 public:
  /// `fd` stays open as long as the process. `name` and `whose` are for messages.
  static std::shared_ptr<Sink> to_descriptor(int fd, std::string name, std::string whose);
  /// kInvalidArgument if it cannot be written.
  static Result<std::shared_ptr<Sink>> to_file(const std::string& path, std::string whose);

  /// After a failure, bytes are lost.
  void add(std::string_view bytes);
  /// Writes what goes without waiting.
  void flush();

  int descriptor() const { return fd_; }
  bool is_empty() const { return pending_.empty(); }
  /// Nothing more should be added before some has gone.
  bool is_full() const { return pending_.size() >= kMostPending; }
  int error() const { return error_; }  ///< errno of the write that failed; 0: none
  const std::string& name() const { return name_; }
  const std::string& whose() const { return whose_; }

 private:
  static constexpr std::size_t kMostPending = 1 << 20;

  Sink(std::string name, std::string whose) : name_(std::move(name)), whose_(std::move(whose)) {}
  ssize_t write_some();

  std::string name_;
  std::string whose_;
  int fd_ = -1;
  UniqueDescriptor own_ = {};  ///< `fd_`, where nobody else has it
  bool may_block_ = false;     ///< a write of more than there is room for
  bool is_socket_ = false;
  std::string pending_ = {};
  int error_ = 0;
};

/// Whether both write to the same pipe, terminal or file.
bool are_same(int one, int other);

}  // namespace kolo::run
