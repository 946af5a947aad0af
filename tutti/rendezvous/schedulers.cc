// Order matters: mpirun inside a Slurm job starts its daemons with srun, so its ranks carry SLURM_PROCID of a daemon;
// the MPI's own variables are the inner ones and win. Slurm itself is believed only inside a step: an sbatch or salloc
// shell has SLURM_PROCID=0 and SLURM_NTASKS=N too, but is one process and no rank. Its special steps (batch script,
// interactive, extern) have the highest numbers a step id can have.
#include "tutti/rendezvous/schedulers.h"

#include <vector>

#include "tutti/base/text.h"

namespace tutti::rendezvous {
namespace {

struct Names {
  const char* starter;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  std::vector<const char*> job;  // the first one that is set
};

// The innermost first.
const std::vector<Names>& table() {
  static const std::vector<Names> lines = {
      {"mpirun",
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE",
       "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE",
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}},
      {"mpirun",
       "MV2_COMM_WORLD_RANK",
       "MV2_COMM_WORLD_SIZE",
       "MV2_COMM_WORLD_LOCAL_RANK",
       "MV2_COMM_WORLD_LOCAL_SIZE",
       {"PMI_JOBID"}},
      {"aprun", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", {"PALS_APID"}},
      {"jsrun",
       "JSM_NAMESPACE_RANK",
       "JSM_NAMESPACE_SIZE",
       "JSM_NAMESPACE_LOCAL_RANK",
       "JSM_NAMESPACE_LOCAL_SIZE",
       {"LSB_JOBID"}},
      {"flux run", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "", {"FLUX_JOB_ID"}},
  };
  return lines;
}
const Names kPmi = {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_JOBID"}};

constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;

SchedulerVariables::Fact fact(const Environment& environment, const char* variable) {
  return {variable, *variable ? lookup(environment, variable) : std::nullopt};
}

std::optional<SchedulerVariables> read(const Environment& environment, const Names& names) {
  SchedulerVariables facts;
  facts.rank = fact(environment, names.rank);
  facts.world_size = fact(environment, names.world_size);
  if (!facts.rank.value || !facts.world_size.value) return std::nullopt;
  facts.starter = names.starter;
  facts.local_rank = fact(environment, names.local_rank);
  facts.local_world_size = fact(environment, names.local_world_size);
  for (const char* variable : names.job)
    if (facts.job.empty()) facts.job = lookup(environment, variable).value_or("");
  return facts;
}

SchedulerVariables::Fact first_of(const Environment& environment, std::initializer_list<const char*> variables) {
  for (const char* variable : variables)
    if (auto value = lookup(environment, variable)) return {variable, value};
  return {*variables.begin(), std::nullopt};
}

// How many tasks of the step are on this node, from "2(x3),1" and the node's number.
std::optional<std::string> slurm_local_size(const Environment& environment, const std::string& list) {
  const auto counts = expand_counts(list);
  const auto node = parse_int(lookup(environment, "SLURM_NODEID").value_or(""));
  if (!counts.ok() || !node || *node < 0 || std::size_t(*node) >= counts->size()) return std::nullopt;
  return std::to_string((*counts)[std::size_t(*node)]);
}

std::optional<SchedulerVariables> read_slurm(const Environment& environment) {
  const auto step = slurm_step_of(environment);
  SchedulerVariables facts;
  facts.rank = fact(environment, "SLURM_PROCID");
  facts.world_size = first_of(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  if (!step || !facts.rank.value || !facts.world_size.value) return std::nullopt;
  facts.starter = "srun";
  facts.local_rank = fact(environment, "SLURM_LOCALID");
  facts.local_world_size = first_of(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (auto& per_node = facts.local_world_size.value) per_node = slurm_local_size(environment, *per_node);
  const auto hosts = first_of(environment, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}).value;
  if (const auto number = parse_int(hosts.value_or(""))) facts.hosts = int(*number);
  if (const auto job = first_of(environment, {"SLURM_JOB_ID", "SLURM_JOBID"}).value) facts.job = *job + "." + *step;
  return facts;
}

// An indexed Job tells the index alone; how many pods it has stands in WORLD_SIZE if its manifest says so.
std::optional<SchedulerVariables> read_kubernetes(const Environment& environment) {
  if (!lookup(environment, "KUBERNETES_SERVICE_HOST") || lookup(environment, "RANK")) return std::nullopt;
  SchedulerVariables facts;
  facts.rank = fact(environment, "JOB_COMPLETION_INDEX");
  facts.world_size = fact(environment, "WORLD_SIZE");
  if (!facts.rank.value || !facts.world_size.value) return std::nullopt;
  facts.starter = "Kubernetes";
  return facts;
}

std::string said(const SchedulerVariables& facts) {
  return facts.rank.variable + "=" + *facts.rank.value + " " + facts.world_size.variable + "=" +
         *facts.world_size.value;
}

}  // namespace

std::optional<std::string> lookup(const Environment& environment, const std::string& name) {
  const auto at = environment.find(name);
  if (at == environment.end() || at->second.empty()) return std::nullopt;
  return at->second;
}

std::optional<std::string> slurm_step_of(const Environment& environment) {
  const auto step = first_of(environment, {"SLURM_STEP_ID", "SLURM_STEPID"}).value;
  if (!step) return std::nullopt;
  const auto number = parse_int(*step);
  if (!number || *number < 0 || *number >= kFirstSpecialStep) return std::nullopt;
  return step;
}

Result<std::optional<SchedulerVariables>> scheduler_of(const Environment& environment) {
  std::optional<SchedulerVariables> found;
  for (const Names& names : table())
    if (!found) found = read(environment, names);
  const auto pmi = read(environment, kPmi);
  if (found && pmi && found->starter == "mpirun" &&
      (found->rank.value != pmi->rank.value || found->world_size.value != pmi->world_size.value))
    return Error{
        .code = Code::kMismatch,
        .detail = "two launchers describe this process and disagree: " + said(*found) + ", but " + said(*pmi),
        .hint = "unset the variables of the one that did not start it, for example with env -u " + pmi->rank.variable};
  if (!found) found = pmi;
  if (!found) found = read_slurm(environment);
  if (!found) found = read_kubernetes(environment);
  return found;
}

std::string slurm_note(const Environment& environment) {
  const auto tasks = first_of(environment, {"SLURM_NTASKS", "SLURM_NPROCS"});
  if (!lookup(environment, "SLURM_JOB_ID") || slurm_step_of(environment) || !tasks.value || tasks.value == "1")
    return {};
  return tasks.variable + " is " + *tasks.value +
         ", but srun did not start this process: it runs alone (start it with srun to use the tasks)";
}

// ---- Slurm's lists ----
//
// A recursive grammar of depth two, read in one pass: an item is a list of prefixes that every text lengthens and every
// bracket multiplies. The limit is checked before a bracket is expanded, so "[0-999999999]" costs nothing.

namespace {

constexpr std::size_t kMaxText = 1 << 20;
constexpr std::size_t kMaxDigits = 9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  Reader(std::string_view what, std::string_view text, std::size_t limit) : what_(what), text_(text), limit_(limit) {}

  Result<std::vector<std::string>> hosts() {
    if (text_.size() > kMaxText) return wrong("is longer than 1 MiB");
    std::vector<std::string> all;
    for (;;) {
      auto item = TUTTI_TRY(hosts_of_item(limit_ - all.size()));
      all.insert(all.end(), item.begin(), item.end());
      if (at_end()) return all;
      ++at_;  // the comma
    }
  }

  Result<std::vector<int>> counts() {
    std::vector<int> all;
    for (;;) {
      const int count = TUTTI_TRY(number());
      int times = 1;
      if (text_.substr(at_).starts_with("(x")) {
        at_ += 2;
        times = TUTTI_TRY(number());
        if (at_end() || text_[at_] != ')') return wrong("lacks a \")\"");
        ++at_;
      }
      if (std::size_t(times) > limit_ - all.size()) return too_many();
      all.insert(all.end(), std::size_t(times), count);
      if (at_end()) return all;
      if (text_[at_] != ',') return wrong("has a stray character");
      ++at_;
    }
  }

 private:
  bool at_end() const { return at_ == text_.size(); }

  // Up to the next comma outside of brackets.
  Result<std::vector<std::string>> hosts_of_item(std::size_t room) {
    std::vector<std::string> hosts = {""};
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] != ',') {
      if (text_[at_] == '[') {
        ++at_;
        const auto numbers = TUTTI_TRY(bracket(room));
        if (numbers.size() > room / hosts.size()) return too_many();
        std::vector<std::string> product;
        product.reserve(hosts.size() * numbers.size());
        for (const std::string& host : hosts)
          for (const std::string& number : numbers) product.push_back(host + number);
        hosts = std::move(product);
      } else {
        const std::size_t end = std::min(text_.find_first_of("[],", at_), text_.size());
        if (end == at_) return wrong("has a \"]\" without a \"[\"");
        for (std::string& host : hosts) host.append(text_.substr(at_, end - at_));
        at_ = end;
      }
    }
    if (at_ == begin) return wrong("has an empty name");
    if (hosts.size() > room) return too_many();
    return hosts;
  }

