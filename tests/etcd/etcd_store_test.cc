// The conformance suite of stores against a real etcd, and what is special to etcd: endpoints that fail, answers that
// are lost, the lease, the refusals.
#include "tutti/store/etcd/etcd_store.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstdio>

#include "tests/conformance/store_conformance.h"
#include "tests/etcd/cutting_proxy.h"
#include "tests/etcd/etcd_server.h"
#include "tests/harness/reserved_port.h"
#include "tutti/store/etcd/api.h"
#include "tutti/store/server/server.h"

namespace tutti {
namespace {

using testing::HasSubstr;

Deadline soon() { return Deadline::after_seconds(90); }

EtcdServer& etcd_server() {
  static EtcdServer server = EtcdServer::start().or_throw();
  return server;
}

EtcdOptions new_job() {
  static std::atomic<int> jobs = 0;
  return {.endpoints = etcd_server().endpoint(), .prefix = "/tutti/job" + std::to_string(++jobs)};
}

template <class T>
std::string text_of(const T& result) {
  return result.ok() ? "ok" : to_string(result.error());
}

class EtcdWorld : public StoreWorld {
 public:
  std::unique_ptr<Store> open() override { return connect_etcd(job_, soon()).or_throw(); }

 private:
  const EtcdOptions job_ = new_job();
};

const StoreMaker kEtcd{"Etcd", [] { return std::make_unique<EtcdWorld>(); }};
INSTANTIATE_TEST_SUITE_P(Etcd, StoreConformance, testing::Values(kEtcd, prefixed(kEtcd)), name_of_store);

TEST(EtcdStore, JobsDoNotMeet) {
  EtcdOptions one = new_job(), other = new_job();
  other.prefix = one.prefix + "0";  // a name that begins with the other's
  const auto a = connect_etcd(one, soon()).or_throw(), b = connect_etcd(other, soon()).or_throw();
  a->set("k", "a").or_throw();
  b->set("k", "b").or_throw();
  EXPECT_EQ(a->num_keys().or_throw(), 1);
  EXPECT_EQ(a->get("k", soon()).or_throw(), "a");
}

TEST(EtcdStore, ManyKeysInOneCall) {
  const auto store = connect_etcd(new_job(), soon()).or_throw();
  std::vector<std::string> keys, values;
  for (int i = 0; i < 1001; ++i) keys.push_back("k" + std::to_string(i)), values.push_back(std::to_string(i));
  store->multi_set(keys, values).or_throw();
  EXPECT_EQ(store->multi_get(keys, soon()).or_throw(), values);
  store->multi_set({"twice", "twice"}, {"1", "2"}).or_throw();
  EXPECT_EQ(store->get("twice", soon()).or_throw(), "2");
}

TEST(EtcdStore, ContinuesWithTheEndpointThatIsRunning) {
  EtcdOptions job = new_job();
  const test::ReservedPort port;
  const std::string nobody = port.address();
  job.endpoints = nobody + "," + job.endpoints;
  const auto store = connect_etcd(job, soon()).or_throw();
  EXPECT_EQ(store->add("n", 1).or_throw(), 1);
}

TEST(EtcdStore, LostAnswersChangeNothingTwice) {
  EtcdOptions job = new_job();
  CuttingProxy proxy(etcd_server().port(), "/v3/kv/txn", 3);
  job.endpoints = proxy.endpoint();
  {
    const auto store = connect_etcd(job, soon()).or_throw();
    for (int i = 1; i <= 30; ++i) EXPECT_EQ(store->add("n", 1).or_throw(), i);
    for (int i = 0; i < 30; ++i) store->push("q", std::to_string(i)).or_throw();
    for (int i = 0; i < 30; ++i) EXPECT_EQ(store->pop("q", soon()).or_throw(), std::to_string(i));
    for (int i = 0; i < 30; ++i) store->append("log", "x").or_throw();
    EXPECT_EQ(store->get("log", soon()).or_throw(), std::string(30, 'x'));
    for (int i = 0; i < 10; ++i)
      EXPECT_TRUE(store->compare_set("c" + std::to_string(i), std::nullopt, "mine").or_throw().stored);
    for (int i = 0; i < 3; ++i) store->barrier("b", 0, 1, soon()).or_throw();
  }
  EXPECT_GE(proxy.cuts(), 40);
}

TEST(EtcdStore, TheKeysOfAJobExpireAfterItsLastClient) {
  EtcdOptions job = new_job();
  job.lease = std::chrono::seconds(5);
  std::int64_t revision = 0;
  const auto gateway = etcd::Gateway::create(job).or_throw();
  {
    const auto store = connect_etcd(job, soon()).or_throw();
    store->set("k", "v").or_throw();
    ASSERT_EQ(gateway->range({.key = job.prefix + "/", .prefix = true}, revision, soon()).or_throw().count, 3)
        << "the value, the lease, the handle's mark";
  }
  EXPECT_TRUE(gateway->await_change(job.prefix + "/v", true, etcd::Gateway::Change::kDelete, revision, soon())
                  .or_throw()
                  .has_value());
  EXPECT_EQ(gateway->range({.key = job.prefix + "/", .prefix = true}, revision, soon()).or_throw().count, 0);
}

TEST(EtcdStore, TheLeaseIsRenewedWhileAHandleExists) {
  EtcdOptions job = new_job();
  job.lease = std::chrono::seconds(5);
  const auto store = connect_etcd(job, soon()).or_throw();
  store->set("k", "v").or_throw();
  EXPECT_FALSE(store->get("nothing happens for longer than the lease", Deadline::after_seconds(8)).ok());
  EXPECT_EQ(store->get("k", soon()).or_throw(), "v");
}

TEST(EtcdStore, AnEndpointWithoutAServerIsUnreachable) {
  EtcdOptions job = new_job();
  const test::ReservedPort nobody;
  job.endpoints = nobody.address();
  const auto store = connect_etcd(job, Deadline::after_seconds(0.3));
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, Code::kUnreachable);
  EXPECT_THAT(text_of(store), HasSubstr("etcd at http://" + job.endpoints + " cannot be reached ("));
  EXPECT_THAT(text_of(store), HasSubstr("(hint: is etcd running there, and does it listen at that address"));
}

TEST(EtcdStore, AnotherProgramThere) {
  const auto server =
      StoreServer::start({.host = "127.0.0.1"}, {.secret = transport::Secret::random(), .job = "job"}).or_throw();
  EtcdOptions job = new_job();
  job.endpoints = to_string(server->address());
  const auto store = connect_etcd(job, Deadline::after_seconds(0.5));
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(text_of(store), HasSubstr("etcd at http://" + job.endpoints + " cannot be reached ("));
}

TEST(EtcdStore, WrongOptionsAreRejected) {
  EXPECT_THAT(text_of(connect_etcd({.endpoints = " , ", .prefix = "/x"}, soon())), HasSubstr("no etcd was named"));
  EXPECT_THAT(text_of(connect_etcd({.endpoints = "a:1"}, soon())), HasSubstr("need a prefix of their own"));
  EXPECT_THAT(text_of(connect_etcd({.endpoints = "a:1", .prefix = "/x", .lease = std::chrono::seconds(1)}, soon())),
              HasSubstr("a lease of 1 s was asked for in etcd (hint: at least 5 s"));
}

TEST(EtcdStore, AUserWhomEtcdDoesNotKnow) {
  EtcdOptions job = new_job();
  job.user = "nobody";
  job.password = "x";
  const auto store = connect_etcd(job, soon());
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(text_of(store), HasSubstr("etcd denies access: etcdserver: authentication is not enabled"));
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  if (!tutti::EtcdServer::installed()) {
    std::puts("skipped: there is no etcd (Debian: apt-get install etcd-server)");
    return 77;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
