// What becomes of a call when etcd does not answer, over an Http that answers what a test wants.
#include "tutti/store/etcd/api.h"

#include <gmock/gmock.h>

#include <functional>

namespace tutti::etcd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Le;

constexpr std::size_t kTooMany = 1000;  // here a call that is repeated without end ends after all

class FakeHttp final : public Http {
 public:
  using Answer = std::function<Result<Response>(std::size_t call)>;                 // 1 for the first
  using Stream = std::function<Result<bool>(std::size_t call, const Http::Line&)>;  // likewise
  FakeHttp(std::vector<std::string>& urls, Answer answer, Stream stream)
      : urls_(urls), answer_(std::move(answer)), stream_(std::move(stream)) {}

  Result<Response> post(const std::string& url, const std::string&, const std::string&, Deadline) override {
    urls_.push_back(url);
    if (urls_.size() > kTooMany) return Error{.code = Code::kInternal, .detail = "asked without end"};
    return answer_(urls_.size());
  }
  Result<bool> stream(const std::string& url, const std::string&, const std::string&, const Line& line,
                      Deadline) override {
    urls_.push_back(url);
    if (urls_.size() > kTooMany) return Error{.code = Code::kInternal, .detail = "asked without end"};
    return stream_(urls_.size(), line);
  }

 private:
  std::vector<std::string>& urls_;
  const Answer answer_;
  const Stream stream_;
};

class EtcdGateway : public testing::Test {
 protected:
  Gateway gateway(std::vector<std::string> endpoints, FakeHttp::Answer answer) {
    return {std::make_unique<FakeHttp>(urls_, std::move(answer), nullptr), std::move(endpoints)};
  }
  Gateway gateway_of_user(FakeHttp::Answer answer) {
    return {std::make_unique<FakeHttp>(urls_, std::move(answer), nullptr), {"http://a"}, "user", "password"};
  }
  Gateway watcher(std::vector<std::string> endpoints, FakeHttp::Stream stream) {
    return {std::make_unique<FakeHttp>(urls_, nullptr, std::move(stream)), std::move(endpoints)};
  }
  std::vector<std::string> urls_;  // that were asked
  const Transaction change_{.compare = {{Compare::What::kAbsent, "k"}}, .success = {Put{"k", "v"}}};
};

const Response kDone{200, R"({"header":{"revision":"7"},"succeeded":true})"};
const Response kToken{200, R"({"token":"t"})"};
const Response kBadToken{401, R"({"error":"etcdserver: invalid auth token","code":16})"};
const Response kNoLeader{503, R"({"error":"etcdserver: no leader","code":14})"};

Error lost() { return Error{.code = Code::kPeerLost, .detail = "Recv failure: Connection reset by peer"}; }

TEST_F(EtcdGateway, AChangeWhoseAnswersAreLostIsRepeatedWithPausesUntilItsDeadline) {
  auto etcd = gateway({"http://a"}, [](std::size_t) { return lost(); });
  const auto answer = etcd.transact(change_, 0, Deadline::after_seconds(0.25));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kTimeout);
  EXPECT_THAT(to_string(answer.error()), HasSubstr("etcd at http://a cannot be reached (Recv failure"));
  EXPECT_THAT(urls_.size(), Le(4u)) << "a pause of 100 ms after each";
}

TEST_F(EtcdGateway, WithoutALeaderItIsTheSame) {
  auto etcd = gateway({"http://a"}, [](std::size_t) { return kNoLeader; });
  const auto answer = etcd.transact(change_, 0, Deadline::after_seconds(0.25));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kTimeout);
  EXPECT_THAT(to_string(answer.error()), HasSubstr("no leader"));
  EXPECT_THAT(urls_.size(), Le(4u));
}

TEST_F(EtcdGateway, AChangeIsRetriedAtTheNextEndpoint) {
  auto etcd = gateway({"http://a", "http://b"},
                      [](std::size_t call) { return call == 1 ? Result<Response>(lost()) : Result<Response>(kDone); });
  const auto answer = etcd.transact(change_, 0, Deadline::after_seconds(60));
  ASSERT_TRUE(answer.ok()) << to_string(answer.error());
  EXPECT_TRUE(answer->succeeded);
  EXPECT_EQ(answer->revision, 7);
  EXPECT_THAT(urls_, ElementsAre("http://a/v3/kv/txn", "http://b/v3/kv/txn"));
}

