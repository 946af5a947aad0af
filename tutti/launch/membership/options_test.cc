#include "tutti/launch/membership/options.h"

#include <gmock/gmock.h>

namespace tutti::launch {
namespace {

using testing::HasSubstr;

RendezvousOptions read(const std::string& nnodes, const std::string& backend = "static",
                       const std::string& endpoint = "", const std::string& conf = "") {
  return parse_rendezvous(nnodes, backend, endpoint, conf).or_throw();
}
std::string refusal(const std::string& nnodes, const std::string& backend = "static", const std::string& endpoint = "",
                    const std::string& conf = "") {
  const auto options = parse_rendezvous(nnodes, backend, endpoint, conf);
  return options.ok() ? "" : to_string(options.error());
}

TEST(RendezvousOptions, NodesAreANumberOrARange) {
  EXPECT_EQ(read("").max, std::nullopt);
  EXPECT_EQ(read("3").min, 3);
  EXPECT_EQ(read("3").max, 3);
  EXPECT_EQ(read("1:4").min, 1);
  EXPECT_EQ(read("1:4").max, 4);
  for (const char* text : {"0", "2:1", "1:2:3", "x", ":", "1:", "100001"})
    EXPECT_THAT(refusal(text), HasSubstr(std::string("or MIN:MAX, not '") + text + "'")) << text;
}

TEST(RendezvousOptions, APlaceHasThePortOfItsBackend) {
  EXPECT_EQ(read("2", "elastic", "10.0.0.1").endpoint, "10.0.0.1:29400");
  EXPECT_EQ(read("2", "c10d", "host:1234").endpoint, "host:1234");
  EXPECT_EQ(read("2", "etcd", "a,b:4001").endpoint, "a:2379,b:4001");
  EXPECT_EQ(read("2", "elastic", "[fd00::1]:7").endpoint, "[fd00::1]:7");
  EXPECT_THAT(refusal("2", "elastic"), HasSubstr("--rdzv-backend elastic needs --rdzv-endpoint"));
  EXPECT_THAT(refusal("2", "etcd"), HasSubstr("--rdzv-backend etcd needs --rdzv-endpoint"));
  EXPECT_THAT(refusal("2", "elastic", "a,b"), HasSubstr("names several endpoints"));
  EXPECT_THAT(refusal("2", "elastic", "a:99999999"), HasSubstr("'a:99999999' is not an endpoint"));
  EXPECT_THAT(refusal("1:2", "elastic", "10.0.0.1:0"),
              AllOf(HasSubstr("--rdzv-endpoint '10.0.0.1:0' asks for any free port, which the other nodes cannot know"),
                    HasSubstr("for example 10.0.0.1:29400; one node alone needs none: --standalone")));
}

// torchrun's idiom for several jobs of one node on one host.
TEST(RendezvousOptions, OneNodeMayHaveAnyPort) {
  for (const char* nnodes : {"", "1", "1:1"}) {
    const RendezvousOptions options = read(nnodes, "c10d", "localhost:0", "timeout=7");
    EXPECT_EQ(options.backend, RendezvousBackend::kStatic);
    EXPECT_EQ(options.endpoint, "");
    EXPECT_EQ(options.join_timeout, std::chrono::seconds(7));
  }
}

TEST(RendezvousOptions, ABackendIsOneOfThree) {
  EXPECT_EQ(read("2", "etcd", "a").backend, RendezvousBackend::kEtcd);
  EXPECT_THAT(refusal("2", "elastik"), HasSubstr("'elastik' is not known (hint: did you mean elastic?)"));
  EXPECT_THAT(refusal("2", "etcd-v2"), HasSubstr("--rdzv-backend etcd uses the current one, v3"));
}

TEST(RendezvousOptions, AKeyCountsOrIsReportedOrIsRefused) {
  const auto options = read("1:2", "elastic", "a",
                            "join_timeout=60, last_call_timeout=500ms,is_host=true,"
                            "keep_alive_interval=2,keep_alive_max_attempt=4");
  EXPECT_EQ(options.join_timeout, std::chrono::seconds(60));
  EXPECT_EQ(options.last_call, std::chrono::milliseconds(500));
  EXPECT_EQ(options.is_host, true);
  EXPECT_EQ(options.lost_after, std::chrono::seconds(8));
  EXPECT_TRUE(options.failover);
  EXPECT_FALSE(read("1:2", "static", "", "failover=0").failover);
  EXPECT_EQ(read("2", "static", "", "timeout=7").join_timeout, std::chrono::seconds(7));
  const auto refused = [](const std::string& conf) { return refusal("2", "elastic", "a", conf); };
  EXPECT_THAT(refused("join_timeot=3"), HasSubstr("--rdzv-conf join_timeot has no meaning for tutti run (hint: did you "
                                                  "mean join_timeout?)"));
  EXPECT_THAT(refused("store_type=file"), HasSubstr("has no meaning for tutti run"));
  EXPECT_EQ(read("1:2", "elastic", "a", "read_timeout=3,close_timeout=5,timeout=7").without_effect,
            (std::vector<std::string>{"read_timeout of --rdzv-conf", "close_timeout of --rdzv-conf"}));
  EXPECT_THAT(refused("join_timeout"), HasSubstr("needs KEY=VALUE"));
  EXPECT_THAT(refused("join_timeout=soon"), HasSubstr("join_timeout needs a time, not 'soon'"));
  EXPECT_THAT(refused("last_call_timeout=0"), HasSubstr("last_call_timeout needs more than 0 seconds, not '0'"));
  EXPECT_THAT(refused("last_call_timeout=-1"), HasSubstr("last_call_timeout needs a time, not '-1'"));
  EXPECT_THAT(refused("keep_alive_max_attempt=0"), HasSubstr("keep_alive_max_attempt needs a number, not '0'"));
  EXPECT_THAT(refused("is_host=perhaps"), HasSubstr("is_host is true or false, not 'perhaps'"));
  EXPECT_THAT(refusal("2", "static", "", "is_host=1"), HasSubstr("belongs to --rdzv-backend elastic"));
  EXPECT_THAT(refused("failover=off"), HasSubstr("failover is true or false, not 'off'"));
  EXPECT_THAT(refusal("2", "etcd", "a", "failover=0"), HasSubstr("failover is not for --rdzv-backend etcd"));
}

TEST(RendezvousOptions, WhatEtcdMayAskFor) {
  const auto options = read("2", "etcd", "https://a:1", "user=me,cacert=/ca,ssl_cert=/c,ssl_cert_key=/k");
  EXPECT_EQ(options.etcd.user, "me");
  EXPECT_EQ(options.etcd.ca_file, "/ca");
  EXPECT_EQ(options.etcd.certificate_file, "/c");
  EXPECT_EQ(options.etcd.key_file, "/k");
  EXPECT_EQ(read("2", "etcd", "a", "cert=/c,key=/k").etcd.key_file, "/k");
  EXPECT_THAT(refusal("2", "etcd", "a", "ssl_cert=/c"), HasSubstr("ssl_cert and ssl_cert_key belong together"));
  EXPECT_THAT(refusal("2", "etcd", "a", "user="), HasSubstr("--rdzv-conf user is empty"));
  EXPECT_THAT(refusal("2", "elastic", "a", "user=me"), HasSubstr("user belongs to --rdzv-backend etcd"));
}

}  // namespace
}  // namespace tutti::launch
