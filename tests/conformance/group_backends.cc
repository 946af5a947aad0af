// The ways to make a group of ranks that run here as threads or forked processes.
#include <sched.h>

#include "tests/conformance/group_conformance.h"
#include "tests/harness/device_memory.h"
#include "tutti/comm/links/select.h"

namespace tutti::test {
namespace {

std::vector<GroupBackend> backends() {
  const auto threads = [](const char* algorithm) {
    return [algorithm](int size, const RankBody& body) { return run_threads(size, body, {.algorithm = algorithm}); };
  };
  const auto processes = [](const char* transport, const char* algorithm) {
    return [=](int size, const RankBody& body) {
      return run_processes(size, body, {.algorithm = algorithm, .transport = transport});
    };
  };
  const auto engine = [](const char* name) {
    return [name](int size, const RankBody& body) {
      return run_processes(size, body, {.environment = {{"TUTTI_ENGINE", name}}});
    };
  };
  (void)engine;
  // On the double of CUDA: a GPU for each rank.
  const auto gpus = [](const char* engines, const char* transport, const char* algorithm = "") {
    return [=](int size, const RankBody& body) {
      return run_processes(size, body,
                           {.algorithm = algorithm,
                            .transport = transport,
                            .environment = {{"TUTTI_ENGINE", engines},
                                            {"TUTTI_CUDA_PATH", TUTTI_FAKE_CUDA},
                                            {"CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6"}}});
    };
  };
  // Ranks outnumber the cores, however many the machine has: they take turns, and short sums are shared out.
  const auto on_one_core = [](int size, const RankBody& body) {
    cpu_set_t before, one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    const bool bound =
        ::sched_getaffinity(0, sizeof before, &before) == 0 && ::sched_setaffinity(0, sizeof one, &one) == 0;
    auto outcomes = run_threads(size, body, {});
    if (bound) (void)::sched_setaffinity(0, sizeof before, &before);
    return outcomes;
  };
  return {
#ifdef TUTTI_HAS_GLOO
      {"processes_gloo", engine("gloo")},
#endif
#ifdef TUTTI_HAS_NCCL
      {"processes_nccl", gpus("cpu:tutti,cuda:nccl", ""), false, run_on_device},
#endif
      {"processes_ipc", gpus("cpu:tutti,cuda:ipc", ""), false, run_on_device},
      {"processes_ipc_links", gpus("cpu:tutti,cuda:ipc", "", "ring"), false, run_on_device},
      {"processes_staged", gpus("cpu:tutti,cuda:staged", ""), false, run_on_device},
      {"processes_staged_tcp", gpus("cpu:tutti", "tcp"), false, run_on_device},
      {"threads_direct", threads(""), true},
      {"threads_on_one_core", on_one_core, true},
      {"threads_ring", threads("ring")},
      // A fast network, whose bytes come late by turns and in pieces of any size.
      {"threads_sim",
       [](int size, const RankBody& body) {
         return run_threads(size, body, {.network = ModelledNetwork{.between = {2e-6, 10e9, 0}, .jitter = 2}});
       }},
      {"threads_sim_two_level",
       [](int size, const RankBody& body) {
         return run_threads(size, body,
                            {.algorithm = "two_level",
                             .network = ModelledNetwork{.hosts = 3, .between = {2e-6, 10e9, 0}, .jitter = 2}});
       }},
      {"threads_recursive_doubling", threads("recursive_doubling")},
      {"processes_shm", processes("shm", ""), true},
      {"processes_shm_links", processes("shm", "ring")},
      {"processes_tcp", processes("tcp", "")},
      {"processes_three_streams",
       [](int size, const RankBody& body) {
         return run_processes(size, body, {.transport = "tcp", .environment = {{"TUTTI_STREAMS", "3"}}});
       }},
      {"processes_two_hosts",
       [](int size, const RankBody& body) {
         return run_processes(size, body, {.environment_of = [](int rank) {
                                return std::map<std::string, std::string>{{"TUTTI_HOST_ID", rank % 2 ? "odd" : "even"}};
                              }});
       }},
      // Hosts of 3, 2 and 2 ranks where there are 7.
      {"processes_two_level", [](int size, const RankBody& body) {
         return run_processes(
             size, body,
             {.algorithm = "two_level", .environment_of = [](int rank) {
                return std::map<std::string, std::string>{{"TUTTI_HOST_ID", "h" + std::to_string(rank % 3)}};
              }});
       }}};
}

INSTANTIATE_TEST_SUITE_P(Backends, GroupSuite, ::testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param.name; });

// Every algorithm of every verb, forced by its name over links. (The suite above runs all verbs by those that the table
// chooses.)
struct Forced {
  Kind kind;
  comm::Algorithm algorithm;
};
void PrintTo(const Forced& forced, std::ostream* out) { *out << name(forced.algorithm) << ' ' << name(forced.kind); }

class ForcedAlgorithm : public ::testing::TestWithParam<Forced> {};

TEST_P(ForcedAlgorithm, IsRight) {
  const Kind kind = GetParam().kind;
  const comm::Algorithm algorithm = GetParam().algorithm;
  for (const int size : kSizes) {
    const auto body = [&](Group& world) {
      if (size > 1) {
        const Request request{.kind = kind, .dtype = DType::kF32, .count = 1};
        check(world.plan_name(request) == std::string(name(algorithm)), "runs ", world.plan_name(request), " instead");
      }
      sweep(kind, world, false);
    };
    EXPECT_EQ(describe(run_threads(size, body, {.algorithm = name(algorithm)})), "") << "in a world of " << size;
  }
}

std::vector<Forced> implemented() {
  std::vector<Forced> all;
  for (int kind = 0; kind <= int(kLastCollective); ++kind)
    for (int algorithm = 0; algorithm <= int(comm::kLastAlgorithm); ++algorithm)
      if (Kind(kind) != Kind::kBarrier && comm::implements(comm::Algorithm(algorithm), Kind(kind)))
        all.push_back({Kind(kind), comm::Algorithm(algorithm)});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, ForcedAlgorithm, ::testing::ValuesIn(implemented()), [](const auto& info) {
  return std::string(name(info.param.kind)) + "_" + name(info.param.algorithm);
});

}  // namespace
}  // namespace tutti::test
