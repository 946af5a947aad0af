#include "tutti/runtime/progress.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <string>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/runtime/last_stack.h"

namespace tutti {
namespace {

Result<std::unique_ptr<ProgressPage>> open_given(const std::string& text) {
  const auto fd = parse_int(text);
  if (!fd || *fd < 0 || *fd > INT32_MAX)
    return Error{.code = Code::kMismatch, .detail = "TUTTI_PROGRESS_FD is \"" + text + "\", which is no descriptor"};
  auto page = TUTTI_TRY(ProgressPage::open(int(*fd)));
  (void)::fcntl(int(*fd), F_SETFD, FD_CLOEXEC);  // what this process starts has no business with it
  // The debugger that the agent starts is no ancestor of this process, which is all that Yama lets by.
  (void)::prctl(PR_SET_PTRACER, ::getppid(), 0, 0, 0);
  if (auto for_handlers = ProgressPage::open(int(*fd)); for_handlers.ok())
    keep_last_stacks(*for_handlers->release());  // never unmapped: a signal may come late
  return page;
}

}  // namespace

std::unique_ptr<ProgressPage> open_progress() {
  if (const auto text = env("TUTTI_PROGRESS_FD")) {
    auto page = open_given(*text);
    if (page.ok()) return *std::move(page);
    log::warn("tutti run will not see what this rank does: " + page.error().detail);
  }
  auto page = ProgressPage::make_private();
  return page.ok() ? *std::move(page) : nullptr;
}

}  // namespace tutti
