// tutti plan measure: starts the ranks of a job, which are this same program once more, lets them measure their hosts,
// and writes what rank 0 prints. The job is that of `tutti run`, so hosts are named and reached as there.
#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "apps/options/help_text.h"
#include "apps/tutti/command.h"
#include "apps/tutti/not_empty.h"
#include "bench/comparison/entrants.h"
#include "bench/machine/machine.h"
#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/planning/training/cluster_file.h"
#include "tutti/planning/training/cluster_units.h"
#include "tutti/runtime/init.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace in_plan_measure {
namespace {

constexpr const char* kSynopsis = "tutti plan measure -n N -o FILE [OPTIONS]";
constexpr const char* kFooter = R"(
Starts N ranks, or the ranks of --hosts, and measures in about half a minute what the planner of trainings needs:
products of matrices by shape, on one rank and on all at once, the bandwidth of the memory, and the links inside a host
and between hosts. Three sizes of all_reduce are compared with what these figures predict; the comments of the file show
both. Measure with as many ranks on a host as you will train with, and nothing else at work. GPUs are not measured: start
from a preset (docs/reference/formats.md).

Examples:
  tutti plan measure -n 2 -o cluster.toml
  tutti plan measure --hosts a:8,b:8 -o cluster.toml
  tutti plan measure -n 2 --shapes usual,512x768x3072 -o cluster.toml

Exit codes:
  0      measured
  1      the file cannot be written
  2      wrong usage, or there is no BLAS to measure
  other  of the job that measures, as of tutti run)";

struct Texts {
  std::string ranks, hosts, hostfile, shell, iface, file, shapes = "usual", name;
  bool as_rank = false;  // said to the ranks that are started
};

void declare(CLI::App& app, Texts& texts) {
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type)->check(kNotEmpty);
  };
  add("The job", "-n,--nproc,--nproc-per-node", texts.ranks, "ranks of each host: a number, or cpu (one a core)", "N");
  add("The job", "-H,--hosts", texts.hosts, "measure these hosts over ssh, with this many ranks each", "a:8,b:8");
  add("The job", "--hostfile", texts.hostfile, "read the hosts from a file with lines 'HOST slots=N'", "FILE");
  add("The job", "--ssh", texts.shell, "run COMMAND HOST ... instead of ssh", "COMMAND");
  add("The job", "--iface", texts.iface, "network of the job, on hosts with several: eth1, or 10.0.0.0/8", "NAME");
  add("What is measured", "--shapes", texts.shapes,
      "layers to measure, as rows, outputs and inputs: 512x768x3072,... (usual: 54 layers of 64 to 4096)", "LIST");
  add("Output", "-o,--output", texts.file, "write the cluster to this file (without: to standard output)", "FILE");
  add("Output", "--name", texts.name, "name of the cluster (that of the first host)", "NAME");
  app.add_flag("--as-rank", texts.as_rank, "")->group("");
}

Result<std::vector<bench::ProductShape>> shapes_of(const std::string& text) {
  constexpr std::int64_t kMost = 1 << 16;
  std::vector<bench::ProductShape> shapes;
  for (const std::string& part : split(text, ',')) {
    std::vector<bench::ProductShape> more;
    if (part == "usual") {
      more = bench::usual_shapes();
    } else {
      const std::vector<std::string> sizes = split(part, 'x');
      std::vector<int> good;
      for (const std::string& size : sizes)
        if (const auto number = parse_int(size); number && *number >= 1 && *number <= kMost)
          good.push_back(int(*number));
      if (sizes.size() != 3 || good.size() != 3)
        return usage("--shapes needs layers such as 512x768x3072 (rows, outputs and inputs, each from 1 to " +
                         std::to_string(kMost) + "), not '" + part + "'",
                     "`usual` stands for the usual ones");
      more = {{good[0], good[1], good[2]}};
    }
    for (const bench::ProductShape& shape : more)
      if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
  return shapes;
}

std::string today() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d", &parts));
}

