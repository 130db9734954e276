// UCX against the conformance suite: ranks are threads of one process, each with its own context
// and worker. The tests under mpirun use it between processes.
#include "transport/ucx/ucx_transport.h"

#include "tests/transport/transport_conformance.h"

#include <gmock/gmock.h>

namespace kolo::test {
namespace {

class UcxWorld final : public TransportWorld {
 public:
  UcxWorld(int size, const UcxOptions& options) {
    for (int rank = 0; rank < size; ++rank) {
      auto transport = make_ucx_transport(options);
      if (!transport.ok()) ADD_FAILURE() << transport.error().message;
      transports_.push_back(*std::move(transport));
    }
  }
  Transport& at(int rank) override { return *transports_[static_cast<std::size_t>(rank)]; }
  void close(int rank) override { transports_[static_cast<std::size_t>(rank)].reset(); }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
};

TransportMaker maker(const std::string& name, const UcxOptions& options) {
  return {.name = name,
          .make = [options](int size) { return std::make_unique<UcxWorld>(size, options); }};
}

TransportMaker host_with_rendezvous() {
  TransportMaker made = maker("rendezvous", {.host_rendezvous_from = 1});
  made.reads_end_with_fail_all = false;
  return made;
}

/// With error handling, for which UCX leaves shared memory and takes TCP.
TransportMaker across_hosts() {
  TransportMaker made = maker("across_hosts", {});
  made.same_host = false;
  return made;
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance,
                         testing::Values(maker("host", {}), host_with_rendezvous(), across_hosts()),
                         [](const auto& made) { return made.param.name; });

TEST(UcxTest, SaysWhichVersionAndTransports) {
  const auto transport = make_ucx_transport({});
  ASSERT_TRUE(transport.ok()) << transport.error().message;
  EXPECT_THAT((*transport)->description(),
              testing::MatchesRegex("ucx [0-9]+\\.[0-9]+\\.[0-9]+ \\(able to use .*tcp.*\\)"));
}

TEST(UcxTest, ATransportThatUcxLacksIsAnError) {
  const auto transport = make_ucx_transport({.transports = "no_such_transport"});
  EXPECT_FALSE(transport.ok());
}

}  // namespace
}  // namespace kolo::test
