// MessageMatcher: matches posted receives with arrived messages by (peer, tag), in FIFO order under
// one key. Each transport owns one and calls it on the thread that drives the transport.
//
// Tags contain operation numbers, so nearly every key is used once, and a node-based map would
// allocate for each message. FifoTable therefore chains the entries of one pool by index. After the
// first operations it allocates no more.
#pragma once

#include "transport/tag.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kolo {

class Transfer;

/// Spreads keys that differ in one small number, as those of consecutive steps and operations do.
inline std::uint64_t hash_of(const MessageKey& key) {
  // The finaliser of splitmix64 (Steele, Lea, Flood 2014) over the key's parts.
  std::uint64_t h = static_cast<std::uint64_t>(key.peer) << 32 ^ key.tag.step;
  h ^= key.tag.operation * 0x9e3779b97f4a7c15U + (std::uint64_t{key.tag.communicator} << 40);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9U;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebU;
  return h ^ (h >> 31);
}

/// A hash multimap that returns the values of one key in the order of insertion.
template <class Value>
class FifoTable {
 public:
  FifoTable() : buckets_(kFirstBuckets) {}

  void push(const MessageKey& key, Value value) {
    if (size_ >= buckets_.size()) grow();
    std::uint32_t index = free_;
    if (index == kNone) {
      index = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = nodes_[index].next;
    }
    nodes_[index].key = key;
    nodes_[index].value.emplace(std::move(value));
    append(index);
    ++size_;
  }

  /// Takes out the oldest value under `key`.
  std::optional<Value> pop(const MessageKey& key) {
    Bucket& bucket = bucket_of(key);
    std::uint32_t previous = kNone;
    for (std::uint32_t index = bucket.head; index != kNone;
         previous = index, index = nodes_[index].next) {
      Node& node = nodes_[index];
      if (!(node.key == key)) continue;
      (previous == kNone ? bucket.head : nodes_[previous].next) = node.next;
      if (bucket.tail == index) bucket.tail = previous;
      node.next = std::exchange(free_, index);
      --size_;
      return std::exchange(node.value, std::nullopt);
    }
    return std::nullopt;
  }

  /// Takes out everything, in no particular order.
  std::vector<std::pair<MessageKey, Value>> take_all() {
    std::vector<std::pair<MessageKey, Value>> all;
    all.reserve(size_);
    for (Node& node : nodes_) {
      if (node.value) all.emplace_back(node.key, *std::move(node.value));
    }
    nodes_.clear();
    buckets_.assign(kFirstBuckets, Bucket());
    free_ = kNone;
    size_ = 0;
    return all;
  }

  std::size_t size() const { return size_; }

  std::vector<MessageKey> keys() const {
    std::vector<MessageKey> keys;
    if (size_ == 0) return keys;
    for (const Node& node : nodes_) {
      if (node.value) keys.push_back(node.key);
    }
    return keys;
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffU;
  static constexpr std::size_t kFirstBuckets = 64;  // a power of two, like all later counts

  struct Node {
    MessageKey key;
    std::uint32_t next = kNone;
    std::optional<Value> value;
  };
  struct Bucket {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
  };

  Bucket& bucket_of(const MessageKey& key) {
    return buckets_[hash_of(key) & (buckets_.size() - 1)];
  }

  void append(std::uint32_t index) {
    nodes_[index].next = kNone;
    Bucket& bucket = bucket_of(nodes_[index].key);
    (bucket.tail == kNone ? bucket.head : nodes_[bucket.tail].next) = index;
    bucket.tail = index;
  }

  void grow() {
    const std::vector<Bucket> old =
        std::exchange(buckets_, std::vector<Bucket>(buckets_.size() * 2));
    for (const Bucket& bucket : old) {  // front to back, to keep the order under each key
      for (std::uint32_t index = bucket.head; index != kNone;) {
        const std::uint32_t next = nodes_[index].next;
        append(index);
        index = next;
      }
    }
  }

  std::vector<Bucket> buckets_;
  std::vector<Node> nodes_;
  std::uint32_t free_ = kNone;
  std::size_t size_ = 0;
};

/// A receive that waits for its message.
struct PostedReceive {
  std::span<std::byte> data;
  Transfer* transfer = nullptr;
  std::uint64_t call = 0;  ///< Tag::call
};

/// `Arrival` is what the transport keeps of a message that came before its receive: a copy of the
/// bytes, or the descriptor of a rendezvous.
template <class Arrival>
class MessageMatcher {
 public:
  /// Takes the oldest arrival under `key`. If there is none, keeps `receive` and returns nothing.
  std::optional<Arrival> post(const MessageKey& key, const PostedReceive& receive) {
    std::optional<Arrival> arrival = arrivals_.pop(key);
    if (!arrival) receives_.push(key, receive);
    return arrival;
  }

  /// Takes the oldest arrival under `key`, or nothing. Keeps no receive.
  std::optional<Arrival> take(const MessageKey& key) { return arrivals_.pop(key); }

  /// Takes the oldest receive under `key`. If there is none, the caller must keep() the message.
  std::optional<PostedReceive> match(const MessageKey& key) { return receives_.pop(key); }
  void keep(const MessageKey& key, Arrival arrival) { arrivals_.push(key, std::move(arrival)); }

  std::vector<std::pair<MessageKey, PostedReceive>> take_receives() { return receives_.take_all(); }
  std::vector<std::pair<MessageKey, Arrival>> take_arrivals() { return arrivals_.take_all(); }

  /// The keys of the waiting arrivals.
  std::vector<MessageKey> unclaimed() const { return arrivals_.keys(); }

 private:
  FifoTable<PostedReceive> receives_;
  FifoTable<Arrival> arrivals_;
};

}  // namespace kolo
