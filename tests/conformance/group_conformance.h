#pragma once
// One suite for every way to make a group: see group_conformance.cc (collectives), group_messages.cc (sends, receives)
// and group_facts.cc (barriers, sub-groups, mistakes) for what is checked. An instance is a name and a function that
// runs a body on every rank of a world; group_backends.cc and mpi_conformance.cc list them.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/harness/ranks.h"
#include "tutti/comm/request.h"

namespace tutti::test {

// How a request is carried out; the memory of the CPU is where it is made.
using Call = std::function<Status(const Group& world, const Request& request)>;
inline Status run_on_host(const Group& world, const Request& request) { return world.run(request); }

struct GroupBackend {
  std::string name;
  std::function<std::vector<Outcome>(int size, const RankBody& body)> run;
  bool thorough = false;    // every op with every dtype
  Call call = run_on_host;  // of the sweeps; else run_on_device (tests/harness/device_memory.h)
};

inline void PrintTo(const GroupBackend& backend, std::ostream* out) { *out << backend.name; }

inline constexpr int kSizes[] = {1, 2, 3, 4, 7};  // of worlds

// Calls of this verb of every dtype, many ops and counts, checked. Every rank calls.
void sweep(Kind kind, const Group& world, bool thorough, const Call& call = run_on_host);

class GroupSuite : public ::testing::TestWithParam<GroupBackend> {
 protected:
  // In worlds of 1, 2, 3, 4 and 7.
  void everywhere(const RankBody& body);
  void sweep_everywhere(Kind kind);
};

}  // namespace tutti::test
