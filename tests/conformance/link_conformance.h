#pragma once
// What every Link must do, whatever carries its bytes. A transport's test says how to make a connected pair, and
// instantiates the suite:
//   INSTANTIATE_TEST_SUITE_P(Inproc, LinkConformance, testing::Values(LinkMaker{...}));
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "tutti/transport/link.h"

namespace tutti {

// Two connected ends. Destroying one (or calling `lose_second`, where an end cannot tell) is how a peer goes.
struct LinkPair {
  std::unique_ptr<transport::Link> first, second;
  std::function<void()> lose_second = {};  // default: destroy it
  std::shared_ptr<void> keep = nullptr;    // whatever the ends borrow
};

struct LinkMaker {
  std::string name;
  std::function<LinkPair()> make;
};

class LinkConformance : public testing::TestWithParam<LinkMaker> {};

}  // namespace tutti
