#include "tests/faults/worlds.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "tests/harness/reserved_port.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

// Descriptors of this process that are sockets, memory, bells or pipes.
std::vector<std::string> open_descriptors() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target.find("/proc/") != 0) all.push_back(target);  // not the one that lists
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

std::vector<Way> ways_of_processes() {
  return {{"shm_direct", true, "shm", ""}, {"shm_links", true, "shm", "ring"}, {"tcp", true, "tcp", ""}};
}

std::vector<Way> ways_with_engines() {
  std::vector<Way> ways = ways_of_processes();
#ifdef TUTTI_HAS_GLOO
  ways.push_back({"gloo", true, "auto", "", "gloo"});
#endif
  return ways;
}

std::vector<Way> all_ways() {
  std::vector<Way> ways = ways_of_processes();
  ways.push_back({"threads_direct", false, "", ""});
  ways.push_back({"threads_links", false, "", "ring"});
  return ways;
}

Folder::Folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tutti_faults_XXXXXX").string();
  if (!::mkdtemp(pattern.data())) std::abort();
  path_ = pattern;
}

Folder::~Folder() {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_))
    ADD_FAILURE() << "left behind: " << entry.path();
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<Outcome> run_world(const Way& way, int size, const RankBody& body, const FaultOptions& options) {
  const auto before = open_descriptors();
  std::vector<Outcome> outcomes;
  {
    const Folder folder;
    WorldOptions world{.algorithm = way.algorithm,
                       .transport = way.transport,
                       .timeout = options.timeout,
                       .leave_timeout = options.leave_timeout,
                       .environment = options.environment};
    if (!way.engine.empty()) world.environment["TUTTI_ENGINE"] = way.engine;
    world.environment["XDG_RUNTIME_DIR"] = world.environment["TMPDIR"] = folder.path();
    outcomes = way.processes ? run_processes(size, body, world) : run_threads(size, body, world);
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  EXPECT_EQ(open_descriptors(), before);
  return outcomes;
}

void expect_failure(const Group& world, const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& first) {
    const Status later = world.run({.kind = Kind::kBarrier});
    check(!later.ok(), "a call after an error succeeded");
    check(to_string(later.error()) == first.what(), "a later call says: ", to_string(later.error()),
          "\nbut the first said: ", first.what());
    check(!world.status().ok() && to_string(world.status().error()) == first.what(), "status() says something else");
    float one = 1;
    check(!all_reduce_async(world, std::span(&one, 1)).wait().ok(), "a Work after an error succeeded");
    throw;
  }
  throw std::runtime_error("the call did not fail");
}

std::string root_cause(const std::string& error) {
  constexpr const char* kWords = "; root cause: ";
  const auto at = error.rfind(kWords);
  return at == std::string::npos ? error : error.substr(at + std::string(kWords).size());
}

std::string expect_one_cause(const std::vector<Outcome>& outcomes, int culprit) {
  std::string cause;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& o = outcomes[rank];
    EXPECT_FALSE(o.hung) << "rank " << rank << " hung";
    if (int(rank) == culprit) continue;
    EXPECT_EQ(o.signal, 0) << "rank " << rank;
    EXPECT_THAT(o.error, ::testing::MatchesRegex("[A-Z][A-Za-z]+: (.|\n)*")) << "rank " << rank;
    EXPECT_THAT(o.error, ::testing::Not(::testing::HasSubstr("check failed"))) << "rank " << rank;
    if (cause.empty()) cause = root_cause(o.error);
    EXPECT_EQ(root_cause(o.error), cause) << "rank " << rank << " said: " << o.error;
  }
  if (std::getenv("TUTTI_SHOW_ERRORS"))
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
      std::fprintf(stderr, "    [%zu] %s\n", rank, outcomes[rank].error.c_str());
  return cause;
}

std::shared_ptr<float[]> make_buffer(const Group& world, std::size_t count, bool heap) {
  auto buffer = heap ? world.allocate_array<float>(count) : std::shared_ptr<float[]>(new float[count]);
  std::fill_n(buffer.get(), count, 1.0f);
  return buffer;
}

std::map<std::string, std::string> by_hand() {
  static const ReservedPort port;  // one world at a time
  return {{"TUTTI_INIT", "tcp://" + port.address()}};
}

std::vector<pid_t> processes_of(const Group& world) {
  const std::int32_t mine = ::getpid();
  std::vector<std::int32_t> all(world.size());
  all_gather(world, std::span(&mine, 1), std::span(all));
  return {all.begin(), all.end()};
}

}  // namespace tutti::test
