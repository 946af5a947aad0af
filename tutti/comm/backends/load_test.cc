#include "tutti/comm/backends/load.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& engine) {
  const auto found = parse_engines(engine);
  return found.ok() ? "taken as " + found->cpu + " and " + found->cuda : to_string(found.error());
}

TEST(EngineNames, ByDevice) {
  EXPECT_EQ(refusal("tutti"), "taken as tutti and staged");
  EXPECT_EQ(refusal("gloo"), "taken as gloo and staged");
  EXPECT_EQ(refusal("cpu:mpi"), "taken as mpi and staged");
  EXPECT_EQ(refusal("cuda:nccl"), "taken as tutti and nccl");
  EXPECT_EQ(refusal("cpu:gloo,cuda:nccl"), "taken as gloo and nccl");
  EXPECT_EQ(refusal("cuda:staged,cpu:tutti"), "taken as tutti and staged");
}

TEST(EngineNames, OthersGetASentence) {
  EXPECT_THAT(refusal("glo"), HasSubstr("the engine is \"glo\", which is not known (hint: did you mean gloo?)"));
  EXPECT_THAT(refusal("cpu:mpich"), HasSubstr("the engine is \"mpich\", which is not known (hint: did you mean mpi?)"));
  EXPECT_THAT(refusal("cuda:ncl"), HasSubstr("the engine is \"ncl\", which is not known (hint: did you mean nccl?)"));
  EXPECT_THAT(refusal("cuda:rocket"), HasSubstr("(hint: for cuda there are staged, nccl)"));
  EXPECT_THAT(refusal("nccl"), HasSubstr("the engine nccl does not carry the memory of a CPU (hint: as in "
                                         "cpu:tutti,cuda:nccl; for cpu there are tutti, gloo, mpi)"));
  EXPECT_THAT(refusal("cuda:gloo"), HasSubstr("the engine gloo does not carry the memory of a GPU"));
  EXPECT_THAT(refusal("tpu:tutti"), HasSubstr("names the device \"tpu\" (hint: known are cpu and cuda, as in "
                                              "cpu:tutti,cuda:nccl)"));
}

TEST(OpenBackend, SaysWhereItLooked) {
  ::setenv("TUTTI_ENGINE_PATH", "/nowhere:/neither", 1);
  const BackendSetup setup{.deadline = Deadline::after_seconds(1)};
  const auto opened = open_backend("gloo", setup);
  ::unsetenv("TUTTI_ENGINE_PATH");
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(to_string(opened.error()),
              HasSubstr("the engine gloo is not here: there is no libtutti_gloo.so in /nowhere or /neither"));
}

}  // namespace
}  // namespace tutti
