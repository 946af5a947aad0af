// tutti explain: what a class of errors means, its usual causes, and what to do. The class is the word that opens every
// error ("PeerLost: ..."): the error's code, which does not change between releases.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>

#include "apps/options/help_text.h"
#include "apps/options/report.h"
#include "apps/tutti/command.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace in_explain {
namespace {

constexpr const char* kSynopsis = "tutti explain [CODE]";
constexpr const char* kFooter = R"(
The code of an error is the word that it begins with. Without CODE, all codes are listed.

Examples:
  tutti explain PeerLost
  tutti explain            list all codes

Exit codes:
  0  printed
  2  wrong usage, or no such code)";

struct Explained {
  Code code;
  const char* meaning;  // one line
  const char* causes;   // lines, the most frequent first
  const char* remedies;
  const char* page;
};

constexpr std::array kExplained = {
    Explained{Code::kInvalidArgument, "A function was called with an argument that it rejects.",
              "A shape, a count, a rank or an option is outside its range.\n"
              "A tensor is not contiguous, or has a dtype that the operation does not support.",
              "The error says what was given and what was expected. Correct the call.", "docs/reference/cpp-api.md"},
    Explained{Code::kUsage, "The command line or the environment is wrong. Programs end with exit code 2.",
              "An option is misspelled, or needs another option.\n"
              "A TUTTI_ variable, RANK, WORLD_SIZE or MASTER_ADDR has a wrong value.",
              "The hint names the nearest known option. `--help` lists all options, and `tutti env` prints the "
              "variables that are set.",
              "docs/reference/environment.md"},
    Explained{Code::kMismatch, "Ranks made different calls, or run different programs.",
              "One rank skipped a collective, or called another one, for example inside `if (rank == 0)`.\n"
              "Shapes, dtypes, orders of parameters or options differ between ranks.\n"
              "Two threads of a rank call one group in no fixed order: give each a group of its own.\n"
              "Hosts have different builds of the program or of Tutti.",
              "The error shows both calls. Let every rank make the same calls in the same order, from the same build.",
              "docs/how-to/debug-a-hang.md"},
    Explained{Code::kTimeout, "A deadline passed. The error names the ranks that were waited for.",
              "A rank computes or loads data for longer than the timeout.\n"
              "A rank is stuck: an endless loop, a lock, a file system that does not answer.\n"
              "A rank never made the call.",
              "Run `tutti status` while the job hangs, and `tutti flight` after it. If the rank was only slow, raise "
              "the timeout with the variable TUTTI_TIMEOUT, for example 10min.",
              "docs/how-to/debug-a-hang.md"},
    Explained{Code::kPeerLost, "Another rank exited, or its connection was closed.",
              "The rank crashed, threw an exception, or exited early: its own error is the root cause.\n"
              "The kernel killed it because memory ran out.\n"
              "Its host or the network between the hosts failed.",
              "Read the report of `tutti run`: it names the first rank that failed, its signal or exit code, and its "
              "last lines. Start the job with --max-restarts to restart it from its last checkpoint.",
              "docs/tutorial/5-when-it-fails.md"},
    Explained{Code::kAborted, "The group was ended, by an earlier error or by the program.",
              "Another call of the same group failed before. Its error is quoted as the cause.\n"
              "The program called abort(), or the job was asked to stop.",
              "Look for the first error of the job; this one is a consequence.", "docs/concepts/faults.md"},
    Explained{Code::kRefused, "A peer rejected this process.",
              "The secret differs, or is missing on one host.\n"
              "The process belongs to another job, or to an earlier attempt of this job.",
              "Give all hosts the same --secret-file. Check that the port is not used by another job.",
              "docs/admin/security.md"},
    Explained{Code::kUnreachable, "An address did not answer.",
              "A firewall drops the connection, or nothing listens at the port.\n"
              "The host name resolves to another address, for example 127.0.1.1.\n"
              "The host has several networks, and the wrong one was chosen.",
              "Run `tutti doctor --hosts ...`: it tries every pair of hosts. Choose a network with --iface.",
              "docs/tutorial/3-two-machines.md"},
    Explained{Code::kAddressInUse, "Another process holds the port or the socket.",
              "Another job runs with the same --master-port.\n"
              "A process of an earlier job is still running.",
              "The error names the process that holds the port, if it may be read. Choose another port, or end that "
              "process.",
              "docs/admin/operate.md"},
    Explained{Code::kNotFound, "A file, a program, a key or a tensor does not exist.",
              "A path is wrong, or exists on one host only.\n"
              "A package is not installed: the hint names it.",
              "The error names what was searched, and where. Use a path that exists on every host.", "docs/install.md"},
    Explained{Code::kCorrupt, "Bytes do not match their format.",
              "A file was truncated or changed.\n"
              "A file has another format than its name says.\n"
              "A process that is not part of the job wrote to a port of the job.",
              "Run `tutti ckpt verify` on a checkpoint: it names the file, the tensor and the byte. Resuming skips a "
              "damaged checkpoint and takes the one before.",
              "docs/how-to/inspect-checkpoints.md"},
    Explained{Code::kLimit, "A size, a count or a resource limit was reached.",
              "Memory, disk space, processes, threads or open files ran out.\n"
              "A message, a key or a table is larger than allowed.",
              "The error names the limit and the value that is needed. Raise it (ulimit, the cgroup), or use less.",
              "docs/admin/operate.md"},
    Explained{
        Code::kNonFinite, "A loss or a gradient is NaN or infinite.",
        "The learning rate is too high, or gradients are not clipped.\n"
        "A sample of the named rank holds a NaN or an infinity.\n"
        "Values overflow in f16, and the loss is not scaled.",
        "Resume from a checkpoint with a smaller learning rate or with clipping. Check the batch of the rank that "
        "the error names. With f16, use LossScaler.",
        "docs/concepts/data-parallel.md"},
    Explained{Code::kUnsupported, "This is not possible here, and Tutti does not emulate it silently.",
              "Two options exclude each other.\n"
              "This build, CPU or LibTorch lacks what the call needs.",
              "The hint names the alternative.", "docs/reference/compatibility.md"},
    Explained{Code::kSystem, "A system call failed. The error ends with the message of the system.",
              "The reason is in the text of errno, for example \"Permission denied\".",
              "Correct what the system complains about: rights, mounts, limits. `tutti doctor` checks the usual ones.",
              "docs/admin/operate.md"},
    Explained{Code::kInternal, "A defect of Tutti.", "None: this should not happen.",
              "Report it, with the output of `tutti env`, the whole error, and the flight records if there are any.",
              "CONTRIBUTING.md"},
};

