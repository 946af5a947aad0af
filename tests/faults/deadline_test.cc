// A sub-group with a deadline of its own obeys that, in every call that waits, and its parent goes on with another.
#include <functional>
#include <string>
#include <vector>

#include "tests/faults/worlds.h"
#include "tests/harness/error_of.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/objects.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;

const std::vector<int> kBoth = {0, 1};
constexpr std::size_t kLong = 4'000'000;  // floats: more than any link holds

// Every kind of call in which rank 0 waits for rank 1.
struct Call {
  std::string name;  // as the error says it
  std::function<void(const Group&, std::span<float>)> make;
};

std::vector<Call> calls() {
  return {
      {"barrier", [](const Group& g, std::span<float>) { barrier(g); }},
      {"all_reduce", [](const Group& g, std::span<float> x) { all_reduce(g, x.first(1)); }},
      {"all_reduce", [](const Group& g, std::span<float> x) { all_reduce(g, x); }},
      {"all_reduce", [](const Group& g, std::span<float> x) { all_reduce_async(g, x).get(); }},
      {"broadcast", [](const Group& g, std::span<float> x) { broadcast(g, x.first(100), 1); }},
      {"all_reduce",
       [](const Group& g, std::span<float> x) {
         all_reduce_coalesced<float>(g, {x.first(1), x.last(9)});
       }},
      {"recv", [](const Group& g, std::span<float> x) { recv(g, x.first(10), 1); }},
      {"recv", [](const Group& g, std::span<float> x) { (void)recv_any(g, x.first(10)); }},
      {"send", [](const Group& g, std::span<float> x) { send(g, std::span<const float>(x), 1); }},
      {"all_gather", [](const Group& g, std::span<float>) { (void)all_gather_bytes(g, "x"); }},
      {"all_gather", [](const Group& g, std::span<float>) { (void)g.first([] {}); }},
      {"all_reduce", [](const Group& g, std::span<float>) { (void)g.should_stop(); }},
      {"all_gather", [](const Group& g, std::span<float>) { (void)g.split(0, 0).or_throw(); }},
      {"monitored_barrier", [](const Group& g, std::span<float>) { monitored_barrier(g); }},
  };
}

using test::error_of;

class OwnDeadline : public ::testing::TestWithParam<Way> {};

// The parent would wait for 1000 s, and the watchdog not as long.
TEST_P(OwnDeadline, ShorterThanTheParents) {
  const auto body = [](Group& world) {
    const auto data = make_buffer(world, kLong, false);
    for (const Call& call : calls()) {
      const Group hasty = world.new_group(kBoth, "hasty", milliseconds(200)).or_throw();
      if (world.rank() == 0) {
        const std::string text = error_of([&] { call.make(hasty, std::span(data.get(), kLong)); });
        check(text.starts_with("Timeout: " + call.name + " #") || text.starts_with("Timeout: " + call.name + " ("),
              call.name, ": ", text);
        check(text.find(" on group world/hasty, rank 0: ") != std::string::npos, text);
        check(text.find(" of 200 ms") != std::string::npos, text);
        check(call.name == "monitored_barrier" || text.ends_with("the group was made with this timeout)"), text);
      }
      barrier(world);  // rank 1 makes no call on the other group
    }
  };
  EXPECT_EQ(describe(run_world(GetParam(), 2, body)), "");
}

// A call on `patient` is under way while one on a group with the parent's deadline comes to its end, and still
// succeeds.
TEST_P(OwnDeadline, LongerThanTheParents) {
  const auto body = [](Group& world) {
    const Group patient = world.new_group(kBoth, "patient", std::chrono::seconds(1000)).or_throw();
    const Group inner = patient.split(0, patient.rank(), "inner").or_throw();
    const Group hasty = world.new_group(kBoth, "hasty").or_throw();
    float sums[] = {1, 1}, word = 7;
    if (world.rank() == 0) {
      const Work outer_sum = all_reduce_async(patient, std::span(sums).first(1));
      const Work inner_sum = all_reduce_async(inner, std::span(sums).last(1));
      const std::string text = error_of([&] { barrier(hasty); });
      check(text.find(" of 3 s") != std::string::npos && text.ends_with("TUTTI_TIMEOUT sets the limit)"), text);
      send(patient, std::span<const float>(&word, 1), 1);
      outer_sum.get();
      inner_sum.get();
    } else {
      word = 0;
      recv(patient, std::span(&word, 1), 0);
      check(word == 7, "the word came");
      all_reduce(patient, std::span(sums).first(1));
      all_reduce(inner, std::span(sums).last(1));
    }
    check(sums[0] == 2 && sums[1] == 2, "the sums");
  };
  EXPECT_EQ(describe(run_world(GetParam(), 2, body, {.timeout = 3})), "");
}

std::vector<Way> ways() {
  std::vector<Way> ways = all_ways();
  for (const Way& way : ways_with_engines())
    if (!way.engine.empty()) ways.push_back(way);
  return ways;
}

INSTANTIATE_TEST_SUITE_P(Ways, OwnDeadline, ::testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti::test