TEST_F(EtcdGateway, NoEndpointIsAskedAfterTheDeadline) {
  auto etcd = gateway({"http://a"}, [](std::size_t) { return kDone; });
  const auto answer = etcd.transact(change_, 0, Deadline::after_seconds(0));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kTimeout);
  EXPECT_THAT(urls_, ElementsAre());
}

TEST_F(EtcdGateway, APermanentErrorIsNotRetried) {
  auto etcd = gateway({"http://a", "http://b"}, [](std::size_t) { return Response{404, "not found"}; });
  const auto answer = etcd.transact(change_, 0, Deadline::after_seconds(60));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kRefused);
  EXPECT_EQ(urls_.size(), 1u);
}

TEST_F(EtcdGateway, AnExpiredTokenIsReplacedByANewOne) {
  auto etcd = gateway_of_user([](std::size_t call) { return call == 3 ? kBadToken : call % 3 == 1 ? kToken : kDone; });
  EXPECT_TRUE(etcd.transact(change_, 0, Deadline::after_seconds(60)).ok());
  EXPECT_TRUE(etcd.transact(change_, 0, Deadline::after_seconds(60)).ok());
  EXPECT_THAT(urls_, ElementsAre("http://a/v3/auth/authenticate", "http://a/v3/kv/txn", "http://a/v3/kv/txn",
                                 "http://a/v3/auth/authenticate", "http://a/v3/kv/txn"));
}

TEST_F(EtcdGateway, ANewTokenThatIsRefusedIsAnError) {
  auto etcd = gateway_of_user([](std::size_t call) { return call % 2 == 1 ? kToken : kBadToken; });
  const auto answer = etcd.transact(change_, 0, Deadline::after_seconds(60));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kRefused);
  EXPECT_EQ(urls_.size(), 2u);
}

TEST_F(EtcdGateway, AWatchThatIsLostIsRetriedAtTheNextEndpoint) {
  auto etcd = watcher({"http://a", "http://b"}, [](std::size_t call, const Http::Line& line) -> Result<bool> {
    if (call == 1) return lost();
    return !line(R"({"result":{"events":[{"kv":{"mod_revision":"9"}}]}})");
  });
  const auto changed = etcd.await_change("k", false, Gateway::Change::kPut, 8, Deadline::after_seconds(60));
  ASSERT_TRUE(changed.ok()) << to_string(changed.error());
  EXPECT_EQ(*changed, 9);
  EXPECT_THAT(urls_, ElementsAre("http://a/v3/watch", "http://b/v3/watch"));
}

TEST_F(EtcdGateway, AWatchWithoutAnEndpointPausesUntilItsDeadline) {
  auto etcd = watcher({"http://a"}, [](std::size_t, const Http::Line&) { return lost(); });
  const auto changed = etcd.await_change("k", false, Gateway::Change::kPut, 8, Deadline::after_seconds(0.25));
  ASSERT_TRUE(changed.ok()) << to_string(changed.error());
  EXPECT_EQ(*changed, std::nullopt);
  EXPECT_THAT(urls_.size(), Le(4u)) << "a pause of 100 ms after each";
}

TEST_F(EtcdGateway, AWatchFromACompactedRevisionIsAnError) {
  auto etcd = watcher({"http://a"}, [](std::size_t, const Http::Line& line) -> Result<bool> {
    return !line(R"({"result":{"canceled":true,"cancel_reason":"compacted"}})");
  });
  const auto changed = etcd.await_change("k", false, Gateway::Change::kPut, 8, Deadline::after_seconds(60));
  ASSERT_FALSE(changed.ok());
  EXPECT_THAT(to_string(changed.error()), HasSubstr("compacted"));
  EXPECT_EQ(urls_.size(), 1u);
}

}  // namespace
}  // namespace tutti::etcd
