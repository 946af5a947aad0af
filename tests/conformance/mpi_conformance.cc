// The suite of groups over the engine mpi: mpirun starts the ranks, each of which runs all of it, in step.
#include <cstdio>

#include "tests/conformance/group_conformance.h"
#include "tutti/runtime/init.h"

namespace tutti::test {
namespace {

Group* the_world = nullptr;  // of this process, as long as main() runs

std::vector<Outcome> run_if_it_fits(int size, const RankBody& body) {
  if (size != the_world->size()) return {};
  Outcome outcome;
  try {
    body(*the_world);
  } catch (const std::exception& e) {
    outcome.error = e.what();
  }
  return {outcome};
}

INSTANTIATE_TEST_SUITE_P(Backends, GroupSuite, ::testing::Values(GroupBackend{"mpi", run_if_it_fits}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tutti::Group world = tutti::init();
  tutti::test::the_world = &world;
  return RUN_ALL_TESTS();
}
