#include "apps/tutti/run_in_scheduler.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "apps/options/command_line.h"
#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/rendezvous/job_secret.h"

namespace tutti::cli {
namespace {

// The user speaks of other nodes than the scheduler does.
bool stands_aside(const rendezvous::Allocation& allocation, const RunTexts& texts) {
  if (texts.nodes.standalone) return true;
  const auto wanted = parse_int(texts.nodes.nodes);
  return wanted && allocation.nodes && *wanted != *allocation.nodes;
}

std::string list_of(const std::vector<int>& counts) {
  std::vector<std::string> words;
  for (const int count : counts) words.push_back(std::to_string(count));
  return join(words, ",");
}

}  // namespace

bool starts_others(const rendezvous::Allocation& allocation, const RunTexts& texts) {
  return allocation.others != rendezvous::Allocation::Others::kStarted && allocation.nodes.value_or(1) > 1 &&
         !stands_aside(allocation, texts) && texts.nodes.node_rank.empty();
}

Status fill_from(const rendezvous::Allocation& allocation, RunTexts& texts, launch::JobOptions& job) {
  if (stands_aside(allocation, texts)) return {};
  if (!allocation.note.empty() && texts.nodes.nodes.empty()) log::warn(allocation.note);
  if (texts.ranks.ranks.empty() && !allocation.ranks.empty()) texts.ranks.ranks = list_of(allocation.ranks);
  if (!allocation.node) return {};
  if (!allocation.nodes && texts.nodes.nodes.empty()) {
    log::info(allocation.scheduler + " numbers this node " + std::to_string(*allocation.node) +
              ", but not how many there are: it runs alone (with --nnodes N the nodes are one job)");
    return {};
  }
  if (texts.nodes.nodes.empty()) texts.nodes.nodes = std::to_string(*allocation.nodes);
  if (texts.nodes.nodes == "1") return {};
  if (texts.nodes.node_rank.empty()) texts.nodes.node_rank = std::to_string(*allocation.node);
  if (job.job.empty() && !allocation.job.empty()) job.job = rendezvous::file_name_of(allocation.job);
  if (texts.nodes.master_port.empty() && !allocation.job.empty())
    texts.nodes.master_port = std::to_string(rendezvous::derived_ports(allocation.job).front());
  if (!job.master_address.empty()) return {};
  job.master_address = allocation.first_host;
  if (!job.master_address.empty()) return {};
  return usage(allocation.scheduler + " does not report the address of node 0",
               allocation.scheduler == "Kubernetes"
                   ? "give the pods a headless service (subdomain in their spec), or name it: --master-addr HOST"
                   : "name it: --master-addr HOST");
}

std::vector<std::string> srun_command(const rendezvous::Allocation& allocation, const std::string& self,
                                      const std::vector<std::string>& arguments) {
  const std::string nodes = std::to_string(*allocation.nodes);
  std::vector<std::string> command = {"srun", "--nodes", nodes, "--ntasks", nodes, "--ntasks-per-node", "1"};
  // One launcher a node, which may use all of it; it ends with the job, not when another one does.
  const std::vector<std::string> more = {"--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0",
                                         "--wait=0",        self,         "run"};
  command.insert(command.end(), more.begin(), more.end());
  if (!allocation.ranks.empty()) command.insert(command.end(), {"-n", list_of(allocation.ranks)});
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

Error become_srun(const rendezvous::Allocation& allocation, const std::vector<std::string>& arguments) {
  std::error_code failed;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return system_error(failed.value(), "could not find the path of tutti in /proc/self/exe");
  std::vector<std::string> command = srun_command(allocation, self, arguments);
  const bool has_secret = env("TUTTI_SECRET") || env("TUTTI_SECRET_FILE") || env("TUTTI_INSECURE");
  if (!has_secret) setenv("TUTTI_SECRET", transport::random_secret_text().c_str(), 1);
  log::info("starting on the " + std::to_string(*allocation.nodes) + " nodes of this allocation with srun");
  std::vector<char*> pointers;
  for (std::string& word : command) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp("srun", pointers.data());
  Error error = system_error(errno, "could not start srun, which starts tutti on the other nodes of this allocation",
                             "--standalone runs on this node alone");
  error.code = Code::kUsage;
  return error;
}

}  // namespace tutti::cli
