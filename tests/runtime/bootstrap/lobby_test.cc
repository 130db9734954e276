#include "runtime/bootstrap/lobby.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <vector>

namespace kolo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

/// A lobby whose first world has the processes 0 … size − 1.
Lobby lobby_of(int size, int least) {
  Lobby lobby(least);
  for (int process = 0; process < size; ++process) lobby.start(process);
  for (int process = 0; process < size; ++process) lobby.arrive(process);
  EXPECT_TRUE(lobby.convene());
  return lobby;
}

void arrive(Lobby& lobby, std::initializer_list<int> processes) {
  for (const int process : processes) lobby.arrive(process);
}

TEST(Lobby, TheFirstWorldWaitsForAllThatWereStarted) {
  Lobby lobby(1);
  for (const int process : {0, 1, 2}) lobby.start(process);
  EXPECT_FALSE(lobby.convene());
  arrive(lobby, {2, 0});
  EXPECT_FALSE(lobby.convene());
  EXPECT_THAT(lobby.missing(), ElementsAre(1));
  lobby.arrive(1);
  EXPECT_THAT(lobby.convene(), Optional(ElementsAre(0, 1, 2)));
  EXPECT_EQ(lobby.generation(), 1);
  EXPECT_FALSE(lobby.convene()) << "nobody waits";
}

TEST(Lobby, AProcessThatEndsBeforeTheFirstWorldIsNotWaitedFor) {
  Lobby lobby(1);
  for (const int process : {0, 1}) lobby.start(process);
  lobby.arrive(0);
  lobby.end(1, false);
  EXPECT_THAT(lobby.convene(), Optional(ElementsAre(0)));
}

TEST(Lobby, SurvivorsKeepTheirOrder) {
  Lobby lobby = lobby_of(4, 2);
  lobby.end(1, false);
  arrive(lobby, {3, 0});
  EXPECT_FALSE(lobby.convene());
  EXPECT_THAT(lobby.missing(), ElementsAre(2));
  lobby.arrive(2);
  EXPECT_THAT(lobby.convene(), Optional(ElementsAre(0, 2, 3)));
  EXPECT_EQ(lobby.generation(), 2);
}

TEST(Lobby, AWorldIsNotSmallerThanTheLeast) {
  Lobby lobby = lobby_of(3, 2);
  lobby.end(0, false);
  lobby.end(2, false);
  lobby.arrive(1);
  EXPECT_FALSE(lobby.convene());
  EXPECT_EQ(lobby.lacking(), 1);
  lobby.start(3);
  lobby.arrive(3);
  EXPECT_THAT(lobby.convene(), Optional(ElementsAre(1, 3)));
}

TEST(Lobby, NewcomersWaitForAllMembersAndComeLast) {
  Lobby lobby = lobby_of(2, 1);
  for (const int process : {5, 4}) lobby.start(process);
  arrive(lobby, {5, 4});
  EXPECT_FALSE(lobby.convene()) << "the members train";
  EXPECT_EQ(lobby.newcomers(), 2);
  EXPECT_FALSE(lobby.is_member(4));
  arrive(lobby, {1, 0});
  EXPECT_THAT(lobby.convene(), Optional(ElementsAre(0, 1, 4, 5)));
  EXPECT_EQ(lobby.newcomers(), 0);
  EXPECT_TRUE(lobby.is_member(4));
}

TEST(Lobby, NobodyWaitsForANewProcessThatHasNotCome) {
  Lobby lobby = lobby_of(2, 1);
  lobby.end(1, false);
  lobby.start(2);
  lobby.arrive(0);
  EXPECT_THAT(lobby.convene(), Optional(ElementsAre(0)));
}

TEST(Lobby, WhoLeavesBeforeTheWorldStandsIsNotInIt) {
  Lobby lobby = lobby_of(3, 1);
  arrive(lobby, {0, 1});
  lobby.leave(1);  // its connection is gone, perhaps its process soon
  lobby.arrive(2);
  EXPECT_FALSE(lobby.convene());
  lobby.end(1, false);
  EXPECT_THAT(lobby.convene(), Optional(ElementsAre(0, 2)));
}

TEST(Lobby, AWorldIsLostWithItsLastMember) {
  Lobby lobby = lobby_of(2, 1);
  lobby.start(2);
  lobby.arrive(2);
  lobby.end(0, false);
  EXPECT_FALSE(lobby.is_lost());
  lobby.end(1, false);
  EXPECT_TRUE(lobby.is_lost()) << "the new process knows nothing";
}

TEST(Lobby, AWorldThatHasDoneItsWorkIsNotLost) {
  Lobby lobby = lobby_of(2, 1);
  lobby.end(0, true);
  lobby.end(1, false);
  EXPECT_FALSE(lobby.is_lost());
  EXPECT_EQ(lobby.done(), 1);
  EXPECT_TRUE(lobby.has_lost());
}

TEST(Lobby, OnceOneIsDoneTheRestNeedNotBeMany) {
  Lobby lobby = lobby_of(3, 2);
  lobby.end(2, true);
  lobby.end(1, false);
  lobby.arrive(0);
  EXPECT_THAT(lobby.convene(), Optional(ElementsAre(0)));
}

TEST(Lobby, NewcomersMakeNoWorldOnceAllIsDone) {
  Lobby lobby = lobby_of(2, 1);
  lobby.start(2);
  lobby.arrive(2);
  lobby.end(0, true);
  EXPECT_FALSE(lobby.convene()) << "the other member may need one";
  lobby.end(1, true);
  EXPECT_FALSE(lobby.convene());
  EXPECT_EQ(lobby.generation(), 1);
}

TEST(Lobby, NothingIsMissingWhileNobodyWaits) { EXPECT_THAT(lobby_of(3, 1).missing(), IsEmpty()); }

}  // namespace
}  // namespace kolo
