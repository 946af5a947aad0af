#include "tutti/base/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti {
namespace {

TEST(ProcessState, ToldOfOneThatIsStoppedAndGoesOn) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_NAME, "a) T b");  // looks like the state of a stopped one
    ::raise(SIGSTOP);
    for (;;) ::pause();
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(is_suspended(child));
  ::kill(child, SIGCONT);
  ASSERT_EQ(::waitpid(child, &status, WCONTINUED), child);
  EXPECT_FALSE(is_suspended(child));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(is_suspended(child)) << "there is none";
  EXPECT_FALSE(is_suspended(::getpid()));
}

}  // namespace
}  // namespace tutti
