#pragma once
// What every Rendezvous must do. A backend says how to open one for each node of a job, and instantiates the suite:
//   INSTANTIATE_TEST_SUITE_P(Memory, RendezvousConformance, testing::Values(RendezvousMaker{...}), name_of_rendezvous);
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "tutti/launch/membership/options.h"

namespace tutti {

// One job. Its nodes die before it.
class RendezvousWorld {
 public:
  virtual ~RendezvousWorld() = default;
  // A process of a node, whose options are those of any backend; node 0 is opened first.
  virtual std::unique_ptr<launch::Rendezvous> open(launch::NodesOptions options) = 0;
};

struct RendezvousMaker {
  std::string name;
  std::function<std::unique_ptr<RendezvousWorld>()> make;
  bool numbered = false;  // every node has a number of its own, so there are no spares
};

inline void PrintTo(const RendezvousMaker& maker, std::ostream* out) { *out << maker.name; }

class RendezvousConformance : public testing::TestWithParam<RendezvousMaker> {};

inline std::string name_of_rendezvous(const testing::TestParamInfo<RendezvousMaker>& info) { return info.param.name; }

}  // namespace tutti
