#pragma once
// A file as an event: what a process that cannot speak to a test leaves when it has come so far.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"

namespace tutti::testing {

// Returns once the file is there, and `whole` if that is asked; fails the test after a minute. Its folder exists.
inline void await_file(const std::string& path, const std::function<bool(const std::string& text)>& whole = {}) {
  const Fd changes(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  const std::string folder = std::filesystem::path(path).parent_path();
  ASSERT_GE(inotify_add_watch(changes.get(), folder.c_str(), IN_CREATE | IN_MOVED_TO | IN_MODIFY | IN_CLOSE_WRITE), 0)
      << folder;
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto text = [&] {
    const auto read = tutti::read_file(path, std::uint64_t(1) << 30);
    return read.ok() ? *read : std::string();
  };
  while (!std::filesystem::exists(path) || (whole && !whole(text()))) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << path << " never came, or was never whole";
    pollfd event = {changes.get(), POLLIN, 0};
    poll(&event, 1, 1000);
    for (char events[4096]; read(changes.get(), events, sizeof events) > 0;) continue;
  }
}

// "step-0000300", or empty: the newest checkpoint of a folder.
inline std::string newest_checkpoint(const std::string& folder) {
  std::string newest;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (const std::string name = entry.path().filename().string(); name.starts_with("step-"))
      newest = std::max(newest, name);
  return newest;
}

}  // namespace tutti::testing
