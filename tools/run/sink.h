// Sink: where the output of ranks goes: kolo-run's own output or a file. Bytes that it does not
// take yet wait in memory, because a slow reader must not keep kolo-run from its signals and
// deadlines. Used by kolo-run's main thread.
#pragma once

#include "runtime/base/unique_handle.h"

#include <kolo/error.h>

#include <memory>
#include <string>
#include <string_view>

namespace kolo::run {

class Sink {
 public:
  /// `fd` must stay open as long as the process. `name` and `whose` are for messages.
  static std::shared_ptr<Sink> to_descriptor(int fd, std::string name, std::string whose);
  /// `is_new`: what the file holds is dropped. kInvalidArgument if it cannot be written.
  static Result<std::shared_ptr<Sink>> to_file(const std::string& path, std::string whose,
                                               bool is_new);

  /// Discards the bytes after a failure.
  void add(std::string_view bytes);
  /// Writes as much as is possible without waiting.
  void flush();

  int descriptor() const { return fd_; }
  bool is_empty() const { return pending_.empty(); }
  /// If true, add nothing before some bytes have been written.
  bool is_full() const { return pending_.size() >= kMostPending; }
  int error() const { return error_; }  ///< errno of the failed write; 0: none
  const std::string& name() const { return name_; }
  const std::string& whose() const { return whose_; }

 private:
  static constexpr std::size_t kMostPending = 1 << 20;

  Sink(std::string name, std::string whose) : name_(std::move(name)), whose_(std::move(whose)) {}
  ssize_t write_some();

  std::string name_;
  std::string whose_;
  int fd_ = -1;
  UniqueDescriptor own_ = {};  ///< `fd_`, if nobody else has it
  bool may_block_ = false;     ///< a write of more bytes than there is room for may block
  bool is_socket_ = false;
  std::string pending_ = {};
  int error_ = 0;
};

/// Whether both descriptors are the same pipe, terminal or file.
bool are_same(int one, int other);

}  // namespace kolo::run
