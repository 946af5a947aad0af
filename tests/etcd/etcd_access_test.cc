// An etcd that asks who one is: by password, and by certificates over https.
#include <gmock/gmock.h>

#include <atomic>

#include "tests/etcd/etcd_server.h"
#include "tutti/store/etcd/etcd_store.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Deadline soon() { return Deadline::after_seconds(90); }

std::string refusal(EtcdOptions options) {
  const Deadline deadline = soon();
  const auto store = connect_etcd(std::move(options), deadline);
  EXPECT_FALSE(store.ok());
  if (store.ok()) return {};
  EXPECT_EQ(store.error().code, Code::kRefused);
  EXPECT_LT(deadline.waited(), 60) << "told at once, for no waiting mends it";
  return to_string(store.error());
}

class EtcdPasswords : public testing::Test {
 protected:
  // What an etcd remembers of a password is a token, which here lives for a second.
  EtcdPasswords() { etcd_.demand_passwords().or_throw(); }
  EtcdOptions as(const std::string& user, const std::string& password) const {
    return {.endpoints = etcd_.endpoint(), .prefix = "/tutti/job", .user = user, .password = password};
  }
  const EtcdServer etcd_ = EtcdServer::start({"--auth-token-ttl", "1"}).or_throw();
};

TEST_F(EtcdPasswords, AKnownUserContinuesAfterItsTokenExpires) {
  const auto store = connect_etcd(as("tutti", "of tutti"), soon()).or_throw();
  store->set("a", "1").or_throw();
  EXPECT_FALSE(store->get("nothing", Deadline::after_seconds(3)).ok());
  EXPECT_EQ(store->add("n", 1).or_throw(), 1);
  EXPECT_EQ(store->get("a", soon()).or_throw(), "1");
  const auto twin = store->clone(soon()).or_throw();
  EXPECT_EQ(twin->add("n", 1).or_throw(), 2);
  EXPECT_FALSE(store->get("nothing", Deadline::after_seconds(3)).ok()) << "a wait whose token is too old";
  forget_etcd_job(as("tutti", "of tutti"), soon()).or_throw();
}

TEST_F(EtcdPasswords, DeniedAccessIsReportedWithTheReason) {
  EXPECT_THAT(refusal(as("tutti", "of somebody")),
              AllOf(HasSubstr("etcd denies access: "), HasSubstr("authentication failed, invalid user ID or password"),
                    HasSubstr("(hint: give a user that may read and write the keys of the job, and the password)")));
  EXPECT_THAT(refusal(as("nobody", "of nobody")), HasSubstr("authentication failed, invalid user ID or password"));
  EXPECT_THAT(refusal(as("guest", "of guest")), HasSubstr("etcd denies access: etcdserver: permission denied"));
  EXPECT_THAT(refusal(as("", "")), HasSubstr("etcd denies access: etcdserver: user name is empty"));
}

class EtcdCertificates : public testing::Test {
 protected:
  void SetUp() override {
    if (!Certificates::installed()) GTEST_SKIP() << "there is no openssl";
    files_ = std::make_unique<Certificates>();
  }
  std::string file(const char* name) const { return files_->file(name); }
  static EtcdOptions at(const EtcdServer& etcd) {
    return {.endpoints = "https://" + etcd.endpoint(), .prefix = "/tutti/job"};
  }
  std::unique_ptr<Certificates> files_;
};

TEST_F(EtcdCertificates, OverHttpsWithTheRightAuthority) {
  const auto etcd = EtcdServer::start({}, files_.get()).or_throw();
  EtcdOptions options = at(etcd);
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("no connection to etcd at " + options.endpoints + ": "),
                                      HasSubstr("(hint: give the authority that signed etcd's certificate (cacert)")));
  options.ca_file = file("stranger.pem");
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("SSL certificate problem"), HasSubstr("(cacert)")));
  options.ca_file = file("none.pem");
  EXPECT_THAT(refusal(options), HasSubstr("none.pem"));
  options.ca_file = file("ca.pem");
  const auto store = connect_etcd(options, soon()).or_throw();
  EXPECT_EQ(store->add("n", 1).or_throw(), 1);
  options.endpoints = etcd.endpoint();  // an authority means https
  EXPECT_EQ(connect_etcd(options, soon()).or_throw()->add("n", 1).or_throw(), 2);
}

TEST_F(EtcdCertificates, OfTheClientToo) {
  const auto etcd = EtcdServer::start({"--trusted-ca-file", file("ca.pem")}, files_.get()).or_throw();
  EtcdOptions options = at(etcd);
  options.ca_file = file("ca.pem");
  const std::string wanted = "this etcd requires a certificate that it trusts: give one, and its key";
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("no connection to etcd at " + options.endpoints), HasSubstr(wanted)));
  options.certificate_file = file("stranger.pem"), options.key_file = file("stranger.key");
  EXPECT_THAT(refusal(options), HasSubstr(wanted));
  options.certificate_file = file("client.pem");
  EXPECT_THAT(refusal(options),
              HasSubstr("the client's certificate or its key (ssl_cert, ssl_cert_key) cannot be used"));
  options.key_file = file("client.key");
  EXPECT_EQ(connect_etcd(options, soon()).or_throw()->add("n", 1).or_throw(), 1);
}

// An etcd that speaks http waits for the rest of what it takes for a request, or closes the connection.
TEST_F(EtcdCertificates, AnEtcdWithoutTlsIsUnreachable) {
  const auto etcd = EtcdServer::start().or_throw();
  const auto store = connect_etcd(at(etcd), Deadline::after_seconds(2));
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.error().code, ::testing::AnyOf(Code::kTimeout, Code::kUnreachable));
  EXPECT_THAT(to_string(store.error()), HasSubstr("etcd at https://" + etcd.endpoint() + " cannot be reached ("));
}

}  // namespace
}  // namespace tutti
