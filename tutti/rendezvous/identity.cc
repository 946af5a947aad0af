// Every source is read, then all are compared: so one message names everything that is missing or disagrees, and the
// user repairs the start once instead of five times.
//
// Three layers tell a process who it is. Outermost the scheduler (SLURM_PROCID, OMPI_COMM_WORLD_RANK); inside it
// perhaps a launcher (tutti run, torchrun) that sets RANK and WORLD_SIZE for its own workers; innermost the program,
// with a URL or arguments. The inner layer knows better. RANK and WORLD_SIZE without a launcher were set by hand: then
// they must agree with the scheduler, because a forgotten `export WORLD_SIZE=1` would turn a job of 64 into 64 jobs of
// one without a word.
//
// The address of the store follows from the same sources. MASTER_PORT belongs to the program under torchrun (its agent
// may hold it), so there and under a scheduler ranks of one host meet on a Unix socket named after the job, and several
// hosts on derived ports.
#include "tutti/rendezvous/identity.h"

#include <algorithm>
#include <cstdio>

#include "tutti/base/text.h"
#include "tutti/rendezvous/scheduler_nodes.h"
#include "tutti/rendezvous/schedulers.h"
#include "tutti/store/tcp_store.h"

namespace tutti::rendezvous {
namespace {

constexpr int kMaxWorldSize = 1 << 20;

// The variables that a user sets by hand.
constexpr const char* kHandVariables[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

// A number and who gave it.
struct Said {
  int value;
  std::string source;
};

// The variables that launchers set for each rank, beside a world size.
constexpr std::pair<const char*, const char*> kRankAndSize[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                                {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                                                {"PMI_RANK", "PMI_SIZE"},
                                                                {"PALS_RANKID", "PMI_SIZE"},
                                                                {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                                                                {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"}};

// A sentence for the log of a process that runs alone, where variables hint that it was meant to have company; else
// empty.
std::string lone_note(const Environment& environment) {
  for (const auto& [rank, world_size] : kRankAndSize)
    if (const auto number = lookup(environment, rank); number && !lookup(environment, world_size))
      return std::string(rank) + " is " + *number + ", but " + world_size +
             " is not set: this process runs alone (is it left from another start? env -u " + rank +
             "; else give every rank RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT)";
  const auto pod = lookup(environment, "JOB_COMPLETION_INDEX");
  if (pod && lookup(environment, "KUBERNETES_SERVICE_HOST"))
    return "JOB_COMPLETION_INDEX is " + *pod +
           ", but no variable says how many pods the Job has: this process runs alone (set WORLD_SIZE, MASTER_ADDR and "
           "MASTER_PORT in every pod, or start it with tutti run --nnodes N)";
  return slurm_note(environment);
}

std::string in_environment(const std::string& variable) { return variable + " in the environment"; }

class Identifier {
 public:
  Identifier(const CallArguments& call, const Environment& environment) : call_(call), environment_(environment) {}
  Result<Identity> run();

 private:
  std::optional<std::string> value(const std::string& variable) const { return lookup(environment_, variable); }
  bool has(const std::string& variable) const { return value(variable).has_value(); }
  std::optional<int> number(const std::string& variable, const std::optional<std::string>& text, int least, int most);
  std::optional<std::uint16_t> master_port() {
    const auto port = number("MASTER_PORT", value("MASTER_PORT"), 1, 65535);
    return port ? std::optional(std::uint16_t(*port)) : std::nullopt;
  }
  std::optional<Said> settle(const char* what, std::vector<std::optional<Said>> sources);
  bool nobody_said_anything() const;
  void find_numbers();
  void find_local_numbers();
  void find_generation();
  void find_job();
  void find_method();
  void find_method_under_scheduler();
  std::string first_host();
  void check_range();
  Error missing_error() const;

  const CallArguments& call_;
  const Environment& environment_;
  RendezvousUrl url_;
  std::string url_source_ = "the URL";
  bool tutti_run_ = false;
  bool torchrun_ = false;
  std::optional<SchedulerVariables> scheduler_;
  std::optional<Said> rank_;
  std::optional<Said> world_size_;
  Identity identity_;
  std::vector<std::string> problems_;  // clauses
  std::vector<std::string> missing_;   // variables
};

std::optional<int> Identifier::number(const std::string& variable, const std::optional<std::string>& text, int least,
                                      int most) {
  if (!text) return std::nullopt;
  const auto parsed = parse_int(*text);
  if (parsed && *parsed >= least && *parsed <= most) return int(*parsed);
  problems_.push_back(variable + " is \"" + *text + "\", expected a whole number from " + std::to_string(least) +
                      " to " + std::to_string(most));
  return std::nullopt;
}

// The value of the first source, if all sources that have one agree.
std::optional<Said> Identifier::settle(const char* what, std::vector<std::optional<Said>> sources) {
  std::optional<Said> first;
  for (const auto& said : sources) {
    if (!said) continue;
    if (!first)
      first = said;
    else if (said->value != first->value)
      problems_.push_back(std::string("the ") + what + " is " + std::to_string(first->value) + " by " + first->source +
                          ", but " + std::to_string(said->value) + " by " + said->source);
  }
  return first;
}

bool Identifier::nobody_said_anything() const {
  if (url_.scheme != Scheme::kEnv || url_.rank || url_.world_size || call_.rank || call_.world_size || scheduler_)
    return false;
  return std::none_of(std::begin(kHandVariables), std::end(kHandVariables),
                      [&](const char* name) { return has(name); }) &&
         !tutti_run_;
}

void Identifier::find_numbers() {
  const auto from = [](std::optional<int> value, const std::string& source) {
    return value ? std::optional(Said{*value, source}) : std::nullopt;
  };
  const auto scheduled = [&](const SchedulerVariables::Fact SchedulerVariables::*which,
                             int least) -> std::optional<Said> {
    if (!scheduler_) return std::nullopt;
    const auto& fact = (*scheduler_).*which;
    return from(number(fact.variable, fact.value, least, kMaxWorldSize), in_environment(fact.variable));
  };
  rank_ = settle("rank", {from(url_.rank, "rank= in " + url_source_), from(call_.rank, "the call"),
                          from(number("RANK", value("RANK"), 0, kMaxWorldSize), in_environment("RANK")),
                          scheduled(&SchedulerVariables::rank, 0)});
  world_size_ = settle("world size",
                       {from(url_.world_size, "world_size= in " + url_source_), from(call_.world_size, "the call"),
                        from(number("WORLD_SIZE", value("WORLD_SIZE"), 1, kMaxWorldSize), in_environment("WORLD_SIZE")),
                        scheduled(&SchedulerVariables::world_size, 1)});
  if (!rank_ && world_size_ && world_size_->value == 1) rank_ = Said{0, "a world of one"};
  // A value that makes no sense has been reported as such; it is not missing.
  if (!rank_ && !has("RANK")) missing_.push_back("RANK");
  if (!world_size_ && !has("WORLD_SIZE")) missing_.push_back("WORLD_SIZE");
  if (rank_) identity_.rank = rank_->value, identity_.rank_source = rank_->source;
  if (world_size_) identity_.world_size = world_size_->value, identity_.world_size_source = world_size_->source;
}

void Identifier::find_local_numbers() {
  SchedulerVariables::Fact rank{"LOCAL_RANK", value("LOCAL_RANK")}, size{"LOCAL_WORLD_SIZE", value("LOCAL_WORLD_SIZE")};
  if (scheduler_) {  // its numbers belong together; a LOCAL_RANK beside them is from another start
    rank = scheduler_->local_rank;
    size = scheduler_->local_world_size;
  }
  identity_.local_rank = number(rank.variable, rank.value, 0, kMaxWorldSize).value_or(-1);
  identity_.local_world_size = number(size.variable, size.value, 1, kMaxWorldSize).value_or(-1);
  if (identity_.local_world_size > 0 && identity_.local_rank >= identity_.local_world_size)
    problems_.push_back(rank.variable + " is " + *rank.value + ", not below " + size.variable + ", which is " +
                        *size.value);
  if (problems_.empty() && world_size_ && identity_.local_world_size > world_size_->value)
    problems_.push_back(size.variable + " is " + *size.value + ", more than the world size " +
                        std::to_string(world_size_->value) + " (" + world_size_->source + ")");
  using OneHost = Identity::OneHost;
  if (identity_.local_world_size > 0)
    identity_.one_host = identity_.local_world_size == identity_.world_size ? OneHost::kYes : OneHost::kNo;
  else if (scheduler_ && scheduler_->hosts)
    identity_.one_host = *scheduler_->hosts == 1 ? OneHost::kYes : OneHost::kNo;
}

void Identifier::find_generation() {
  const char* const variable = has("TUTTI_GENERATION") ? "TUTTI_GENERATION" : "TORCHELASTIC_RESTART_COUNT";
  if (!tutti_run_ && !torchrun_ && !has("TUTTI_GENERATION")) return;
  identity_.generation = std::uint32_t(number(variable, value(variable), 0, INT32_MAX).value_or(0));
}

void Identifier::find_job() {
  std::string& job = identity_.job;
  if (const auto given = value("TUTTI_JOB")) {
    job = *given;
  } else if (url_.scheme == Scheme::kTcp) {
    job = "port-" + std::to_string(url_.port);
  } else if (url_.scheme == Scheme::kFile) {
    job = "file-" + url_.path.substr(url_.path.find_last_of('/') + 1);
  } else if (url_.scheme == Scheme::kUnix) {
    job = "unix-" + url_.path.substr(url_.path.find_last_of("/@") + 1);
  } else if (torchrun_) {
    job = "torchrun-" + *value("TORCHELASTIC_RUN_ID") + "-" + value("MASTER_PORT").value_or("0");
  } else if (scheduler_ && !scheduler_->job.empty()) {
    job = scheduler_->starter + "-" + scheduler_->job;
  } else if (const auto port = value("MASTER_PORT")) {
    job = "port-" + *port;
  }
}

void Identifier::find_method() {
  Identity& me = identity_;
  if (world_size_ && world_size_->value == 1) return;
  if (url_.scheme == Scheme::kTcp) {
    me.method = RendezvousMethod::kTcp;
    me.address = transport::Address{.host = url_.host, .port = url_.port};
    me.address_source = url_source_;
  } else if (url_.scheme == Scheme::kFile) {
    me.method = RendezvousMethod::kFile;
    me.path = url_.path;
    me.address_source = url_source_;
  } else if (url_.scheme == Scheme::kUnix) {
    me.method = RendezvousMethod::kUnix;
    me.one_host = Identity::OneHost::kYes;
    me.address.path = url_.path;
    me.address_source = url_source_;
  } else if (tutti_run_) {
    me.method = RendezvousMethod::kAgent;
    me.address_source = "TUTTI_STORE";
    auto stores = parse_servers(*value("TUTTI_STORE"));
    if (stores.ok() && std::all_of(stores->begin(), stores->end(),
                                   [](const transport::Address& one) { return one.is_unix() || one.port != 0; })) {
      if (stores->size() > 1 && stores->front().is_unix()) {  // another way to the store that the rest names
        me.unix_store = stores->front();
        stores->erase(stores->begin());
      }
      me.address = stores->front();
      me.stores = *std::move(stores);
    } else {
      problems_.push_back("TUTTI_STORE is \"" + *value("TUTTI_STORE") + "\", expected host:port or unix:path");
    }
  } else if (torchrun_ && me.one_host == Identity::OneHost::kYes) {
    me.method = RendezvousMethod::kUnix;
    me.address_source = "TORCHELASTIC_RUN_ID";
  } else if (scheduler_ && !(has("MASTER_ADDR") && has("MASTER_PORT"))) {
    find_method_under_scheduler();
  } else {
    for (const char* variable : {"MASTER_ADDR", "MASTER_PORT"})
      if (!has(variable)) missing_.push_back(variable);
    me.address = transport::Address{.host = value("MASTER_ADDR").value_or(""),
                                    .port = torchrun_ ? std::uint16_t(0) : master_port().value_or(0)};
    me.method = torchrun_ ? RendezvousMethod::kPorts : RendezvousMethod::kTcp;
    if (torchrun_) me.ports = derived_ports(me.job);
    me.address_source = torchrun_ ? "MASTER_ADDR" : "MASTER_ADDR and MASTER_PORT";
  }
}

void Identifier::find_method_under_scheduler() {
  Identity& me = identity_;
  if (me.job.empty())
    problems_.push_back(scheduler_->rank.variable +
                        " gives the rank, but no variable names the job (set TUTTI_JOB to a name of your "
                        "choice, the same for every rank, or set MASTER_ADDR and MASTER_PORT)");
  if (me.one_host == Identity::OneHost::kYes) {
    me.method = RendezvousMethod::kUnix;
    me.address_source = scheduler_->starter + "'s job";
    return;
  }
  me.method = RendezvousMethod::kPorts;
  const auto port = master_port();
  me.ports = port ? std::vector{*port} : derived_ports(me.job);
  me.address.host = first_host();
  if (me.address.host.empty() && me.path.empty())
    problems_.push_back(
        (me.one_host == Identity::OneHost::kNo
             ? "the ranks are on several hosts and "
             : scheduler_->rank.variable + " and " + scheduler_->world_size.variable +
                   " give the rank and the world size, but no variable says whether the ranks are on one host, and ") +
        scheduler_->starter + " does not give the address of rank 0's (set MASTER_ADDR to it on every rank)");
}

// The host where rank 0 runs. PBS names a file, which join() reads: `path`.
std::string Identifier::first_host() {
  const auto from = [&](const char* variable) {
    identity_.address_source = variable;
    return value(variable);
  };
  if (const auto host = from("MASTER_ADDR")) return *host;
  for (const char* variable : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    // mpirun's daemons have a step of their own, without mpirun's host
    if (scheduler_->starter != "srun" && variable == std::string_view("SLURM_STEP_NODELIST")) continue;
    const auto list = from(variable);
    if (!list) continue;
    const auto hosts = expand_hostlist(*list);
    if (hosts.ok()) return hosts->front();
    problems_.push_back(std::string(variable) + ": " + hosts.error().detail);
  }
  if (const auto hosts = from("LSB_HOSTS")) return split(*hosts, ' ').front();
  if (const auto file = from("PBS_NODEFILE")) {
    identity_.path = *file;
    return {};
  }
  // where mpirun runs, and rank 0 with it unless hosts were chosen otherwise
  if (from("OMPI_MCA_orte_hnp_uri")) return host_of_mpirun(environment_);
  return {};
}

void Identifier::check_range() {
  if (rank_ && world_size_ && rank_->value >= world_size_->value)
    problems_.push_back("the rank is " + std::to_string(rank_->value) + " by " + rank_->source +
                        ", not below the world size " + std::to_string(world_size_->value) + " by " +
                        world_size_->source + " (ranks count from 0)");
}

Error Identifier::missing_error() const {
  std::vector<std::string> given;
  if (url_.rank) given.push_back("rank= in " + url_source_);
  if (url_.world_size) given.push_back("world_size= in " + url_source_);
  if (call_.rank) given.push_back("the rank in the call");
  if (call_.world_size) given.push_back("the world size in the call");
  std::vector<std::string> set;
  for (const char* variable : kHandVariables)
    if (has(variable)) {
      given.push_back(variable + std::string("=") + *value(variable));
      set.push_back(variable);
    }
  if (tutti_run_) given.push_back("TUTTI_STORE=" + *value("TUTTI_STORE")), set.push_back("TUTTI_STORE");
  std::vector<std::string> clauses = problems_;
  std::string hint;
  if (!missing_.empty()) {
    std::string names = missing_.front();
    for (std::size_t i = 1; i < missing_.size(); ++i)
      names += (i + 1 == missing_.size() ? " and " : ", ") + missing_[i];
    clauses.push_back((given.empty()
                           ? std::string()
                           : tutti::join(given, ", ") + (given.size() == 1 ? " is" : " are") + " given, but ") +
                      names + (missing_.size() == 1 ? " is" : " are") + " missing");
    if (url_.scheme == Scheme::kEnv) {
      const bool has_no_place = std::find(missing_.begin(), missing_.end(), "MASTER_ADDR") != missing_.end();
      hint = "set " + std::string(missing_.size() == 1 ? "it" : "them") + " for every rank" +
             (has_no_place ? ", on one host for example MASTER_ADDR=localhost" : "") +
             (has_no_place && !has("MASTER_PORT") ? " MASTER_PORT=29500" : "") +
             ", or start the program with tutti run -n N";
      if (!set.empty()) hint += ", or alone with env -u " + tutti::join(set, " -u ");
    } else {
      hint = "set " + std::string(missing_.size() == 1 ? "it" : "them") + " for every rank, or write " +
             (url_.scheme == Scheme::kTcp    ? "tcp://host:port"
              : url_.scheme == Scheme::kFile ? "file:///path"
                                             : "unix://@name") +
             "?rank=R&world_size=N";
    }
  } else {
    if (scheduler_ && set.empty()) {
      for (const auto* fact : {&scheduler_->rank, &scheduler_->world_size}) set.push_back(fact->variable);
    }
    hint = "correct what is wrong, or unset what is left from an earlier start: env -u " +
           (set.empty() ? "NAME" : tutti::join(set, " -u ")) + " program";
  }
  return Error{.code = Code::kUsage, .detail = tutti::join(clauses, "; "), .hint = hint};
}

Result<Identity> Identifier::run() {
  std::string url = call_.url;
  if (url.empty() && has("TUTTI_INIT")) url = *value("TUTTI_INIT"), url_source_ = "TUTTI_INIT";
  if (!url.empty()) url_ = TUTTI_TRY(parse_url(url));
  tutti_run_ = has("TUTTI_STORE");
  torchrun_ = !tutti_run_ && has("TORCHELASTIC_RUN_ID") && (has("RANK") || has("WORLD_SIZE"));
  const bool told = (url_.rank || call_.rank) && (url_.world_size || call_.world_size);
  if (!tutti_run_ && !torchrun_ && !told) scheduler_ = TUTTI_TRY(scheduler_of(environment_));

  if (nobody_said_anything()) {
    identity_.started_by = identity_.job = "alone";
    identity_.local_rank = 0;
    identity_.local_world_size = 1;
    identity_.rank_source = identity_.world_size_source = "no variable";
    identity_.one_host = Identity::OneHost::kYes;
    identity_.note = lone_note(environment_);
    return identity_;
  }
  identity_.started_by = tutti_run_   ? "tutti run"
                         : torchrun_  ? "torchrun"
                         : scheduler_ ? scheduler_->starter
                                      : "by hand";
  find_numbers();
  find_local_numbers();
  find_generation();
  find_job();
  find_method();
  check_range();
  if (!problems_.empty() || !missing_.empty()) return missing_error();
  return identity_;
}

}  // namespace

Result<Identity> identify(const CallArguments& call, const Environment& environment) {
  return Identifier(call, environment).run();
}

// ---- names that follow from the id of the job ----
//
// All are functions of one hash. It need not withstand anybody: who lets whom in is for the handshake to say.

namespace {

std::uint64_t hash_of(const std::string& text) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::string file_name_of(const std::string& job) {
  constexpr std::size_t kPlain = 23;
  std::string plain;
  for (const char c : job) {
    const bool ordinary =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    plain += ordinary ? c : '_';
  }
  if (plain == job && plain.size() <= kPlain + 17 && !plain.empty() && plain.front() != '.') return plain;
  char digits[17];  // they tell apart what replacement and cutting made equal
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash_of(job)));
  return "_" + plain.substr(0, kPlain - 1) + "-" + digits;
}

std::vector<std::uint16_t> derived_ports(const std::string& job) {
  constexpr std::uint32_t kFirst = 20000, kCount = 12000,
                          kStride = 2999;  // the stride and the count have no common factor
  std::vector<std::uint16_t> ports;
  for (std::uint32_t i = 0; i < 4; ++i) ports.push_back(std::uint16_t(kFirst + (hash_of(job) + i * kStride) % kCount));
  return ports;
}

}  // namespace tutti::rendezvous
