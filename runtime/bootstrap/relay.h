// Relay: a tree of TCP links between the ranks of a large job, over which their exchanges pass the
// store by. A rank takes what the ranks below it give, and sends it up with its own; the root sends
// the answer down. All else stays with the store: it tells each rank its place in the tree, it
// names ranks that fail or do not come, and it takes exchanges over when the tree breaks. Used by
// TcpStore.
#pragma once

#include "runtime/bootstrap/socket.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// From how many ranks on they are linked.
inline constexpr int kRelayRanks = 256;
/// How many links a rank has to ranks below it, at most.
inline constexpr int kRelayDegree = 4;

/// The ranks of a tree. Its root is the first one.
struct RelayTree {
  int first = 0;
  int end = 0;
};
/// The trees below the root: parts of the other ranks, of about the same size, by rank.
std::vector<RelayTree> trees_below(const RelayTree& tree);

/// The place of a rank in the tree.
struct RelayPlace {
  int rank = 0;
  int size = 0;
  Endpoint parent;    ///< where it listens; not for rank 0
  std::string token;  ///< proves that a rank belongs to this tree; random
};

class Relay {
 public:
  /// Listens at a free port.
  static Result<Relay> open();
  std::uint16_t port() const { return listener_.port; }
  /// Opens the links. `store`: the rank's connection to the store. Here and below, no wait takes
  /// more than a quarter of the time left, and each ends when something comes from the store, which
  /// tells of failures. When a wait ends in vain or a link breaks, this rank closes its links. So
  /// its neighbours do not wait for it, and go to the store, too.
  void link(const RelayPlace& place, int store, Deadline deadline);
  bool is_linked() const { return is_linked_; }
  /// One exchange of all ranks. Returns the body of the frame by which the store would answer, or
  /// nothing if this rank must ask the store. Other ranks may have their answers even so.
  std::optional<std::string> exchange(std::string_view phase, const std::string& value,
                                      Deadline deadline);
  /// The way down of an answer that rank 0 has from the store: `body` there, else nothing. Returns
  /// as exchange() does.
  std::optional<std::string> pass_down(std::optional<std::string> body, Deadline deadline);

 private:
  struct Child {
    RelayTree tree;
    UniqueDescriptor link = {};
  };

  explicit Relay(Listener listener) : listener_(std::move(listener)) {}
  bool try_link(const RelayPlace& place, Deadline deadline);
  bool accept_child(const std::string& token, Deadline deadline);
  std::optional<std::string> send_up(std::string_view phase, const std::string& value,
                                     Deadline deadline);
  std::optional<std::string> send_down(std::optional<std::string> body, Deadline deadline);
  /// The body of a frame that comes from a neighbour.
  std::optional<std::string> receive(int link, Deadline deadline) const;
  /// Until `fd` can be read; false if the store or the end of a link comes first.
  bool await_input(int fd, Deadline deadline) const;
  void close();

  Listener listener_;
  int store_ = -1;
  UniqueDescriptor parent_;
  std::vector<Child> children_;
  bool is_linked_ = false;
};

}  // namespace kolo
