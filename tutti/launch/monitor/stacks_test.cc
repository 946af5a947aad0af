#include "tutti/launch/monitor/stacks.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace tutti::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kMaps =
    "55d000000000-55d000004000 r-xp 00002000 08:01 123 /home/a user/train\n"
    "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n";

TEST(Maps, LeadFromAnAddressToAByteOfAFile) {
  EXPECT_EQ(find_in_maps(kMaps, 0x55d000000010), (FileOffset{.file = "/home/a user/train", .offset = 0x2010}));
  EXPECT_EQ(find_in_maps(kMaps, 0x7f0000000008).file, "");
  EXPECT_EQ(find_in_maps(kMaps, 0x1), FileOffset{});
  EXPECT_EQ(find_in_maps("nonsense\n", 0x1), FileOffset{});
}

TEST(Addr2line, ItsAnswerIsTakenApart) {
  const auto all = parse_addr2line(
      "0x0000000000001139\nstep(int)\n/src/train.cc:12 (discriminator 3)\ninner\n/src/a.h:3\n"
      "0x0000000000001180\n??\n??:0\n0x00000000000011a0\nabort\n??:?\n");
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_THAT(all[0], ElementsAre("step(int) at /src/train.cc:12", "inner at /src/a.h:3"));
  EXPECT_THAT(all[1], IsEmpty());
  EXPECT_THAT(all[2], ElementsAre("abort"));
}

TEST(Backtrace, FramesThatOnlyEndOrStartAProcessAreSkipped) {
  EXPECT_THAT(of_the_program(
                  {"__pthread_kill_implementation at ./nptl/pthread_kill.c:44", "raise in libc.so.6",
                   "abort@@GLIBC_2.2.5 in libc.so.6", "__gnu_cxx::__verbose_terminate_handler() in libstdc++.so.6",
                   "__cxxabiv1::__terminate(void (*)()) in libstdc++.so.6", "std::terminate() in libstdc++.so.6",
                   "step(int) at a.cc:1", "main at a.cc:9", "__libc_start_call_main at ../x.h:58", "_start in train"}),
              ElementsAre("step(int) at a.cc:1", "main at a.cc:9"));
  EXPECT_THAT(of_the_program({"gsignal in libc.so.6", "work() at a.cc:1", "start_thread at ./nptl/pthread_create.c:442",
                              "clone3 at ../clone3.S:81"}),
              ElementsAre("work() at a.cc:1"));
}

TEST(Backtrace, FunctionsOfTheProgramStayWhoseNamesBeginAlike) {
  const std::vector<std::string> lines = {"abort_if(bool) at my.cc:10",
                                          "raise_error(char const*) at my.cc:12",
                                          "start_threads(int) at my.cc:14",
                                          "_start_all at my.c:16",
                                          "clone3d at my.c:18",
                                          "raise(int) at my.cc:20",
                                          "main at my.cc:22"};
  EXPECT_EQ(of_the_program(lines), lines);
  EXPECT_THAT(of_the_program({"abort in libc.so.6"}), SizeIs(1)) << "a stack of nothing else is still a stack";
}

TEST(Backtrace, NamesAFunctionOfThisProcess) {
  std::ifstream file("/proc/self/maps");
  std::ostringstream maps;
  maps << file.rdbuf();
  trace::ProgressFrames frames{.frames = {std::uint64_t(reinterpret_cast<std::uintptr_t>(&find_in_maps)), 0x10},
                               .maps = maps.str()};
  const auto lines = backtrace_lines(frames, Deadline::after(std::chrono::minutes(1)));
  ASSERT_THAT(lines, SizeIs(testing::Ge(2u)));
  EXPECT_THAT(lines[0], testing::AnyOf(HasSubstr("tutti::launch::find_in_maps"), HasSubstr("in monitor_test, +0x")));
  EXPECT_EQ(lines.back(), "at 0x10");
}

TEST(Backtrace, AfterTheDeadlineNamesOnlyTheFile) {
  const trace::ProgressFrames frames{.frames = {0x55d000000010}, .maps = kMaps};
  EXPECT_THAT(backtrace_lines(frames, Deadline::after(Duration(0))), ElementsAre("in train, +0x2010"));
}

}  // namespace
}  // namespace tutti::launch
