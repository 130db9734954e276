// Runs reduces and copies over scattered memory: walks all operands of a step together, and gives
// the device the stretches in which each is contiguous. Token holder only.
#include "runtime/execution/local_step.h"

#include "runtime/base/check.h"

#include <algorithm>

namespace kolo {
namespace {

/// Elements that are prescaled at a time, so that they are still in the first-level cache when they
/// are summed.
constexpr std::uint64_t kElementsPerScaling = 2048;
constexpr std::size_t kLargestElement = 16;

/// A peer's user memory if the operand means it; null if it means the scratch that stands in for
/// it.
const SegmentList* users_memory(const MemoryBinding& binding, const Operand& operand, Role role) {
  const auto rank = static_cast<std::size_t>(operand.rank);
  if (operand.space != Space::kPeer || operand.direct == Operand::kNowhere ||
      rank >= binding.peers.size())
    return nullptr;
  const PeerMemory& peer = binding.peers[rank];
  const SegmentList& users = role == Role::kSource ? peer.input : peer.output;
  return users.size() > 0 ? &users : nullptr;
}

Segment peer_memory(const MemoryBinding& binding, const Operand& operand, Role role,
                    std::uint64_t skip, std::size_t element_size) {
  if (const SegmentList* const users = users_memory(binding, operand, role))
    return users->rest_at(operand.direct + skip, element_size);
  const auto rank = static_cast<std::size_t>(operand.rank);
  if (rank >= binding.peers.size() || binding.peers[rank].scratch == nullptr) return {};
  return {binding.peers[rank].scratch + (operand.offset + skip) * element_size,
          operand.length - skip};
}

}  // namespace

bool has_prescale(const Step& step, const MemoryBinding& binding) {
  return (step.scaling == Scaling::kPre || step.scaling == Scaling::kBoth) &&
         !binding.prescale.is_identity();
}

Scale postscale(const Step& step, const MemoryBinding& binding) {
  const bool applies = step.scaling == Scaling::kPost || step.scaling == Scaling::kBoth;
  return applies ? binding.postscale : Scale{};
}

bool is_void(const Schedule& schedule, const Step& step, const MemoryBinding& binding) {
  if (!step.stands_in) return false;
  const WindowOffsets& own = binding.mapped.own;
  const bool packs = schedule.sources(step).front().space == Space::kInput;
  return (packs ? own.input : own.output) != WindowOffsets::kNowhere;
}

bool is_peers_users(const MemoryBinding& binding, const Operand& operand, Role role) {
  return users_memory(binding, operand, role) != nullptr;
}

Status may_touch_users(const MemoryBinding& binding, const Operand& operand) {
  const MappedMemory& mapped = binding.mapped;
  return mapped.users->check(mapped.ranks[static_cast<std::size_t>(operand.rank)]);
}

Error unbound(const Operand& operand, std::uint64_t skip) {
  return KOLO_ERROR(
      kInternal,
      "element {} of an operand in space {} (rank {}) lies outside of the memory that "
      "is bound to it",
      operand.offset + skip, static_cast<int>(operand.space), operand.rank);
}

DataType type_of(const MemoryBinding& binding, const Operand& operand) {
  return operand.partial ? partial_type(binding.type, binding.op) : binding.type;
}

Segment resolve(const MemoryBinding& binding, const Operand& operand, Role role,
                std::uint64_t skip) {
  const std::size_t element_size = size_of(type_of(binding, operand));
  const bool is_wide = operand.partial && binding.widens();
  const std::uint64_t offset = operand.offset + skip;
  const std::uint64_t left = operand.length - skip;
  Segment piece;
  switch (operand.space) {
    case Space::kInput:
      piece = binding.input.rest_at(offset, element_size);
      break;
    case Space::kOutput:
      piece = binding.output.rest_at(offset, element_size);
      break;
    case Space::kScratch:
      if (std::byte* const scratch = is_wide ? binding.partial_scratch : binding.scratch)
        piece = {scratch + offset * element_size, left};
      break;
    case Space::kStaging:
      if (std::byte* const staging = is_wide ? binding.partial_staging : binding.staging)
        piece = {staging + offset * element_size, left};
      break;
    case Space::kPeer:
      piece = peer_memory(binding, operand, role, skip, element_size);
      break;
  }
  piece.elements = std::min(piece.elements, left);
  return piece;
}

Status LocalStep::run(const Schedule& schedule, const Step& step, const MemoryBinding& binding) {
  cursors_.clear();
  for (const Operand& operand : schedule.sources(step))
    cursors_.push_back({operand, Role::kSource, type_of(binding, operand), {}});
  for (const Operand& operand : schedule.destinations(step))
    cursors_.push_back({operand, Role::kDestination, type_of(binding, operand), {}});
  if (cursors_.empty() || is_void(schedule, step, binding)) return {};
  std::optional<UsersMemory::Touch> touch;
  KOLO_TRY(may_touch(binding, touch));

  const std::uint64_t length = cursors_.front().operand.length;
  for (std::uint64_t done = 0; done < length;) {
    std::uint64_t take = length - done;
    if (step.kind == StepKind::kReduce && has_prescale(step, binding))
      take = std::min(take, kElementsPerScaling);
    for (Cursor& cursor : cursors_) {
      if (cursor.piece.elements == 0)
        cursor.piece = resolve(binding, cursor.operand, cursor.role, done);
      if (cursor.piece.elements == 0) return unbound(cursor.operand, done);
      take = std::min(take, cursor.piece.elements);
    }
    KOLO_TRY(run_piece(step, binding, take));
    for (Cursor& cursor : cursors_) {
      cursor.piece.data += take * size_of(cursor.type);
      cursor.piece.elements -= take;
    }
    done += take;
  }
  return {};
}

Status LocalStep::may_touch(const MemoryBinding& binding,
                            std::optional<UsersMemory::Touch>& touch) const {
  if (binding.mapped.users == nullptr) return {};
  for (const Cursor& cursor : cursors_) {
    if (!is_peers_users(binding, cursor.operand, cursor.role)) continue;
    if (!touch) touch.emplace(*binding.mapped.users);
    KOLO_TRY(may_touch_users(binding, cursor.operand));
  }
  return {};
}

Status LocalStep::run_piece(const Step& step, const MemoryBinding& binding,
                            std::uint64_t elements) {
  if (step.kind == StepKind::kReduce) return reduce_piece(step, binding, elements);
  copy_piece(step, binding, elements);
  const std::byte* const first = cursors_[step.source_count].piece.data;
  for (std::size_t i = step.source_count + 1; i < cursors_.size(); ++i)
    device_.copy(cursors_[0].type, cursors_[i].piece.data, first, elements, Scale{});
  return {};
}

Stores LocalStep::stores(const Step& step, const MemoryBinding& binding) const {
  if (binding.output_stores == Stores::kCached) return Stores::kCached;
  const bool all_users = std::all_of(
      cursors_.begin() + step.source_count, cursors_.end(), [&](const Cursor& destination) {
        const Operand& operand = destination.operand;
        if (operand.space != Space::kPeer) return operand.space == Space::kOutput;
        return users_memory(binding, operand, destination.role) != nullptr;
      });
  return all_users ? Stores::kStreaming : Stores::kCached;
}

Status LocalStep::prescale(const Step& step, const MemoryBinding& binding, std::uint64_t elements) {
  std::byte* const destination = destinations_.front();
  // The scaled input goes to the destination, unless another source uses that memory.
  std::size_t inputs = 0;
  bool is_taken = cursors_[step.source_count].type != binding.type;
  for (std::size_t i = 0; i < step.source_count; ++i) {
    const bool is_input = cursors_[i].operand.space == Space::kInput;
    inputs += is_input ? 1 : 0;
    is_taken |= !is_input && sources_[i] == destination;
  }
  if (is_taken) scaled_.resize(kElementsPerScaling * kLargestElement);
  std::byte* const scaled = is_taken ? scaled_.data() : destination;
  if (inputs > 1)
    return KOLO_ERROR(kInternal, "a reduce with a prescale takes one operand of kInput");
  for (std::size_t i = 0; i < step.source_count; ++i) {
    if (cursors_[i].operand.space != Space::kInput) continue;
    device_.copy(binding.type, scaled, sources_[i], elements, binding.prescale);
    sources_[i] = scaled;
  }
  return {};
}

Status LocalStep::adasum(const Step& step, const MemoryBinding& binding, std::uint64_t elements) {
  // Adasum's coefficients are those of whole tensors.
  if (sources_.size() != 2 || elements != cursors_.front().operand.length)
    return KOLO_ERROR(kInternal, "an Adasum combines two vectors, each in one piece");
  std::byte* const destination = destinations_.front();
  device_.adasum(binding.type, destination, sources_[0], sources_[1], elements);
  if (const Scale post = postscale(step, binding); !post.is_identity())
    device_.copy(binding.type, destination, destination, elements, post);
  for (std::size_t i = 1; i < destinations_.size(); ++i)
    device_.copy(binding.type, destinations_[i], destination, elements, Scale{});
  return {};
}

Status LocalStep::reduce_piece(const Step& step, const MemoryBinding& binding,
                               std::uint64_t elements) {
  sources_.clear();
  for (std::size_t i = 0; i < step.source_count; ++i) sources_.push_back(cursors_[i].piece.data);
  destinations_.clear();
  for (std::size_t i = step.source_count; i < cursors_.size(); ++i)
    destinations_.push_back(cursors_[i].piece.data);

  Stores how = stores(step, binding);
  if (has_prescale(step, binding)) {
    how = Stores::kCached;
    KOLO_TRY(prescale(step, binding, elements));
  }
  if (binding.op == ReduceOp::kAdasum) return adasum(step, binding, elements);
  combine(step, binding, elements, how);
  return {};
}

void LocalStep::combine(const Step& step, const MemoryBinding& binding, std::uint64_t elements,
                        Stores stores) {
  const DataType target = cursors_[step.source_count].type;
  const Scale post = postscale(step, binding);
  if (std::all_of(cursors_.begin(), cursors_.end(),
                  [&](const Cursor& cursor) { return cursor.type == target; }))
    return device_.reduce(target, binding.op, destinations_, sources_, elements, post, stores);
  typed_sources_.clear();
  for (std::size_t i = 0; i < sources_.size(); ++i)
    typed_sources_.push_back({sources_[i], cursors_[i].type});
  device_.reduce_mixed(target, binding.op, destinations_, typed_sources_, elements, post);
}

void LocalStep::copy_piece(const Step& step, const MemoryBinding& binding, std::uint64_t elements) {
  const std::byte* const source = cursors_[0].piece.data;
  std::byte* const destination = cursors_[1].piece.data;
  const bool from_input = cursors_[0].operand.space == Space::kInput;
  const Scale pre = from_input && has_prescale(step, binding) ? binding.prescale : Scale{};
  const Scale post = postscale(step, binding);
  if (pre.is_identity() && post.is_identity() && source != destination &&
      stores(step, binding) == Stores::kStreaming)
    return device_.stream(destination, source, elements * size_of(binding.type));
  const DataType type = cursors_[0].type;  // partial sums are copied unchanged
  // Two factors take two steps, so that a world of one rank rounds and truncates as a large one
  // does.
  if (pre.is_identity() || post.is_identity()) {
    device_.copy(type, destination, source, elements, pre.is_identity() ? post : pre);
  } else {
    device_.copy(type, destination, source, elements, pre);
    device_.copy(type, destination, destination, elements, post);
  }
}

}  // namespace kolo
