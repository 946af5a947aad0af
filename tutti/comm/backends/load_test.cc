#include "tutti/comm/backends/load.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& engine) {
  const auto found = cpu_engine(engine);
  return found.ok() ? "taken as " + *found : to_string(found.error());
}

TEST(EngineNames, ForTheCpuWithAndWithoutSayingSo) {
  EXPECT_EQ(*cpu_engine("tutti"), "tutti");
  EXPECT_EQ(*cpu_engine("gloo"), "gloo");
  EXPECT_EQ(*cpu_engine("cpu:mpi"), "mpi");
}

TEST(EngineNames, OthersGetASentence) {
  EXPECT_THAT(refusal("glo"), HasSubstr("the engine is \"glo\", which is not known (hint: did you mean gloo?)"));
  EXPECT_THAT(refusal("cpu:mpich"), HasSubstr("the engine is \"mpich\", which is not known (hint: did you mean mpi?)"));
  EXPECT_THAT(refusal("cpu:tutti,cuda:nccl"), HasSubstr("carries CPU memory only"));
  EXPECT_THAT(refusal("tpu:tutti"), HasSubstr("names the device \"tpu\" (hint: known is cpu, as in cpu:gloo)"));
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
