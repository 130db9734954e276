// The connection to a launcher's PMI: by descriptor, by port, and all kinds of answers.
#include "runtime/bootstrap/pmi_client.h"

#include "runtime/bootstrap/socket.h"
#include "tests/support/deadlines.h"
#include "tests/support/pmi_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <utility>

namespace kolo::pmi_client_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

Environment environment_of(Environment::Variables variables) {
  return Environment(std::move(variables));
}

Error refusal(const Environment& environment, Deadline deadline = later()) {
  const auto client = PmiClient::connect(environment, deadline);
  EXPECT_FALSE(client.ok());
  return client.ok() ? Error() : client.error();
}

TEST(PmiClient, OnlyWhereALauncherOffersIt) {
  EXPECT_TRUE(offers_pmi(environment_of({{"PMI_FD", "6"}})));
  EXPECT_TRUE(offers_pmi(environment_of({{"PMI_PORT", "a:1"}})));
  EXPECT_FALSE(offers_pmi(Environment({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_FD", "x"}})));
  const Error none = refusal(Environment(Environment::Variables()));
  EXPECT_EQ(none.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(none.message, AllOf(HasSubstr("PMI_FD"), HasSubstr("mpirun of")));
}

TEST(PmiClient, VariablesMustMakeSense) {
  PmiServer server(2);
  using Changed = std::pair<const char*, const char*>;
  for (const auto& [name, value] : {Changed{"PMI_RANK", "2"}, Changed{"PMI_RANK", ""},
                                    Changed{"PMI_SIZE", "many"}, Changed{"PMI_FD", "1000000"}}) {
    auto variables = server.environment(0).variables();
    variables[name] = value;
    const Error error = refusal(Environment(variables));
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << name << value;
    EXPECT_THAT(error.message, HasSubstr("PMI_FD="));
  }
}

TEST(PmiClient, TheDescriptorStaysAsItIs) {
  PmiServer server(1);
  const int fd = *server.environment(0).get_int("PMI_FD");
  const int before = ::fcntl(fd, F_GETFL);
  for (int round = 0; round < 2; ++round) {
    const auto client = PmiClient::connect(server.environment(0), later());
    ASSERT_TRUE(client.ok()) << client.error().message;
    EXPECT_EQ((*client)->job(), "kvs_1_0");
    EXPECT_EQ((*client)->value_max(), 127U);
  }
  EXPECT_EQ(::fcntl(fd, F_GETFL), before);
}

TEST(PmiClient, StrangeGreetingsAreRefused) {
  for (const char* answer :
       {"SSH-2.0-OpenSSH_9.2\n", "\n", "cmd=barrier_out\n", "cmd=response_to_init rc=0\ncmd=x\n",
        "cmd=response_to_init rc=0\ncmd=maxes vallen_max=0\ncmd=my_kvsname kvsname=a\n",
        "cmd=response_to_init rc=0\ncmd=maxes vallen_max=1024\ncmd=my_kvsname\n"}) {
    PmiServer server(1, [&](int, const std::string& command) -> std::optional<std::string> {
      return command == "init" ? answer : "";
    });
    EXPECT_EQ(refusal(server.environment(0)).code, ErrorCode::kTransport) << answer;
  }
}

TEST(PmiClient, ALineWithoutAnEndIsNotReadForEver) {
  PmiServer server(1, [](int, const std::string&) { return std::string(100'000, 'x'); });
  EXPECT_THAT(refusal(server.environment(0)).message, HasSubstr("a line without an end"));
}

TEST(PmiClient, ASilentServerIsGivenUp) {
  PmiServer server(1, [](int, const std::string&) { return std::string(); });
  const Error error = refusal(server.environment(0), soon());
  EXPECT_EQ(error.code, ErrorCode::kTimeout);
  EXPECT_THAT(error.message, AllOf(HasSubstr("'response_to_init'"), HasSubstr("no answer")));
}

TEST(PmiClient, ABarrierMayEndInTheMidstOfAQuestion) {
  PmiServer server(1, [](int, const std::string& command) -> std::optional<std::string> {
    if (command == "barrier_in") return "";
    if (command == "publish_name") return "cmd=barrier_out\ncmd=publish_result rc=0\n";
    return std::nullopt;
  });
  const auto client = PmiClient::connect(server.environment(0), later());
  ASSERT_TRUE(client.ok()) << client.error().message;
  ASSERT_TRUE((*client)->enter_barrier(later()).ok());
  EXPECT_FALSE(*(*client)->await_barrier(soon()));
  EXPECT_TRUE((*client)->announce("a", later()).ok());
  EXPECT_TRUE(*(*client)->await_barrier(soon()));
}

/// Connects to a server for one process at a port; the server sends `told`.
Result<std::unique_ptr<PmiClient>> connect_by_port(const std::string& told) {
  auto listener = listen_at({"127.0.0.1", 0});
  EXPECT_TRUE(listener.ok());
  std::thread server([&] {
    pollfd comes{listener->fd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&comes, 1, 30'000), 1);
    const UniqueDescriptor fd(::accept(listener->fd.get(), nullptr, nullptr));
    EXPECT_TRUE(send_all(fd.get(), told, later()).ok());
    // Until the client has closed its connection.
    while (receive_some(fd.get(), later()).ok()) {
    }
  });
  auto client = PmiClient::connect(
      Environment({{"PMI_PORT", fmt::format("127.0.0.1:{}", listener->port)}, {"PMI_ID", "1"}}),
      later());
  if (client.ok()) {
    EXPECT_EQ((*client)->rank(), 1);
    EXPECT_EQ((*client)->size(), 3);
    (*client).reset();
  }
  server.join();
  return client;
}

TEST(PmiClient, ByPort) {
  constexpr const char* kGreeting =
      "cmd=response_to_init rc=0\ncmd=maxes vallen_max=1024\ncmd=my_kvsname kvsname=a\n";
  for (const char* who : {"cmd=initack\ncmd=set size=3\ncmd=set rank=1\ncmd=set debug=0\n",
                          "cmd=initack rc=0 rank=1 size=3 appnum=0\ncmd=set size=3\n"
                          "cmd=set rank=1\ncmd=set debug=0\n"}) {
    const auto client = connect_by_port(fmt::format("{}{}", who, kGreeting));
    EXPECT_TRUE(client.ok()) << client.error().message;
  }
  const auto strange =
      connect_by_port("cmd=initack\ncmd=set size=3\ncmd=set rank=3\ncmd=set debug=0\n");
  ASSERT_FALSE(strange.ok());
  EXPECT_THAT(strange.error().message, HasSubstr("tells rank 3 of 3"));
}

}  // namespace
}  // namespace kolo::pmi_client_test
