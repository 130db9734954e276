// All sizes at which the choice of route changes; route() and the exchange compare with them. Each
// comes with its reason or measurement (docs/measurements.md has the tables).
//
// "Of all ranks together" means the sum over the ranks of a process set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::thresholds {

// The exchange over control segments.

/// Largest input that a control segment's ring has room for. Larger ones gain nothing by one hop.
inline constexpr std::size_t kExchange = 128 << 10;
/// Largest all-reduce in one hop, of all ranks together: every rank reads all inputs, so beyond
/// this it pays to divide the sum among the ranks.
inline constexpr std::size_t kOneShot = 128 << 10;
/// As kOneShot, for three ranks or more that each have a core: a second hop costs them little.
inline constexpr std::size_t kOneShotWithCores = 32 << 10;
/// Largest all-reduce of the exchange where all ranks' memory lies in the arena: nothing is copied.
/// Beyond, a schedule's blocks stay in the caches and the exchange's do not.
inline constexpr std::size_t kExchangeInArena = 4 << 20;
/// Least all-reduce that two hops may carry faster where all ranks' memory lies in the arena.
inline constexpr std::size_t kTwoShotInArena = 4 << 10;
/// As kTwoShotInArena, where ranks wait for cores: there a second flag costs more than copies do.
inline constexpr std::size_t kTwoShotWithoutCores = 16 << 10;

/// Largest all-reduce by the two-rank exchange; above, the cost of an operation does not matter.
inline constexpr std::size_t kTwoRankExchange = 1 << 10;

// Schedules over windows of host memory.

/// Largest move (no sum) by messages inside a host, of all ranks together: up to here a message
/// costs less than the signals of a block in the windows.
inline constexpr std::size_t kMoveByMessages = 16 << 10;
/// As kMoveByMessages, for scatters, whose data goes one way: sender and receiver of a message copy
/// at the same time, and the reader of a window waits until its owner has packed.
inline constexpr std::size_t kScatterByMessages = 256 << 10;
/// As kScatterByMessages, for gathers: the root does most of the copying either way.
inline constexpr std::size_t kGatherByMessages = 1 << 20;
/// A block that is moved through a window and not summed stays in the second-level cache.
inline constexpr std::size_t kMovedBlock = 256 << 10;
/// Where ranks wait for cores, a block of an alltoall or reduce-scatter has kMovedBlock for each of
/// its readers, and at most this: signals cost more than cache misses there. At 1 and 4 MiB on 2
/// cores, blocks of 256 KiB took 1.2 to 1.3 times as long with 8 ranks, 1.5 to 1.9 with 32.
///
/// A block of a broadcast is long enough there for the pipeline slots to hold all blocks, up to
/// this length: a root that waits for a slot waits for a turn of every reader. At 4 MiB, blocks of
/// 256 KiB took 1.0 to 1.2 times as long with 4 ranks, 1.4 with 8 and 32.
inline constexpr std::size_t kMostMovedBlock = 1 << 20;
/// Least block of data that goes one way; shorter ones cost more signals than they hide waiting.
inline constexpr std::size_t kLeastMovedBlock = 32 << 10;
/// A block that is summed, of which each rank packs and sums a part. Larger ones of operations
/// that run at once drive each other out of the caches; smaller ones need more signals.
inline constexpr std::size_t kSummedBlock = 512 << 10;
/// As kSummedBlock, for all-reduces of kLargeSum bytes or more: signals cost them more than cache
/// misses.
inline constexpr std::size_t kLargeSummedBlock = 1 << 20;
/// Where ranks wait for cores, a block that is summed is at least kSummedBlock and at most this
/// long, so that the pipeline slots hold all blocks, if possible. At 1.5 to 4 MiB on 2 cores,
/// blocks of 512 KiB took 1.05 to 1.1 times as long with 3 and 4 ranks, 1.1 to 1.2 with 8. One
/// block alone took as long as two that did not fit.
inline constexpr std::size_t kMostSummedBlock = 2 << 20;
inline constexpr std::size_t kLargeSum = 4 << 20;
/// Least all-reduce or broadcast, or allgather of all ranks together, that goes through windows by
/// NUMA nodes, and least ranks of the largest node. Sums of nodes and pieces of other nodes are
/// written and read once more, and small calls wait for twice as many signals in a row. By
/// kolo-simulate; no machine has measured it (docs/scale.md).
inline constexpr std::size_t kByNodes = 64 << 10;
inline constexpr int kRanksANode = 8;
/// Ranks a core that sum an all-reduce, where ranks wait for cores: each exchanges signals with all
/// others. On 2 cores, all-reduces of up to 256 KiB that 8, 16 and 32 ranks sum took 1.3 to 2.6
/// times as long as those that 2 of them sum, and those that 4 sum 1.0 to 1.9 times.
inline constexpr int kSummingRanksACore = 1;
/// The list of fused tensors' offsets takes at most one in this many bytes of a slot.
inline constexpr std::size_t kOffsetListShare = 4;
/// Offset lists end at multiples of this, so that pipeline slots consist of whole cache lines.
inline constexpr std::size_t kOffsetListGranule = 4096;

