#include "tutti/transport/sim/sim_link.h"

#include <vector>

#include "tests/conformance/link_conformance.h"
#include "tutti/base/clock.h"

namespace tutti::transport {
namespace {

LinkPair make_pair(const SimOptions& options) {
  auto [first, second] = make_sim_links(options);
  return {.first = std::move(first), .second = std::move(second)};
}

INSTANTIATE_TEST_SUITE_P(Sim, LinkConformance,
                         testing::Values(LinkMaker{"fast",
                                                   [] { return make_pair({.latency = 1e-6, .bandwidth = 10e9}); }},
                                         LinkMaker{"unsteady",
                                                   [] {
                                                     return make_pair({.latency = 50e-6,
                                                                       .bandwidth = 1e9,
                                                                       .overhead = 1e-7,
                                                                       .jitter = 3,
                                                                       .largest_piece = 5000,
                                                                       .capacity = 100000});
                                                   }}),
                         [](const auto& info) { return info.param.name; });

TEST(SimLink, BytesAreNotThereBeforeTheyAreDue) {
  auto [a, b] = make_sim_links({.latency = 0.02, .bandwidth = 1e6});
  std::vector<std::byte> bytes(1000);
  const iovec buffer{bytes.data(), bytes.size()};
  EXPECT_EQ(b->look_again(), std::nullopt) << "nothing is under way";
  const auto begin = now();
  ASSERT_EQ(a->try_send({&buffer, 1}).or_throw(), 1000u);
  ASSERT_TRUE(b->look_again().has_value());
  std::size_t got = 0;
  while (got < 1000) {
    const iovec rest{bytes.data() + got, bytes.size() - got};
    got += b->try_recv({&rest, 1}).or_throw();
  }
  EXPECT_GE(to_seconds(now() - begin), 0.021) << "latency, and a thousand bytes at a million a second";
}

TEST(SimLink, RingsTheEndThatMayProceed) {
  int first = 0, second = 0;
  auto [a, b] = make_sim_links(
      {.latency = 0, .bandwidth = 1e12}, [&] { ++first; }, [&] { ++second; });
  char byte = 1;
  const iovec buffer{&byte, 1};
  ASSERT_EQ(a->try_send({&buffer, 1}).or_throw(), 1u);
  EXPECT_EQ(second, 1) << "something is under way";
  while (b->try_recv({&buffer, 1}).or_throw() == 0) {
  }
  EXPECT_EQ(first, 1) << "there is room again";
  a.reset();
  EXPECT_EQ(second, 2) << "the peer is gone";
}

}  // namespace
}  // namespace tutti::transport