// A rank of the job. Rank 0 prints the file.
Status measure(const Texts& texts) {
  constexpr int kRounds = 2;
  const std::vector<bench::ProductShape> shapes = TUTTI_TRY(shapes_of(texts.shapes));
  const Group world = TUTTI_TRY(try_init());
  bench::MachineMeasure measured = TUTTI_TRY(bench::measure_machine(
      world, shapes, [](const std::string& part) { std::fprintf(stderr, "tutti plan measure: %s\n", part.c_str()); },
      kRounds));
  if (world.rank() != 0) return {};
  measured.cluster.name = texts.name.empty() ? host_name() : texts.name;
  std::vector<std::string> comments = {"measured by tutti " TUTTI_VERSION " on " + today()};
  comments.insert(comments.end(), measured.comments.begin(), measured.comments.end());
  const std::string text = cluster_text(measured.cluster, comments);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

std::string link_words(const char* where, const ClusterLink& link) {
  if (link.bandwidth == 0) return "";
  return fmt::format("{}: {}, {:.3g} GB/s\n", where, seconds_text(link.latency + link.overhead),
                     link.bandwidth / planning::units::kGigabyte);
}

// For people, beside the file.
std::string summary(const Cluster& cluster) {
  std::string text;
  for (const ClusterNodes& nodes : cluster.nodes)
    text += fmt::format("{} {} of {} {}, {:.3g} GiB each, on {} {}\n", nodes.count, nodes.count == 1 ? "node" : "nodes",
                        nodes.devices, nodes.devices == 1 ? "rank" : "ranks", nodes.memory / planning::units::kGiB,
                        nodes.cores, nodes.cores == 1 ? "core" : "cores");
  const DeviceRates& device = cluster.device;
  text += fmt::format("fastest product: {:.3g} GFLOP/s; memory of a rank: {:.3g} GB/s\n", device.peak / 1e9,
                      device.stream_bandwidth / planning::units::kGigabyte);
  return text + link_words("inside a host", cluster.network.inside) +
         link_words("between hosts", cluster.network.between);
}

// The command line of `tutti run`.
std::vector<std::string> arguments_of_run(const Texts& texts) {
  std::vector<std::string> words = {"-q", "--no-prefix"};
  const auto add = [](std::vector<std::string>& to, const char* option, const std::string& value) {
    if (!value.empty()) to.insert(to.end(), {option, value});
  };
  const bool listed = !texts.hosts.empty() || !texts.hostfile.empty();
  add(words, "-n", texts.ranks.empty() && !listed ? "cpu" : texts.ranks);
  add(words, "--hosts", texts.hosts), add(words, "--hostfile", texts.hostfile);
  add(words, "--ssh", texts.shell), add(words, "--iface", texts.iface);
  words.insert(words.end(), {bench::own_path(), "plan", "measure", "--as-rank"});
  add(words, "--shapes", texts.shapes), add(words, "--name", texts.name);
  return words;
}

// Runs the job in a child with its standard output in a pipe.
Result<std::pair<int, std::string>> run_job_and_read(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error(errno, "cannot make a pipe");
  Fd reading(ends[0]), writing(ends[1]);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return system_error(errno, "cannot start a process");
  if (child == 0) {
    if (::dup2(writing.get(), STDOUT_FILENO) < 0) ::_exit(launch::kExitUsage);
    reading.reset(), writing.reset();
    const int code = run_command(words);
    std::fflush(nullptr);
    ::_exit(code);
  }
  writing.reset();
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = ::read(reading.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), std::size_t(got));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return std::pair(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), std::move(text));
}

Result<int> act(const Texts& texts) {
  if (texts.as_rank) {
    TUTTI_TRY(measure(texts));
    return 0;
  }
  TUTTI_TRY(shapes_of(texts.shapes));
  if (!visible_gpus(current_environment()).empty())
    return Error{.code = Code::kUnsupported,
                 .detail = "this host has GPUs, and only CPUs are measured",
                 .hint =
                     "begin with the preset of your device, as docs/reference/formats.md says; CUDA_VISIBLE_DEVICES= "
                     "hides the GPUs"};
  if (!texts.file.empty()) {
    const std::filesystem::path folder = std::filesystem::absolute(texts.file).parent_path();
    if (::access(folder.c_str(), W_OK) != 0) return system_error(errno, "cannot write into " + folder.string());
  }
  auto [code, text] = TUTTI_TRY(run_job_and_read(arguments_of_run(texts)));
  if (code != 0) return code;
  // Whatever a host prints besides is not written.
  const std::size_t begin = text.find("# measured by tutti ");
  if (begin == text.npos) return Error{.code = Code::kInternal, .detail = "rank 0 has printed no cluster"};
  text.erase(0, begin);
  const Cluster cluster = TUTTI_TRY(parse_cluster(text, "what was measured"));
  if (texts.file.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  TUTTI_TRY(write_file(texts.file, text));
  for (const std::string& line : split(text, '\n'))
    if (line.starts_with("# all_reduce ")) fmt::print("{}\n", line.substr(2));
  fmt::print("{}", summary(cluster));
  std::fprintf(stderr, "the cluster is in %s\n", texts.file.c_str());
  return 0;
}

}  // namespace
}  // namespace in_plan_measure

int plan_measure_command(std::vector<std::string> arguments) {
  using namespace in_plan_measure;
  CLI::App app("Measures the hosts of a job for the planner of trainings.", "tutti plan measure");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  try {
    const Result<int> code = act(texts);
    if (code.ok()) return *code;
    report("tutti plan measure", code.error());
    return launch::exit_code_of(code.error().code);
  } catch (const Exception& error) {
    report("tutti plan measure", error.error());
    return launch::exit_code_of(error.error().code);
  }
}

}  // namespace tutti::cli
