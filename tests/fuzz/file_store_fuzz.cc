// Another process of this user writes anything into the file of a FileStore, behind its header: the owner reads it as
// far as it makes sense, or says what is wrong.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/fuzz/targets.h"
#include "tutti/store/file_store.h"

namespace tutti::fuzz {

void file_store(Input input) {
  static const std::string folder = [] {
    std::string made = "/tmp/tutti-fuzz-XXXXXX";
    promise(::mkdtemp(made.data()) != nullptr, "a folder can be made");
    static std::string at_exit;
    at_exit = made;
    std::atexit([] { (void)::rmdir(at_exit.c_str()); });
    return made;
  }();
  const std::string path = folder + "/store";
  const auto store = FileStore::create(path, "job");
  promise(store.ok(), "a store can be made");
  {
    const Fd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    promise(file && ::write(file.get(), input.data(), input.size()) == ssize_t(input.size()),
            "its file can be written");
  }
  const auto there = (*store)->check({"key"});
  if (!there.ok()) return promise_sentence(there.error());
  const Status set = (*store)->set("key", "value");
  if (!set.ok()) return promise_sentence(set.error());
  const auto value = (*store)->get("key", Deadline::after_seconds(10));
  promise(value.ok() && *value == "value", "what was set is there");
}

}  // namespace tutti::fuzz
