// Two-level allreduce. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: Jia et al., "Highly scalable deep learning training system with
// mixed-precision", 2018, §3.3, and the node-aware reductions of Bienz, Olson & Gropp, EuroMPI
// 2019. Every rank of a host drives the network for a slice; no leader drives it for all.
//
// One block on hosts A = {0, 1} and B = {2, 3, 4}. A block has as many slices as the largest host
// has ranks. Host h has Lₕ members, and its member s·Lₕ/3 owns slice s. The owners of a slice form
// a ring across hosts:
//
//   slice            [0]        [1]        [2]
//   owner on A       0          0          1
//   owner on B       2          3          4
//   inside           owners sum the inputs of their host's ranks:       D = Σ of the host
//   across           0 ↔ 2      0 ↔ 3      1 ↔ 4     each a ring allreduce of D, in H chunks
//   inside           owners give each chunk that is done to the ranks of their host
//
// A rank sends 2·(H−1)/H of its own slices to other hosts. The ranks of a host together send
// 2·count·(H−1)/H elements, in 2(H−1) rounds of latency per block. Inside a host each input is read
// once and each result written once. The next block starts as soon as a pipeline slot of the
// scratch is free, so memory and network work at the same time.
//
// Scratch of a pipeline slot: a block. Its own slices hold D. Its other slices hold the packed
// input, then the result, which the owner writes there through the window or sends. Behind the
// block lie two ring slots for each own slice and, without windows, one receive slot for each input
// from the host. Only the write-after-read hazards need explicit dependencies. A slice of a peer's
// block is written after its owner has read the input there. An allgather receive into a chunk of D
// waits for the reduce-scatter's send of this chunk.
//
// D and the messages of the reduce-scatter are partial sums. Only hosts of one rank send inputs, in
// round 0.
//
// Staged, for device memory: D, the ring slots and the received inputs lie in kStaging. The windows
// hold only packed inputs and results. The device writes the sum of the host's inputs directly to
// the memory that the network sends from, and reads results from there, block by block. While one
// block is on the network, the next is on its way to staging memory and the previous one on its way
// back.
#include "runtime/collectives/allreduce_hierarchical.h"

#include "runtime/base/check.h"
#include "runtime/collectives/host_slices.h"
#include "runtime/collectives/pipeline.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace kolo {
namespace {

class HierarchicalWriter {
 public:
  HierarchicalWriter(int rank, const HostLayout& layout, std::uint64_t count,
                     const HierarchicalOptions& options)
      : rank_(rank),
        size_(layout.size()),
        hosts_(layout.hosts()),
        host_(layout.host_of(rank)),
        mapped_(options.mapped_elements > 0),
        staged_(options.staged),
        slices_(rank, layout, count,
                {.chunk_elements = options.chunk_elements,
                 .pipeline_slots = static_cast<std::uint64_t>(options.blocks_in_flight),
                 .mapped_elements = options.mapped_elements,
                 .staged = options.staged,
                 .owners = options.owners}),
        builder_("allreduce_hierarchical", rank, size_, count),
        finished_(slices_.pipeline_slots(), kNoStep) {}

  Schedule write() && {
    // Tags are 32 bits wide.
    KOLO_CHECK(slices_.blocks() * slices_.slices() * tags_per_slice() < UINT32_MAX);
    if (size_ > 1) {
      builder_.need_staging(slices_.staging_elements());
      if (mapped_ && locals().size() > 1) {
        builder_.need_mapped_scratch(slices_.scratch_elements());
      } else if (!staged_) {
        builder_.need_scratch(slices_.scratch_elements());
      }
    }
    for (block_ = 0; block_ < slices_.blocks(); ++block_) {
      if (size_ > 1) {
        write_block();
      } else {
        const Interval part = slices_.block_at(block_);
        builder_.copy(input_at(part), {output_at(part)}, Scaling::kBoth, {});
      }
    }
    return std::move(builder_).finish();
  }

 private:
  static constexpr StepId kNoStep = ScheduleBuilder::kNoStep;
  using Chunks = std::vector<Interval>;

  const std::vector<int>& locals() const { return slices_.locals(); }
  int owner(int host, std::uint64_t slice) const {
    return slices_.owner(static_cast<std::uint64_t>(host + hosts_), slice);
  }
  /// The step that the next block's first steps in this pipeline slot must wait for.
  StepId gate() const { return finished_[block_ % slices_.pipeline_slots()]; }
  std::size_t wrap(int chunk) const { return static_cast<std::size_t>((chunk + hosts_) % hosts_); }

