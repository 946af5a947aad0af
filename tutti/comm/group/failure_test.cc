#include "tutti/comm/group/failure.h"

#include <gmock/gmock.h>

#include <thread>

#include "tests/harness/limits.h"
#include "tests/harness/slow_store.h"

namespace tutti::comm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Evidence = Process::Evidence;

// Rank 0 of two, on different hosts.
struct Rank0 : Process {
  explicit Rank0(Store* owned_store) {
    world = {{.node = 0}, {.node = 1}};
    store.reset(owned_store);
  }
};

class GroupFailure : public testing::Test {
 protected:
  explicit GroupFailure(bool store_answers = true) {
    if (store_answers) store_->open();
  }
  Result<std::string> in_store(const std::string& key) { return store_->fast().get(key, Deadline::after_seconds(0)); }

  test::SlowStore* const store_ = new test::SlowStore;
  Rank0 process_{store_};
  const GroupSpec spec_{.name = "pair", .id = 7, .rank = 0, .global_ranks = {0, 1}};
  const Peers peers_{process_, spec_};
  Diagnosis diagnosis_{spec_, peers_, store_, [] {}};
  int stops_ = 0;
  std::vector<std::string> ends_;
  std::thread::id ended_by_;
  Failure failure_{process_,
                   spec_,
                   peers_,
                   diagnosis_,
                   {.stop = [this] { ++stops_; },
                    .end =
                        [this](const Status& error) {
                          ends_.push_back(error.error().detail);
                          ended_by_ = std::this_thread::get_id();
                        }}};
};

Trouble broken(const std::string& detail = "broken") {
  return {Error{.code = Code::kAborted, .detail = detail, .operation = "barrier #1"}, Evidence::kCause};
}

TEST_F(GroupFailure, TheFirstErrorWins) {
  EXPECT_FALSE(failure_.is_ended());
  EXPECT_TRUE(failure_.status().ok());
  EXPECT_EQ(to_string(failure_.fail(broken()).error()), "Aborted: barrier #1 on group pair, rank 0: broken");
  EXPECT_EQ(failure_.fail(broken("another")).error().detail, "broken");
  EXPECT_EQ(failure_.status().error().detail, "broken");
  EXPECT_TRUE(failure_.is_ended());
  EXPECT_EQ(stops_, 1);
  EXPECT_THAT(ends_, ElementsAre("broken"));
}

TEST_F(GroupFailure, AllThreadsGetOneError) {
  std::string texts[8];
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] { texts[i] = failure_.fail(broken(std::to_string(i))).error().detail; });
  for (auto& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  EXPECT_THAT(ends_, ElementsAre(texts[0]));
}

TEST_F(GroupFailure, TheStoreLearnsOfTheFirstErrorOfTheGroupAndOfTheJob) {
  const std::string text = to_string(failure_.fail(broken()).error());
  EXPECT_EQ(in_store("error/7").or_throw(), text);
  EXPECT_EQ(in_store("error").or_throw(), text);
}

TEST_F(GroupFailure, AnEchoGetsTheCauseThatTheOtherRankReported) {
  store_->fast().set("error/7", "PeerLost: rank 1 saw rank 2 die").or_throw();
  const Trouble echo{Error{.code = Code::kAborted, .detail = "has ended the group", .peer = 1}, Evidence::kEcho};
  EXPECT_EQ(failure_.fail(echo).error().cause, "PeerLost: rank 1 saw rank 2 die");
}

TEST_F(GroupFailure, ALostPeerIsNotWaitedForLater) {
  const Status ended = failure_.fail({Error{.code = Code::kPeerLost, .detail = "closed the connection", .peer = 1}});
  EXPECT_THAT(process_.lost_ranks(), ElementsAre(1));
  EXPECT_THAT(ended.error().lost, ElementsAre(1));
}

TEST_F(GroupFailure, AnotherRankOfTheHostEndsTheGroup) {
  std::atomic<std::uint32_t> word{0};
  failure_.set_poison_word(&word);
  EXPECT_FALSE(failure_.is_ended() || failure_.ended_elsewhere());
  word = 1 + 1;
  EXPECT_TRUE(failure_.is_ended());
  EXPECT_FALSE(failure_.has_begun());
  const auto trouble = failure_.ended_elsewhere();
  EXPECT_EQ(trouble->error.peer, 1);
  EXPECT_EQ(trouble->evidence, Evidence::kEcho);
}

TEST_F(GroupFailure, TheOtherRanksOfTheHostSeeTheMarkOfTheFirst) {
  std::atomic<std::uint32_t> word{0};
  failure_.set_poison_word(&word);
  (void)failure_.fail(broken());
  EXPECT_EQ(word.load(), 1u);
}

// The driver reports an error while the store gives no answer: it returns, and a thread waits for the store.
class GroupFailureWithASlowStore : public GroupFailure {
 protected:
  GroupFailureWithASlowStore() : GroupFailure(false) {}
};

TEST_F(GroupFailureWithASlowStore, TheDriverDoesNotWaitForTheStore) {
  failure_.fail_in_background(broken());
  EXPECT_TRUE(failure_.has_begun());
  EXPECT_EQ(stops_, 1) << "no call goes on";
  EXPECT_THAT(ends_, IsEmpty()) << "the cause is not known yet";
  failure_.fail_in_background(broken("another"));
  store_->open();
  EXPECT_EQ(failure_.status().error().detail, "broken");
  EXPECT_THAT(ends_, ElementsAre("broken"));
}

TEST_F(GroupFailureWithASlowStore, WithoutAnotherThreadTheSpareOneWaitsForTheStore) {
  process_.spare_thread.keep_thread().or_throw();
  {
    const test::NoThreads none;
    failure_.fail_in_background(broken());
  }
  store_->open();
  EXPECT_EQ(failure_.status().error().detail, "broken");
  EXPECT_THAT(ends_, ElementsAre("broken"));
  EXPECT_NE(ended_by_, std::this_thread::get_id());
}

}  // namespace
}  // namespace tutti::comm
