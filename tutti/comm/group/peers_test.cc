#include "tutti/comm/group/peers.h"

#include <gmock/gmock.h>

#include "tutti/store/memory_store.h"

namespace tutti::comm {
namespace {

using testing::HasSubstr;

// Ranks 0 and 1 share a host, rank 2 is on another one; all three are objects of this process.
class PeersOfRank0 : public testing::Test {
 protected:
  PeersOfRank0() {
    for (int r = 0; r < 3; ++r) {
      processes_[r].rank = r;
      processes_[r].world = {{.node = 0, .local_rank = 0}, {.node = 0, .local_rank = 1}, {.node = 2, .local_rank = 0}};
      processes_[r].store = table_.clone(Deadline::after_seconds(1)).or_throw();
      specs_[r] = {.name = "g", .id = 7, .rank = r, .global_ranks = {0, 1, 2}};
    }
    auto hosts = transport::Host::inproc(2, std::size_t(64) << 20).or_throw();
    for (int r = 0; r < 2; ++r) processes_[r].host = std::move(hosts[std::size_t(r)]);
  }
  MemoryStore table_;
  Process processes_[3];
  GroupSpec specs_[3];
};

TEST_F(PeersOfRank0, ItsHost) {
  const Peers peers(processes_[0], specs_[0]);
  EXPECT_TRUE(peers.is_here(1));
  EXPECT_FALSE(peers.is_here(2));
  EXPECT_FALSE(peers.are_all_here());
  EXPECT_FALSE(peers.departure_of(1) || peers.is_anybody_lost() || peers.has_left(1));
}

TEST_F(PeersOfRank0, ARankThatDies) {
  const Peers peers(processes_[0], specs_[0]);
  processes_[1].host->die();
  const auto departure = peers.departure_of(1);
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->error.peer, 1);
  EXPECT_THAT(departure->error.detail, HasSubstr("has exited"));
  EXPECT_EQ(departure->evidence, Process::Evidence::kLoss);
  EXPECT_TRUE(peers.is_anybody_lost());
  EXPECT_FALSE(peers.has_left(1));
}

TEST_F(PeersOfRank0, ARankThatLeavesIsNotLost) {
  const Peers peers(processes_[0], specs_[0]);
  processes_[1].host->goodbye(false);
  EXPECT_TRUE(peers.has_left(1));
  EXPECT_FALSE(peers.is_anybody_lost());
  EXPECT_EQ(peers.departure_of(1)->evidence, Process::Evidence::kCause) << "nothing else led to it";
}

TEST_F(PeersOfRank0, ALinkThatEndsIsExplainedByTheDepartureOfItsPeer) {
  const Peers peers(processes_[0], specs_[0]);
  const Error ended{.code = Code::kPeerLost, .detail = "closed the link", .operation = "barrier #3", .peer = 1};
  EXPECT_EQ(peers.explain(ended).error.detail, "closed the link");
  processes_[1].host->goodbye(true);
  const Trouble trouble = peers.explain(ended);
  EXPECT_THAT(trouble.error.detail, HasSubstr("left because of an exception"));
  EXPECT_EQ(trouble.error.operation, "barrier #3");
  EXPECT_EQ(peers.explain(Error{.code = Code::kMismatch}).evidence, Process::Evidence::kCause);
}

TEST_F(PeersOfRank0, ARankOfAnotherHostLeavesANote) {
  const Peers peers(processes_[0], specs_[0]), theirs(processes_[2], specs_[2]);
  Error error{.code = Code::kPeerLost, .detail = "closed the connection", .peer = 2};
  peers.add_note_of_leaving(error);
  EXPECT_EQ(error.detail, "closed the connection") << "there is no note yet";
  EXPECT_FALSE(peers.has_left(2));
  theirs.announce_leaving(/*unwinding=*/false);
  EXPECT_TRUE(peers.has_left(2));
  peers.add_note_of_leaving(error);
  EXPECT_EQ(error.detail, "has left and will not take part");
  EXPECT_EQ(error.hint, "do all ranks make the same number of calls?");
}

}  // namespace
}  // namespace tutti::comm
