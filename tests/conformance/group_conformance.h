#pragma once
// One suite for every way to make a group: see group_conformance.cc for what is checked. An instance is a name and a
// function that runs a body on every rank of a world.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/harness/ranks.h"

namespace tutti::test {

struct GroupBackend {
  std::string name;
  std::function<std::vector<Outcome>(int size, const RankBody& body)> run;
  bool thorough = false;  // every op with every dtype
};

inline void PrintTo(const GroupBackend& backend, std::ostream* out) { *out << backend.name; }

class GroupConformance : public ::testing::TestWithParam<GroupBackend> {};

}  // namespace tutti::test
