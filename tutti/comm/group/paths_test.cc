// Which path carries a call.
#include "tutti/comm/group/paths.h"

#include <gmock/gmock.h>

#include "tutti/comm/group/group_state.h"
#include "tutti/comm/inproc_world.h"

namespace tutti::comm {
namespace {

using testing::ElementsAre;

class Done final : public comm::Operation {
  Result<comm::Progress> step() override { return comm::Progress::kDone; }
  void blockers(comm::Blockers&) const override {}
};

// Carries everything, and notes what.
class Library final : public comm::Backend {
 public:
  explicit Library(std::vector<std::string>& calls) : calls_(calls) {}

 private:
  Result<std::unique_ptr<comm::Operation>> start(const Request& request, std::uint64_t) override {
    calls_.push_back(name(request.kind));
    return std::unique_ptr<comm::Operation>(std::make_unique<Done>());
  }
  void abort() override { calls_.push_back("abort"); }
  std::vector<std::string>& calls_;
};

TEST(PathsOfAGroup, ABackendCarriesCollectivesSendsAndReceives) {
  Process process;
  process.engine_name = "gloo";
  process.world.resize(2);
  const GroupSpec spec{.name = "pair", .global_ranks = {0, 1}};
  const Peers peers(process, spec);
  std::vector<std::string> calls;
  Paths paths(process, spec, peers, std::chrono::seconds(1));
  paths.carry_by(std::make_unique<Library>(calls));
  for (const Kind kind : {Kind::kBarrier, Kind::kBroadcast, Kind::kSend, Kind::kRecv}) {
    const Request request{.kind = kind, .root = 1};
    const comm::StartedOperation started = paths.start(request, 1).or_throw();
    EXPECT_EQ(started.operation, started.owned.get()) << "nobody else owns it";
    EXPECT_EQ(paths.flight_path(request), FlightPath::kGloo);
  }
  paths.abort();
  EXPECT_THAT(calls, ElementsAre("barrier", "broadcast", "send", "recv", "abort"));
  EXPECT_TRUE(paths.may_hide_mismatch());
}

struct Choice {
  InprocOptions options;
  std::string barrier;  // its plan
  bool shares_memory;
};

class PathsOfAWorld : public testing::TestWithParam<Choice> {};

TEST_P(PathsOfAWorld, AreChosenByWhereTheRanksAre) {
  for (const Group& group : make_inproc_world(2, GetParam().options)) {
    const GroupState& state = group.state();
    EXPECT_EQ(state.is_direct(), GetParam().shares_memory);
    EXPECT_EQ(state.selector() == nullptr, GetParam().shares_memory) << "plans are for links";
    EXPECT_EQ(group.plan_name({.kind = Kind::kBarrier}), GetParam().barrier);
    EXPECT_EQ(group.plan_name({.kind = Kind::kSend, .root = 1}), "link");
    EXPECT_EQ(group.plan_name({.kind = Kind::kBarrier, .device = 0}), "staged");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, PathsOfAWorld,
    testing::Values(
        Choice{{}, "direct", true}, Choice{{.algorithm = "ring"}, "dissemination", false},
        Choice{{.network = ModelledNetwork{.between = {.latency = 20e-6, .bandwidth = 1e9}}}, "dissemination", false}));

}  // namespace
}  // namespace tutti::comm
