#include "tutti/comm/backends/load.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "tutti/base/sanitizers.h"

namespace tutti::comm {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& engine) {
  const auto found = parse_engines(engine);
  return found.ok() ? "taken as " + found->cpu + " and " + found->cuda : to_string(found.error());
}

TEST(EngineNames, ByDevice) {
  EXPECT_EQ(refusal("tutti"), "taken as tutti and ipc");
  EXPECT_EQ(refusal("gloo"), "taken as gloo and ipc");
  EXPECT_EQ(refusal("cpu:mpi"), "taken as mpi and ipc");
  EXPECT_EQ(refusal("cuda:nccl"), "taken as tutti and nccl");
  EXPECT_EQ(refusal("cpu:gloo,cuda:nccl"), "taken as gloo and nccl");
  EXPECT_EQ(refusal("cuda:staged,cpu:tutti"), "taken as tutti and staged");
}

TEST(EngineNames, OneOfEachDevice) {
  EXPECT_THAT(refusal("cpu:tutti,cpu:gloo"), HasSubstr("\"cpu:tutti,cpu:gloo\" names more than one engine for cpu "
                                                       "(hint: one of each device, as in cpu:tutti,cuda:nccl)"));
  EXPECT_THAT(refusal("gloo,mpi"), HasSubstr("more than one engine for cpu"));
  EXPECT_THAT(refusal("gloo,gloo"), HasSubstr("more than one engine for cpu"));
  EXPECT_THAT(refusal("cuda:nccl,gloo,cuda:staged"), HasSubstr("more than one engine for cuda"));
}

TEST(EngineNames, AMistakeInTheVariableNamesTheVariable) {
  ::setenv("TUTTI_ENGINE", "glo", 1);
  const auto by_variable = chosen_engines(""), by_option = chosen_engines("mpi");
  ::unsetenv("TUTTI_ENGINE");
  ASSERT_FALSE(by_variable.ok());
  EXPECT_THAT(to_string(by_variable.error()), HasSubstr("Usage: TUTTI_ENGINE: the engine is \"glo\", which is not"));
  ASSERT_TRUE(by_option.ok());
  EXPECT_EQ(by_option->cpu, "mpi");
  EXPECT_EQ(chosen_engines("")->cpu, "tutti");
}

TEST(EngineNames, UnknownNamesAreExplained) {
  EXPECT_THAT(refusal("glo"), HasSubstr("the engine is \"glo\", which is not known (hint: did you mean gloo?)"));
  EXPECT_THAT(refusal("cpu:mpich"), HasSubstr("the engine is \"mpich\", which is not known (hint: did you mean mpi?)"));
  EXPECT_THAT(refusal("cuda:ncl"), HasSubstr("the engine is \"ncl\", which is not known (hint: did you mean nccl?)"));
  EXPECT_THAT(refusal("cuda:rocket"), HasSubstr("(hint: for cuda there are ipc, staged, nccl)"));
  EXPECT_THAT(refusal("nccl"), HasSubstr("the engine nccl does not support the memory of a CPU (hint: as in "
                                         "cpu:tutti,cuda:nccl; for cpu there are tutti, gloo, mpi)"));
  EXPECT_THAT(refusal("cuda:gloo"), HasSubstr("the engine gloo does not support the memory of a GPU"));
  EXPECT_THAT(refusal("tpu:tutti"), HasSubstr("names the device \"tpu\" (hint: known are cpu and cuda, as in "
                                              "cpu:tutti,cuda:nccl)"));
}

TEST(OpenBackend, ListsTheFoldersItSearched) {
  ::setenv("TUTTI_ENGINE_PATH", "/nowhere:/neither", 1);
  const BackendSetup setup{.deadline = Deadline::after_seconds(1)};
  const auto opened = open_backend("gloo", setup);
  ::unsetenv("TUTTI_ENGINE_PATH");
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(to_string(opened.error()),
              HasSubstr("the engine gloo is not installed: there is no libtutti_gloo.so in /nowhere or /neither"));
}

TEST(OpenBackend, NamesTheFileOfAnotherVersion) {
#if TUTTI_ASAN || TUTTI_TSAN
  GTEST_SKIP() << "a sanitizer ends a program that opens a library with RTLD_DEEPBIND; the preset release runs this";
#endif
  const std::string folder = ::testing::TempDir() + "engine_of_another_version";
  std::filesystem::create_directories(folder);
  Dl_info any = {};  // a library that is no backend: the one with cos()
  ASSERT_NE(::dladdr(::dlsym(RTLD_DEFAULT, "cos"), &any), 0);
  std::filesystem::copy_file(any.dli_fname, folder + "/libtutti_gloo.so",
                             std::filesystem::copy_options::overwrite_existing);
  ::setenv("TUTTI_ENGINE_PATH", folder.c_str(), 1);
  const auto opened = open_backend("gloo", {.deadline = Deadline::after_seconds(1)});
  ::unsetenv("TUTTI_ENGINE_PATH");
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(to_string(opened.error()),
              HasSubstr("the engine gloo in " + folder + "/libtutti_gloo.so was built for another version of tutti"));
}

}  // namespace
}  // namespace tutti::comm