  Operand in_block(int rank, Interval part) const {
    const std::uint64_t offset = slices_.offset_of(block_, part);
    return rank == rank_ ? Operand{Space::kScratch, -1, offset, part.length}
                         : Operand{Space::kPeer, rank, offset, part.length, part.begin};
  }
  /// The memory of a slice's part that this rank sends to its owner. The result arrives there, too.
  Operand given(Interval part) const {
    if (!staged_ || mapped_) return in_block(rank_, part);
    return {Space::kStaging, -1, slices_.offset_of(block_, part), part.length};
  }
  /// Whether the host `distance` before this one starts with a sum of its ranks, not with an input.
  bool is_summed(int distance) const {
    return slices_.members((host_ + hosts_ - distance) % hosts_).size() > 1;
  }
  /// A part of D in an own slice.
  Operand sum(std::uint64_t slice, Interval part) const {
    if (!staged_) return in_block(rank_, part);
    return {Space::kStaging, -1, slices_.sum_offset(block_, slice, part), part.length};
  }
  Operand slot(std::uint64_t offset, std::uint64_t length) const {
    return {staged_ ? Space::kStaging : Space::kScratch, -1, offset, length};
  }

  /// A slice has one tag for its input, one for each chunk of its result, and the tags of its ring.
  std::uint64_t tags_per_slice() const {
    return 1 + static_cast<std::uint64_t>(hosts_) + 2 * static_cast<std::uint64_t>(hosts_ - 1);
  }
  std::uint32_t input_tag(std::uint64_t slice) const {
    return static_cast<std::uint32_t>((block_ * slices_.slices() + slice) * tags_per_slice());
  }
  std::uint32_t result_tag(std::uint64_t slice, std::size_t chunk) const {
    return input_tag(slice) + 1 + static_cast<std::uint32_t>(chunk);
  }
  std::uint32_t ring_tag(std::uint64_t slice, int round) const {
    return input_tag(slice) + 1 + static_cast<std::uint32_t>(hosts_ + round);
  }

  void write_block();
  void hand_over(std::uint64_t slice, Interval part);
  void drive(std::uint64_t slice, Interval part);
  StepId sum_of_host(std::uint64_t slice, Interval part);
  void ring(std::uint64_t slice, const Chunks& chunks, StepId summed);
  void publish(std::uint64_t slice, const Chunks& chunks, std::size_t chunk, StepId ready);

  int rank_;
  int size_;
  int hosts_;
  int host_;
  bool mapped_;
  bool staged_;
  HostSlices slices_;
  ScheduleBuilder builder_;
  std::uint64_t block_ = 0;         ///< the block that is being written
  std::vector<StepId> last_steps_;  ///< last steps of this block
  std::vector<StepId> finished_;    ///< by pipeline slot: its last block has left the scratch
};

void HierarchicalWriter::write_block() {
  last_steps_.clear();
  // Start behind this rank, so that not all ranks wake the same rank first.
  const auto self = std::find(locals().begin(), locals().end(), rank_) - locals().begin();
  for (std::uint64_t k = 1; k <= slices_.slices(); ++k) {
    const std::uint64_t slice = (static_cast<std::uint64_t>(self) + k) % slices_.slices();
    const Interval part = slices_.slice_at(block_, slice);
    if (part.length > 0 && owner(host_, slice) != rank_) hand_over(slice, part);
  }
  for (std::uint64_t slice = 0; slice < slices_.slices(); ++slice) {
    const Interval part = slices_.slice_at(block_, slice);
    if (part.length > 0 && owner(host_, slice) == rank_) drive(slice, part);
  }
  // No step waits for the last blocks.
  if (block_ + slices_.pipeline_slots() < slices_.blocks())
    finished_[block_ % slices_.pipeline_slots()] = builder_.join(last_steps_);
}

/// Gives the input of a slice to its owner on this host, and receives the result.
void HierarchicalWriter::hand_over(std::uint64_t slice, Interval part) {
  const int to = owner(host_, slice);
  StepId handed = kNoStep;
  if (mapped_) {
    const StepId packed = builder_.stand_in(input_at(part), given(part), Scaling::kPre, {gate()});
    builder_.signal(to, input_tag(slice), {packed});
  } else {
    const StepId packed = builder_.copy(input_at(part), {given(part)}, Scaling::kPre, {gate()});
    handed = builder_.send(to, input_tag(slice), given(part), {packed});
  }
  const Chunks chunks = slices_.chunks_of(part);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    if (chunks[c].length == 0) continue;
    const Operand source = given(chunks[c]), destination = output_at(chunks[c]);
    if (mapped_) {
      const StepId arrived = builder_.wait(to, result_tag(slice, c), {});
      last_steps_.push_back(builder_.stand_in(source, destination, Scaling::kNone, {arrived}));
    } else {
      const StepId arrived = builder_.receive(to, result_tag(slice, c), source, {handed});
      last_steps_.push_back(builder_.copy(source, {destination}, Scaling::kNone, {arrived}));
    }
  }
}

