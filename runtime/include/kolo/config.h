// Every knob of kolo, read once at init from KOLO_* variables (runtime/base/environment). A wrong
// value is an error that names variable, value and range; an unknown KOLO_ variable is a warning.
#pragma once

#include <kolo/error.h>
#include <kolo/export.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

class Environment;

struct KOLO_API Config {
  /// KOLO_LOG_LEVEL: trace, debug, info, warning, error, off.
  std::string log_level = "warning";
  /// KOLO_INIT_METHOD: how ranks find each other: env://, tcp://host:port, file:///path, mpi://,
  /// pmix://, pmi://, slurm:// or single:// (a world of one, whatever the launcher says); empty: by
  /// the environment.
  std::string init_method;
  /// KOLO_RANK and KOLO_SIZE: who this process is; −1: by the environment. They come before all
  /// that launchers say.
  std::int64_t rank = -1;
  std::int64_t size = -1;
  /// KOLO_LOCAL_RANK: as the launcher counts; −1: not said.
  std::int64_t local_rank = -1;
  /// KOLO_SECRET: equal on all processes of a job; connections that do not prove to know it are
  /// refused while ranks meet. kolo-run makes one.
  std::string secret;
  /// KOLO_SECRET_FILE: a file of mode 600 that holds the secret, where `secret` is empty.
  std::string secret_file;
  /// KOLO_HOST_ID: overrides the identity of this host (boot id and IPC namespace), so that one
  /// machine can pose as several.
  std::string host_id;
  /// KOLO_INTERFACE: the network that messages to other ranks take, as "eth0" or, of InfiniBand,
  /// "mlx5_0:1"; empty: what UCX finds best, or UCX_NET_DEVICES. Rank.
  std::string interface;
  /// KOLO_INIT_TIMEOUT, seconds: each phase of the bootstrap.
  std::int64_t init_timeout_s = 300;
  /// KOLO_OPERATION_TIMEOUT, seconds: to agree on an operation, and again to run it.
  std::int64_t operation_timeout_s = 600;
  /// KOLO_HEARTBEAT_TIMEOUT, seconds: a rank that is not heard of for so long is lost. World.
  std::int64_t heartbeat_timeout_s = 60;
  /// KOLO_STALL_WARNING, seconds: after this long a tensor, or a join, that some ranks lack is
  /// reported.
  std::int64_t stall_warning_s = 60;
  /// KOLO_FUSION_THRESHOLD, bytes: largest fusion buffer.
  std::int64_t fusion_threshold = 32 << 20;
  /// KOLO_FUSION_MAX_TENSOR, bytes: a tensor of at least this size is reduced where it lies; of
  /// device memory, of eight times this size.
  std::int64_t fusion_max_tensor = 1 << 20;
  /// KOLO_CHUNK_SIZE, bytes: what one message of a pipelined schedule carries at most.
  std::int64_t chunk_size = 256 << 10;
  /// KOLO_CHUNKS_IN_FLIGHT: ring blocks that are under way at once.
  std::int64_t chunks_in_flight = 4;
  /// KOLO_REDUCE_THREADS: threads that share a rank's sums and copies of 256 KiB and more, the one
  /// that drives included. Each is worth a core of its own: where cores are few, leave it at 1.
  std::int64_t reduce_threads = 1;
  /// KOLO_SHARED_MEMORY, bytes: a rank's window that the other ranks of its host map; 0: none, so
  /// that messages carry everything.
  std::int64_t shared_memory = 16 << 20;
  /// KOLO_ALGORITHM, of all-reduces: auto (the cheapest), mapped (where ranks share memory, else as
  /// auto), ring, bidirectional_ring, recursive_doubling, halving_doubling, double_tree,
  /// hierarchical.
  std::string algorithm = "auto";
  /// KOLO_OPERATIONS: who does all-reduces of device memory: kolo, or nccl (NCCL; each rank needs a
  /// GPU of its own).
  std::string operations = "kolo";
  /// KOLO_DETERMINISTIC: 1: sums do not depend on what they are fused with, nor on the links'
  /// speed.
  std::int64_t deterministic = 0;
  /// KOLO_LINK_CACHE: 1: rank 0 keeps what links were measured to cost for a day, and later jobs of
  /// the same hosts and transports take it; 0: each start measures.
  std::int64_t link_cache = 1;
  /// KOLO_LINK_REFRESH: 1: while the job runs, rank 0 corrects what links cost by how long
  /// all-reduces over messages take, and all ranks choose by it from the same operation on; 0: the
  /// costs of the start count to the end. KOLO_DETERMINISTIC and KOLO_ALGORITHM leave no choice.
  std::int64_t link_refresh = 1;
  /// KOLO_CACHE_DIR: the folder for it; empty: $XDG_CACHE_HOME/kolo or ~/.cache/kolo, which
  /// from_environment() fills in.
  std::string cache_dir;
  /// KOLO_DEVICE: this rank's CUDA device as this process numbers them; "cpu": none, though there
  /// are some; "auto": by its local rank, where there are any.
  std::string device = "auto";
  /// KOLO_DEVICE_MEMORY, bytes: a rank's window of device memory that the other ranks of its host
  /// map, half of it for process sets where there are more than two ranks; 0: none, so that their
  /// data passes through the host's memory.
  std::int64_t device_memory = 128 << 20;
  /// KOLO_DEVICE_ARENA, bytes: memory of the device beside that window, for tensors that the other
  /// ranks are to reach where they are (kolo::shared_zeros(), gradient buckets).
  std::int64_t device_arena = 256 << 20;
  /// KOLO_DEVICE_CHUNK, bytes: device memory goes over the network in pieces of about so much, of
  /// which some are copied while others are on their way; what is smaller than one is copied whole.
  /// A copy of 1 MiB takes some ten times as long as handing it in.
  std::int64_t device_chunk = 1 << 20;
  /// KOLO_GPUDIRECT: whether the network cards read and write device memory themselves where pieces
  /// of it go to other hosts: auto (where each rank's can), on (else init of a job over several
  /// hosts fails), off (pieces go through pinned memory).
  std::string gpudirect = "auto";
  /// KOLO_ARENA, bytes: address space for kolo::allocate(); memory is taken as it is allocated.
  std::int64_t arena = std::int64_t{64} << 30;
  /// KOLO_BATCH_WINDOW, microseconds: how long a ready tensor may wait for company before it is
  /// announced, unless somebody already waits for it.
  std::int64_t batch_window_us = 500;
  /// KOLO_BATCH_SIZE, bytes: ready tensors of this many bytes, of device memory of eight times as
  /// many, are announced at once.
  std::int64_t batch_size = 1 << 20;
  /// KOLO_CACHE_CAPACITY, entries: names whose negotiation is remembered; 0 switches it off.
  std::int64_t cache_capacity = 4096;
  /// KOLO_TIMELINE: the file that a timeline is written to; empty: none. %r becomes the rank;
  /// without it ".rank" goes before the extension, if there are several ranks.
  std::string timeline;
  /// KOLO_TIMELINE_STEPS: 1 puts each step of a schedule into the timeline, too.
  std::int64_t timeline_steps = 0;

  /// Not a knob: lines about KOLO_ variables that are unknown, for init to log.
  std::vector<std::string> warnings;

  /// Fails with kInvalidArgument on the first value that does not parse or is out of range.
  static Result<Config> from_environment(const Environment& environment);
  /// The same, with `invalid` in place of failing: such a value counts as not set.
  static Config from_environment(const Environment& environment, Status& invalid);

  /// The settings on which all ranks must agree, as "NAME=value" in a fixed order.
  std::vector<std::string> agreed_settings() const;
};

/// One row of the table of knobs, for help texts and reports.
struct Knob {
  std::string name;           ///< "KOLO_CHUNK_SIZE"
  std::string unit;           ///< "bytes"
  std::string default_value;  ///< as it would be written in the variable
  std::string range;          ///< "1024 to 1073741824"
  std::string purpose;        ///< one sentence
};
KOLO_API std::vector<Knob> knobs();

}  // namespace kolo
