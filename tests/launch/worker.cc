// A small program with many ways to behave, started by the tests of `tutti run` as its ranks. What it does is its first
// argument.
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "(unset)";
}

int rank() { return std::atoi(variable("RANK")); }

// Ranks of one host tell each other by files in a folder of the test.
void touch(const std::string& path) { close(open(path.c_str(), O_WRONLY | O_CREAT, 0600)); }
void await(const std::string& path) {
  struct stat info {};
  for (int i = 0; i < 60000 && stat(path.c_str(), &info) != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

[[noreturn]] void wait_forever() {
  for (;;) pause();
}

// A process that forked twice, has a session of its own and keeps the pipes: what a daemon does.
void start_daemon(const std::string& ready) {
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      touch(ready);
      wait_forever();
    }
    _exit(0);
  }
  await(ready);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const auto argument = [&](int index) { return argc > index ? std::string(argv[index]) : std::string(); };
  if (mode == "print") {
    std::printf("out %d\n", rank());
    std::fprintf(stderr, "err %d\n", rank());
    std::printf("last line without an end");
    return 0;
  }
  if (mode == "env") {
    std::string text;
    for (int i = 2; i < argc; ++i) text += std::string(argv[i]) + "=" + variable(argv[i]) + "\n";
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  if (mode == "free-memory") {
    const auto held = [] {
      const auto use = mallinfo2();
      return use.arena + use.hblkhd;
    };
    std::vector<void*> blocks;
    const std::size_t before = held();
    for (int i = 0; i < 8; ++i) blocks.push_back(std::malloc(25 << 20));
    for (void* const block : blocks) std::free(block);
    std::puts(held() - before < (80 << 20) ? "given back" : "kept");
    return 0;
  }
  if (mode == "arguments") {
    for (int i = 2; i < argc; ++i) std::printf("argument %s\n", argv[i]);
    return 0;
  }
  if (mode == "fail") {  // RANK CODE: that rank fails when all others are up (they leave a file each in FOLDER)
    const int culprit = std::atoi(argument(2).c_str());
    const std::string folder = argument(4);
    touch(folder + "/up" + std::to_string(rank()));
    if (rank() != culprit) wait_forever();
    for (int other = 0; other < std::atoi(variable("WORLD_SIZE")); ++other)
      await(folder + "/up" + std::to_string(other));
    std::printf("step 41\nstep 42\n");
    std::fflush(stdout);
    std::fprintf(stderr, "about to fail\n");
    const int code = std::atoi(argument(3).c_str());
    if (code < 0) {
      std::signal(-code, SIG_DFL);  // a sanitizer would turn SIGSEGV into an exit code
      raise(-code);
    }
    return code;
  }
  if (mode == "heal") {  // RANK ATTEMPTS [CODE]: that rank fails in so many attempts, and all end well in the next
    const int attempt = std::atoi(variable("TORCHELASTIC_RESTART_COUNT"));
    std::printf("rank %d, attempt %d of generation %s\n", rank(), attempt, variable("TUTTI_GENERATION"));
    std::fflush(stdout);
    if (attempt >= std::atoi(argument(3).c_str())) return 0;
    if (rank() != std::atoi(argument(2).c_str())) wait_forever();
    return argument(4).empty() ? 7 : std::atoi(argument(4).c_str());
  }
  if (mode == "stubborn") {  // rank 1 fails when rank 0 ignores SIGTERM
    if (rank() == 0) {
      std::signal(SIGTERM, SIG_IGN);
      touch(argument(2) + "/deaf");
      wait_forever();
    }
    await(argument(2) + "/deaf");
    return 3;
  }
  if (mode == "daemon") {  // every rank leaves one behind; then it ends ("exit") or waits ("stay")
    start_daemon(argument(2) + "/daemon" + std::to_string(rank()));
    std::printf("ready %d\n", rank());
    std::fflush(stdout);
    if (argument(3) == "stay") wait_forever();
    return 0;
  }
  if (mode == "trap") {  // saves at the first signal
    static volatile sig_atomic_t caught = 0;
    std::signal(SIGTERM, [](int number) { caught = number; });
    std::signal(SIGINT, [](int number) { caught = number; });
    std::printf("ready %d\n", rank());
    std::fflush(stdout);
    while (!caught) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::printf("saved after %d\n", int(caught));
    return std::atoi(argument(2).c_str());
  }
  if (mode == "pause") {
    std::printf("ready %d\n", rank());
    std::fflush(stdout);
    wait_forever();
  }
  if (mode == "early") {  // rank 0 ends well at once, the others a little later
    if (rank() != 0) await(argument(2) + "/zero");
    if (rank() == 0) touch(argument(2) + "/zero");
    std::printf("done %d\n", rank());
    return 0;
  }
  if (mode == "flood") {  // LINES
    const std::string line(99, 'x');
    for (long i = 0; i < std::atol(argument(2).c_str()); ++i) std::puts(line.c_str());
    std::fflush(stdout);
    if (!argument(3).empty()) touch(argument(3) + "/flooded");
    return 0;
  }
  if (mode == "error-file") {
    FILE* const file = std::fopen(variable("TORCHELASTIC_ERROR_FILE"), "w");
    if (!file) return 9;
    std::fputs("{\"message\": {\"message\": \"ValueError: the loss is NaN\", \"extraInfo\": {}}}", file);
    std::fclose(file);
    return 1;
  }
  if (mode == "stdin") {
    char text[64] = "nothing";
    if (!std::fgets(text, sizeof text, stdin)) std::strcpy(text, "end of file");
    text[std::strcspn(text, "\n")] = 0;
    std::printf("read %s\n", text);
    return 0;
  }
  std::fprintf(stderr, "worker: unknown mode '%s'\n", mode.c_str());
  return 64;
}
