// Config: every knob of kolo, so it has a member for each. init reads them once from KOLO_*
// variables (runtime/base/environment). An invalid value is an error that names the variable, the
// value and the range. An unknown KOLO_ variable is a warning. Each field tells its variable, unit,
// range and meaning; the initialiser is the default. Bytes may end in K, M or G (powers of 1024).
// "World": all ranks must have the same value; otherwise each rank may have its own.
#pragma once

#include <kolo/error.h>
#include <kolo/export.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

class Environment;

struct KOLO_API Config {
  /// KOLO_LOG_LEVEL: least severity that is logged: trace, debug, info, warning, error, off.
  std::string log_level = "warning";
  /// KOLO_INIT_METHOD: how ranks find each other: env://, tcp://host:port, file:///path, mpi://,
  /// pmix://, pmi://, slurm:// or single:// (a world of one rank, whatever the launcher says).
  /// Empty: kolo takes the method from the environment.
  std::string init_method;
  /// KOLO_RANK (0 to 1048575) and KOLO_SIZE (1 to 1048576): this process's rank and the number of
  /// ranks. They override what the launcher says. −1 (not set): from the environment.
  std::int64_t rank = -1;
  std::int64_t size = -1;
  /// KOLO_PROCESS, 0 to 1000000000: number of this process in an elastic job, which kolo-run sets.
  /// −1: not set.
  std::int64_t process = -1;
  /// KOLO_LOCAL_RANK, 0 to 1048575: rank among the ranks of this host, as the launcher counts them.
  /// −1: not set.
  std::int64_t local_rank = -1;
  /// KOLO_SECRET, the same on all processes of a job. While ranks meet, kolo refuses connections
  /// that do not prove to know the secret. kolo-run makes one.
  std::string secret;
  /// KOLO_SECRET_FILE: path of a file of mode 600 that holds the secret; used if `secret` is empty.
  std::string secret_file;
  /// KOLO_HOST_ID: overrides the identity of this host (boot id and IPC namespace), so that one
  /// machine can act as several hosts.
  std::string host_id;
  /// KOLO_INTERFACE: network device for messages to other ranks: "eth0", or "mlx5_0:1" for
  /// InfiniBand. Empty: UCX_NET_DEVICES, or else the device that UCX finds best.
  std::string interface;
  /// KOLO_INIT_TIMEOUT, seconds, 1 to 31536000 (a year): limit for each phase of the bootstrap.
  std::int64_t init_timeout_s = 300;
  /// KOLO_OPERATION_TIMEOUT, seconds, 1 to 31536000: limit to agree on an operation, and again to
  /// run it.
  std::int64_t operation_timeout_s = 600;
  /// KOLO_HEARTBEAT_TIMEOUT, seconds, 1 to 31536000. World. A rank counts as lost after this time
  /// without any message from it.
  std::int64_t heartbeat_timeout_s = 20;
  /// KOLO_STALL_WARNING, seconds, 1 to 31536000: after this time kolo reports a tensor or a join
  /// that some ranks have not submitted, and an operation that has not ended.
  std::int64_t stall_warning_s = 30;
  /// KOLO_FUSION_THRESHOLD, bytes, 1 to 1 GiB. World. Largest fusion buffer.
  std::int64_t fusion_threshold = 32 << 20;
  /// KOLO_FUSION_MAX_TENSOR, bytes, 0 to 1 GiB. World. A tensor of at least this size is reduced in
  /// place, without the fusion buffer. For device memory the limit is eight times as large.
  std::int64_t fusion_max_tensor = 1 << 20;
  /// KOLO_CHUNK_SIZE, bytes, 1024 to 1 GiB. World. Largest message of a pipelined schedule.
  std::int64_t chunk_size = 256 << 10;
  /// KOLO_CHUNKS_IN_FLIGHT, 1 to 64. World. Ring blocks in flight at once.
  std::int64_t chunks_in_flight = 4;
  /// KOLO_REDUCE_THREADS, 1 to 256: threads that share a rank's sums and copies of 256 KiB and
  /// more, including the thread that drives the runtime. Each thread needs a core of its own: where
  /// cores are few, leave it at 1.
  std::int64_t reduce_threads = 1;
  /// KOLO_SHARED_MEMORY, bytes, 0 to 1 GiB. World. Size of a rank's window that the other ranks of
  /// its host map. 0: no window; messages carry everything. Below 262144 the same, with a warning.
  std::int64_t shared_memory = 16 << 20;
  /// KOLO_NUMA_NODES, nodes, 0 to 1024. World. For tests: lays the ranks of each host in so many
  /// NUMA nodes, in blocks by local rank. 0: as they are.
  std::int64_t numa_nodes = 0;
  /// KOLO_ALGORITHM: algorithm of all-reduces: auto (the cheapest), one_shot or two_shot (the
  /// exchange, for in-order calls that fit into it, otherwise as auto), mapped (shared memory where
  /// ranks have it, otherwise as auto), ring, bidirectional_ring, recursive_doubling,
  /// halving_doubling, double_tree, hierarchical. World.
  std::string algorithm = "auto";
  /// KOLO_OPERATIONS: library that does all-reduces of device memory: kolo or nccl. With nccl each
  /// rank needs a GPU of its own. World.
  std::string operations = "kolo";
  /// KOLO_DETERMINISTIC, 0 or 1. World. 1: sums depend neither on which tensors are fused nor on
  /// the speed of links.
  std::int64_t deterministic = 0;
  /// KOLO_WIRE_CHECK, 0 or 1. World. 1: every message has a checksum, and damage to one ends the
  /// job with an error. No memory is mapped: messages carry everything, so that all is checked.
  std::int64_t wire_check = 0;
  /// KOLO_CHECK_FINITE: off, warn or error. World. Each rank looks for NaN and infinity in what it
  /// gives to a sum. warn: it logs where. error: that call fails on all ranks.
  std::string check_finite = "off";
  /// KOLO_LINK_CACHE, 0 or 1. World. 1: rank 0 keeps the measured costs of links for a day, and
  /// later jobs on the same hosts and transports use them. 0: each start measures.
  std::int64_t link_cache = 1;
  /// KOLO_CACHE_DIR: folder for the file of KOLO_LINK_CACHE. Empty: from_environment() fills in
  /// $XDG_CACHE_HOME/kolo or ~/.cache/kolo.
  std::string cache_dir;
  /// KOLO_DEVICE: this rank's CUDA device, as this process numbers them ("0" or "cuda:0"). "cpu":
  /// no device, even if there are some. "auto": by local rank, if there are any.
  std::string device = "auto";
  /// KOLO_DEVICE_MEMORY, bytes, 0 to 16 GiB. World. Size of a rank's window of device memory that
  /// the other ranks of its host map. With more than two ranks, half of it is for process sets. 0:
  /// no window; device data passes through host memory.
  std::int64_t device_memory = 128 << 20;
  /// KOLO_DEVICE_ARENA, bytes, 0 to 1 TiB: device memory beside that window, for tensors that the
  /// other ranks access in place (kolo::shared_zeros(), gradient buckets).
  std::int64_t device_arena = 256 << 20;
  /// KOLO_DEVICE_CHUNK, bytes, 1 to 1 GiB. World. Device memory goes over the network in pieces of
  /// about this size, so that copies overlap with transfers. Anything smaller is copied as a whole.
  /// Copying 1 MiB takes about ten times as long as launching the copy.
  std::int64_t device_chunk = 1 << 20;
  /// KOLO_GPUDIRECT: whether network cards read and write device memory directly when it goes to
  /// other hosts. World. auto: if every rank's can. on: the same, but init of a job over several
  /// hosts fails if one cannot. off: pieces go through pinned host memory.
  std::string gpudirect = "auto";
  /// KOLO_ARENA, bytes, 0 to 1 TiB: address space for kolo::allocate(). Physical memory is used
  /// only for what is allocated.
  std::int64_t arena = std::int64_t{64} << 30;
  /// KOLO_BATCH_WINDOW, microseconds, 0 to 1000000: longest time that a ready tensor is held back,
  /// so that more tensors can be announced with it. A tensor that a thread already waits for is
  /// announced at once.
  std::int64_t batch_window_us = 500;
  /// KOLO_BATCH_SIZE, bytes, 0 to 1 GiB: ready tensors are announced at once when they reach this
  /// size together. For device memory the limit is eight times as large.
  std::int64_t batch_size = 1 << 20;
  /// KOLO_CACHE_CAPACITY, names, 0 to 1048576. World. Size of the response cache: tensor names
  /// whose negotiation is remembered. 0: no cache.
  std::int64_t cache_capacity = 4096;
  /// KOLO_PLAN_LOCK, steps, 0 to 1024. World. After so many equal steps ranks agree on later ones
  /// without rank 0, and inside a host without messages, as long as these stay equal. 0: never.
  std::int64_t plan_lock = 3;
  /// KOLO_CONTROL_DEGREE, ranks, 1 to 1048576. World. To how many ranks a rank passes agreements
  /// on. Up to one rank more than that, all ranks talk to rank 0 directly; above, through a tree.
  std::int64_t control_degree = 16;
  /// KOLO_TIMELINE: path of the timeline's file; empty: no timeline. "%r" becomes the rank. Without
  /// "%r", and with several ranks, ".rank" is put before the extension.
  std::string timeline;
  /// KOLO_TIMELINE_STEPS, 0 or 1. 1: the timeline also has each step of a schedule.
  std::int64_t timeline_steps = 0;
  /// KOLO_FLIGHT_RECORDER: folder for the flight recorder's file, which a failure leaves there.
  /// Empty, or "0": no recorder; from_environment() takes $TMPDIR or /tmp if the variable is not
  /// set.
  std::string flight_recorder;

  /// Not a knob: one line for each unknown KOLO_ variable, which init logs.
  std::vector<std::string> warnings;

  /// kInvalidArgument for the first value that does not parse or is out of range.
  static Result<Config> from_environment(const Environment& environment);
  /// Never fails: an invalid value counts as not set, and `invalid` gets the first error.
  static Config from_environment(const Environment& environment, Status& invalid);

  /// The World settings, as "NAME=value" in a fixed order. init compares them between ranks.
  std::vector<std::string> agreed_settings() const;
};

/// One row of the table of knobs, for help texts and reports.
struct Knob {
  std::string name;           ///< "KOLO_CHUNK_SIZE"
  std::string unit;           ///< "bytes"
  std::string default_value;  ///< as one would write it in the variable
  std::string range;          ///< "1024 to 1073741824"
  std::string purpose;        ///< one sentence
};
KOLO_API std::vector<Knob> knobs();

}  // namespace kolo
