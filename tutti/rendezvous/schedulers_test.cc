#include "tutti/rendezvous/schedulers.h"

#include <gmock/gmock.h>

namespace tutti::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(HostList, Expands) {
  EXPECT_THAT(*expand_hostlist("node7"), ElementsAre("node7"));
  EXPECT_THAT(*expand_hostlist("gnode[10,20,25,37]"), ElementsAre("gnode10", "gnode20", "gnode25", "gnode37"));
  EXPECT_THAT(*expand_hostlist("a[1-2],b3"), ElementsAre("a1", "a2", "b3"));
  EXPECT_THAT(*expand_hostlist("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(*expand_hostlist("n[1-2]-ib0"), ElementsAre("n1-ib0", "n2-ib0"));
  EXPECT_THAT(*expand_hostlist("r[0-1]n[00-01]"), ElementsAre("r0n00", "r0n01", "r1n00", "r1n01"));
  EXPECT_THAT(*expand_hostlist("n[9-10,3]"), ElementsAre("n9", "n10", "n3"));
  EXPECT_THAT(*expand_hostlist("[1-2]"), ElementsAre("1", "2"));
}

TEST(HostList, StopsAtItsLimitBeforeItAllocates) {
  EXPECT_THAT(*expand_hostlist("n[1-65536]"), SizeIs(65536));
  for (const char* text : {"n[0-65536]", "n[0-999999999]", "a[0-999]b[0-999]c[0-999]", "n[0-65535],b"}) {
    const auto hosts = expand_hostlist(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_THAT(hosts.error().detail, HasSubstr("has more than 65536 entries")) << text;
  }
  EXPECT_TRUE(expand_hostlist("a,b,c", 3).ok());
  EXPECT_FALSE(expand_hostlist("a,b,c,d", 3).ok());
  EXPECT_FALSE(expand_hostlist(std::string((1 << 20) + 1, 'a')).ok());
}

TEST(HostList, SaysWhereItIsWrong) {
  const auto detail = [](std::string_view text) { return expand_hostlist(text).error().detail; };
  EXPECT_EQ(detail("n[1-2"), "the host list \"n[1-2\" lacks a \"]\" at character 6");
  EXPECT_EQ(detail("n1-2]"), "the host list \"n1-2]\" has a \"]\" without a \"[\" at character 5");
  EXPECT_EQ(detail("n[2-1]"), "the host list \"n[2-1]\" has a reversed range at character 6");
  EXPECT_EQ(detail("n[]"), "the host list \"n[]\" lacks a number at character 3");
  EXPECT_EQ(detail("n[1-]"), "the host list \"n[1-]\" lacks a number at character 5");
  EXPECT_EQ(detail("n[a]"), "the host list \"n[a]\" lacks a number at character 3");
  EXPECT_EQ(detail("n[[1]]"), "the host list \"n[[1]]\" lacks a number at character 3");
  EXPECT_EQ(detail("n[1;2]"), "the host list \"n[1;2]\" has a stray character at character 4");
  EXPECT_EQ(detail("n[12345678901]"),
            "the host list \"n[12345678901]\" has a number of more than 9 digits at character 3");
  EXPECT_EQ(detail(""), "the host list \"\" has an empty name at character 1");
  EXPECT_EQ(detail("a,"), "the host list \"a,\" has an empty name at character 3");
  EXPECT_EQ(detail(",a"), "the host list \",a\" has an empty name at character 1");
  EXPECT_EQ(expand_hostlist("n[").error().code, Code::kUsage);
}

TEST(Counts, Expand) {
  EXPECT_THAT(*expand_counts("4"), ElementsAre(4));
  EXPECT_THAT(*expand_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(*expand_counts("2(x0),1"), ElementsAre(1));
}

TEST(Counts, RefuseWhatIsNotOne) {
  for (const char* text : {"", "a", "2(x", "2(x3", "2(y3)", "2,", "2(x3)1", "2(x99999999)", "-1", "12345678901"})
    EXPECT_FALSE(expand_counts(text).ok()) << text;
}

}  // namespace
}  // namespace tutti::rendezvous