  // After "[": the padded numbers of "08-11,20]".
  Result<std::vector<std::string>> bracket(std::size_t room) {
    std::vector<std::string> numbers;
    for (;;) {
      const std::size_t begin = at_;
      const int low = TUTTI_TRY(number());
      const std::size_t width = at_ - begin;
      int high = low;
      if (!at_end() && text_[at_] == '-') {
        ++at_;
        high = TUTTI_TRY(number());
        if (high < low) return wrong("has a reversed range");
      }
      if (std::size_t(high - low) >= room - std::min(room, numbers.size())) return too_many();
      for (int value = low; value <= high; ++value) {
        const std::string digits = std::to_string(value);
        numbers.push_back(std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits);
      }
      if (at_end()) return wrong("lacks a \"]\"");
      const char next = text_[at_++];
      if (next == ']') return numbers;
      if (next != ',') return --at_, wrong("has a stray character");
    }
  }

  Result<int> number() {
    const std::size_t begin = at_;
    while (!at_end() && is_digit(text_[at_])) ++at_;
    if (at_ == begin) return wrong("lacks a number");
    if (at_ - begin > kMaxDigits) return at_ = begin, wrong("has a number of more than 9 digits");
    return int(*parse_int(text_.substr(begin, at_ - begin)));
  }

  Error wrong(const std::string& how) const {
    return Error{.code = Code::kUsage,
                 .detail = "the " + std::string(what_) + " \"" + std::string(text_.substr(0, 200)) + "\" " + how +
                           " at character " + std::to_string(at_ + 1)};
  }
  Error too_many() const {
    return Error{.code = Code::kUsage,
                 .detail = "the " + std::string(what_) + " \"" + std::string(text_.substr(0, 200)) +
                           "\" has more than " + std::to_string(limit_) + " entries"};
  }

  std::string_view what_;
  std::string_view text_;
  std::size_t limit_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text, std::size_t limit) {
  return Reader("host list", text, limit).hosts();
}

Result<std::vector<int>> expand_counts(std::string_view text, std::size_t limit) {
  return Reader("list of counts", text, limit).counts();
}

}  // namespace tutti::rendezvous