void HierarchicalWriter::drive(std::uint64_t slice, Interval part) {
  const StepId summed = sum_of_host(slice, part);
  const Chunks chunks = slices_.chunks_of(part);
  if (hosts_ == 1) {
    publish(slice, chunks, 0, summed);
  } else {
    ring(slice, chunks, summed);
  }
}

/// D = the sum over the host's ranks, in order of rank.
StepId HierarchicalWriter::sum_of_host(std::uint64_t slice, Interval part) {
  const Scaling scaling = hosts_ == 1 ? Scaling::kBoth : Scaling::kPre;
  if (locals().size() == 1)
    return builder_.copy(input_at(part), {sum(slice, part)}, scaling, {gate()});
  std::vector<Operand> sources;
  std::vector<StepId> ready = {gate()};
  std::uint64_t others = 0;
  for (const int peer : locals()) {
    if (peer == rank_) {
      sources.push_back(input_at(part));
    } else if (mapped_) {
      sources.push_back(in_block(peer, part));
      ready.push_back(builder_.wait(peer, input_tag(slice), {}));
    } else {
      sources.push_back(slot(slices_.input_slot(block_, slice, others++), part.length));
      ready.push_back(builder_.receive(peer, input_tag(slice), sources.back(), {gate()}));
    }
  }
  const Operand destination = sum(slice, part).as_partial(hosts_ > 1);
  return builder_.reduce(sources, {&destination, 1}, scaling, ready);
}

/// Works on a slice like allreduce_ring on a block. `summed` is the step that completes D.
void HierarchicalWriter::ring(std::uint64_t slice, const Chunks& chunks, StepId summed) {
  const int next = owner(host_ + 1, slice), previous = owner(host_ - 1, slice);
  const int rounds = hosts_ - 1;
  std::vector<StepId> sends(static_cast<std::size_t>(rounds), kNoStep);
  std::array<StepId, HostSlices::kRingSlots> slot_reader = {gate(), gate()};

  StepId ready = summed;
  for (int s = 0; s < rounds; ++s) {
    if (const Interval outgoing = chunks[wrap(host_ - s)]; outgoing.length > 0)
      sends[static_cast<std::size_t>(s)] =
          builder_.send(next, ring_tag(slice, s),
                        sum(slice, outgoing).as_partial(s > 0 || is_summed(0)), {ready});
    const Interval incoming = chunks[wrap(host_ - s - 1)];
    ready = kNoStep;
    if (incoming.length == 0) continue;
    const Operand landing = slot(slices_.ring_slot(block_, slice, s), incoming.length)
                                .as_partial(s > 0 || is_summed(1));
    StepId& reader = slot_reader[static_cast<std::size_t>(s) % slot_reader.size()];
    const StepId received = builder_.receive(previous, ring_tag(slice, s), landing, {reader});
    const bool last = s == rounds - 1;
    ready = builder_.reduce({landing, sum(slice, incoming).as_partial(is_summed(0))},
                            {sum(slice, incoming).as_partial(!last)},
                            last ? Scaling::kPost : Scaling::kNone, {received, summed});
    reader = ready;
  }
  for (int s = 0; s < rounds; ++s) {
    const std::size_t done = wrap(host_ + 1 - s), coming = wrap(host_ - s);
    if (chunks[done].length > 0)
      last_steps_.push_back(
          builder_.send(next, ring_tag(slice, rounds + s), sum(slice, chunks[done]), {ready}));
    publish(slice, chunks, done, ready);
    ready = kNoStep;
    if (chunks[coming].length > 0)
      ready = builder_.receive(previous, ring_tag(slice, rounds + s), sum(slice, chunks[coming]),
                               {sends[static_cast<std::size_t>(s)]});
  }
  publish(slice, chunks, wrap(host_ + 2), ready);
}

/// Gives a chunk of the result to the ranks of this host.
void HierarchicalWriter::publish(std::uint64_t slice, const Chunks& chunks, std::size_t chunk,
                                 StepId ready) {
  const Interval part = chunks[chunk];
  if (part.length == 0) return;
  std::vector<Operand> destinations = {output_at(part)};
  for (const int peer : locals())
    if (mapped_ && peer != rank_) destinations.push_back(in_block(peer, part));
  const StepId written = builder_.copy(sum(slice, part), destinations, Scaling::kNone, {ready});
  last_steps_.push_back(written);
  for (const int peer : locals()) {
    if (peer == rank_) continue;
    if (mapped_) {
      builder_.signal(peer, result_tag(slice, chunk), {written});
    } else {
      last_steps_.push_back(
          builder_.send(peer, result_tag(slice, chunk), sum(slice, part), {ready}));
    }
  }
}

}  // namespace

Schedule allreduce_hierarchical(int rank, const HostLayout& layout, std::uint64_t count,
                                const HierarchicalOptions& options) {
  return HierarchicalWriter(rank, layout, count, options).write();
}

}  // namespace kolo