// Two levels: windows inside hosts, messages between them.

/// Window bytes for each rank of the fullest host. Below, a two-level all-reduce would send tiny
/// pieces.
inline constexpr std::size_t kTwoLevelWindowShare = 16 << 10;
/// Least allgather and reduce-scatter, of all ranks together, that is worth the rounds and signals
/// of two levels.
inline constexpr std::size_t kTwoLevels = 128 << 10;
/// Least broadcast by two levels: one level sends as little over the network, and reaches the last
/// of many hosts sooner. Two levels save copies inside hosts.
inline constexpr std::size_t kTwoLevelBroadcast = 4 << 20;
/// Shortest piece in a window; below, signals and messages cost more than two levels save.
inline constexpr std::size_t kTwoLevelPiece = 8 << 10;

// Messages.

/// A chunk is just long enough to hide the cost of a message. If a transfer is this many times
/// shorter, the number of messages dominates its cost.
inline constexpr std::uint64_t kChunkToSmall = 16;
/// Pairwise messages overlap, rounds do not. Over shared memory on 2 cores, Bruck's rounds took 1.2
/// to 1.9 times as long with 10 to 48 ranks. A message costs its ranks about 1 µs each, a round
/// over a network about 10 µs. The two costs are equal at about this many ranks.
inline constexpr int kRanksForRounds = 96;
/// Bytes of calls whose data goes one way that may wait for a rank that comes late, besides as many
/// for each operation that runs at once. After these, the ranks meet before they send.
inline constexpr std::uint64_t kOneWayAhead = 16 << 20;
/// Bytes that a waiting message takes besides its data.
inline constexpr std::uint64_t kWaitingMessage = 256;

// Memory of devices.

/// A pipeline slot's block that is moved and not summed: long enough for a device's whole width.
inline constexpr std::size_t kDeviceMovedBlock = 4 << 20;
/// Bytes of a pipeline slot for each rank, below which a device's window is not used.
inline constexpr std::size_t kDeviceSlotShare = 256;
/// Elements of a pipeline slot for each rank of a host, below which pieces of a two-level
/// all-reduce do not pass through the devices' windows.
inline constexpr std::size_t kDeviceSumShare = 256;
/// Bytes that a device's kernels load at once; fused tensors begin at multiples of it.
inline constexpr std::size_t kDeviceLoad = 16;
/// A piece that is copied while another one travels has at least KOLO_DEVICE_CHUNK divided by this:
/// enqueueing and waiting for a shorter one takes longer than copying it.
inline constexpr std::int64_t kDeviceShortestPart = 4;
/// Two levels move pieces of at least KOLO_DEVICE_CHUNK divided by this through device windows …
inline constexpr std::size_t kDeviceTwoLevelParts = 16;
/// … and of at least this many bytes, which are whole elements of every type.
inline constexpr std::size_t kDeviceSmallestPart = 64;
/// Ranks of a host whose memory a device sums at once (Combination::sources).
inline constexpr int kDeviceSources = 32;

}  // namespace kolo::thresholds