std::string paragraph(std::string_view text, std::size_t width, std::size_t indent = 0) {
  return join(wrapped(text, width, indent), "\n");
}

std::string text_of(const Explained& one, std::size_t width) {
  std::string text = paragraph(fmt::format("{}: {}", name(one.code), one.meaning), width) + "\n\nUsual causes:\n";
  for (const auto& cause : split(one.causes, '\n'))
    text += "  " + paragraph(fmt::format("- {}", cause), width - 2, 4) + "\n";
  text += "\nWhat to do:\n  " + paragraph(one.remedies, width - 2, 2) + "\n";
  return text + fmt::format("\nMore: {}\n", one.page);
}

}  // namespace
}  // namespace in_explain

int explain_command(std::vector<std::string> arguments) {
  using namespace in_explain;
  CLI::App app("Explains an error code: what it means, its usual causes, and what to do.", "tutti explain");
  std::string code;
  set_help(app, kFooter, kSynopsis);
  app.add_option("CODE", code, "the word that the error begins with, such as PeerLost");
  if (const auto ended = parse(app, std::move(arguments))) return *ended;
  if (code.empty()) {
    std::vector<NamedLine> lines;
    for (const Explained& one : kExplained) lines.push_back({name(one.code), one.meaning});
    std::fputs(two_columns(lines, second_column(lines, help_width()), help_width()).c_str(), stdout);
    return 0;
  }
  std::vector<std::string> known;
  for (const Explained& one : kExplained) known.emplace_back(name(one.code));
  const auto found = choose("error code", code, known);
  if (!found.ok()) {
    report("tutti explain", found.error());
    return 2;
  }
  std::fputs(text_of(kExplained[*found], help_width()).c_str(), stdout);
  return 0;
}

}  // namespace tutti::cli
