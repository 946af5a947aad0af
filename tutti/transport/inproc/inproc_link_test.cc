#include "tutti/transport/inproc/inproc_link.h"

#include "tests/conformance/link_conformance.h"

namespace tutti::transport {
namespace {

LinkPair make_pair(std::size_t capacity) {
  auto [first, second] = make_inproc_links({}, {}, capacity);
  return {.first = std::move(first), .second = std::move(second)};
}

INSTANTIATE_TEST_SUITE_P(Inproc, LinkConformance,
                         testing::Values(LinkMaker{"default", [] { return make_pair(256 << 10); }},
                                         LinkMaker{"small", [] { return make_pair(1000); }}),
                         [](const auto& info) { return info.param.name; });

TEST(InprocLink, RingsTheOtherEnd) {
  int first = 0, second = 0;
  auto [a, b] = make_inproc_links([&] { ++first; }, [&] { ++second; });
  char byte = 1;
  const iovec buffer{&byte, 1};
  ASSERT_TRUE(a->try_send({&buffer, 1}).ok());
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1) << "bytes have come";
  ASSERT_TRUE(b->try_recv({&buffer, 1}).ok());
  EXPECT_EQ(first, 1) << "there is room again";
  ASSERT_TRUE(b->try_recv({&buffer, 1}).ok());
  EXPECT_EQ(first, 1) << "nothing moved, nobody is rung";
  a.reset();
  EXPECT_EQ(second, 2) << "the peer is gone";
}

TEST(InprocMesh, ConnectsEveryPair) {
  std::vector<int> rung(3);
  auto mesh = make_inproc_mesh(3, [&](int rank) { ++rung[rank]; });
  for (int a = 0; a < 3; ++a) {
    EXPECT_EQ(mesh[a][a], nullptr);
    for (int b = 0; b < 3; ++b) {
      if (a == b) continue;
      char sent = char(a * 10 + b), got = 0;
      const iovec out{&sent, 1}, in{&got, 1};
      ASSERT_EQ(*mesh[a][b]->try_send({&out, 1}), 1u);
      ASSERT_EQ(*mesh[b][a]->try_recv({&in, 1}), 1u);
      EXPECT_EQ(got, sent);
    }
  }
  EXPECT_EQ(rung, (std::vector<int>{4, 4, 4}));  // 2 that come, 2 that were read
}

}  // namespace
}  // namespace tutti::transport
