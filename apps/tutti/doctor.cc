// tutti doctor: the options, and the report as text or JSON.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/options/help_text.h"
#include "apps/tutti/command.h"
#include "apps/tutti/not_empty.h"
#include "apps/tutti/run_on_hosts.h"
#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/doctor/examination.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/layout.h"
#include "tutti/launch/ssh/ssh.h"
#include "tutti/launch/tuning.h"
#include "tutti/rendezvous/job_secret.h"
#include "tutti/runtime/init.h"
#include "tutti/transport/address.h"

namespace tutti::cli {
namespace in_doctor {
namespace {

constexpr const char* kSynopsis = "tutti doctor [OPTIONS]";
constexpr const char* kFooter = R"(
Prints a line for each check: OK, WARN (a job runs, but worse than it could) or FAIL (a job does not run), and what to
do. Each GPU has a line with its memory, its compute mode, NVLink, and the NUMA node and network card near it. With
several hosts, over ssh or started by hand on each, the doctor also tries every pair of hosts: connections both ways, UDP,
latency, bandwidth, and the offset of their clocks. A host that does not answer, or does not join, gets a FAIL line, and
the doctor examines the other hosts without it.

Examples:
  tutti doctor -n 4
  tutti doctor -n 4 --devices 4 --heap 2G
  tutti doctor --hosts a:8,b:2
  tutti doctor --hostfile hosts --iface eth1

Two hosts by hand, with one command on each:
  tutti doctor --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --secret-file s -n 8
  tutti doctor --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --secret-file s -n 2

Exit codes:
  0      nothing failed, though there may be a WARN
  1      a check failed, or the system or tutti itself failed
  2      wrong usage
  130    Ctrl-C
  141    the reader of the output has closed it
  other  128 + the signal that ended it)";

struct Texts {
  std::string ranks, nodes, node_rank, master_port, store_port, devices, heap, timeout = "60s";
  std::string master_address, iface, secret_file, log_dir, hosts, hostfile, shell;
  std::string names, unreached;  // between the two ends of ssh: the hosts by node, and what to say of the others
  bool insecure = false, json = false, one_report = false;
};

void declare(CLI::App& app, Texts& texts) {
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type)->check(kNotEmpty);
  };
  add("The job", "-n,--nproc,--nproc-per-node", texts.ranks, "ranks of this host: a number (1), auto, cpu or gpu", "N");
  add("The job", "--devices", texts.devices, "number of GPUs that this host should have", "N");
  add("The job", "--heap", texts.heap, "shared memory that each rank will use, such as 2G", "BYTES");
  add("The job", "--log-dir", texts.log_dir, "folder for the logs of the job", "DIR");
  add("Several hosts", "--nnodes", texts.nodes, "number of hosts (default 1)", "K");
  add("Several hosts", "--node-rank", texts.node_rank, "number of this host, from 0", "R");
  add("Several hosts", "--master-addr", texts.master_address, "address of host 0, as all hosts see it", "HOST");
  add("Several hosts", "--iface", texts.iface, "network of the job, on hosts with several: eth1, or 10.0.0.0/8",
      "NAME");
  add("Several hosts", "--master-port", texts.master_port, "MASTER_PORT of the program (29500)", "PORT");
  add("Several hosts", "--store-port", texts.store_port, "port of the store on host 0 (default: master port + 1)",
      "PORT");
  add("Several hosts", "--secret-file", texts.secret_file, "file of mode 0600 with the job's secret (or TUTTI_SECRET)",
      "FILE");
  app.add_flag("--insecure", texts.insecure, "accept connections without a secret")->group("Several hosts");
  add("Several hosts", "--timeout", texts.timeout, "how long to wait for the other hosts (60s)", "TIME");
  add("Other hosts over ssh", "-H,--hosts", texts.hosts, "examine these hosts over ssh, for this many ranks each",
      "a:8,b:2");
  add("Other hosts over ssh", "--hostfile", texts.hostfile, "read the hosts from a file with lines 'HOST slots=N'",
      "FILE");
  add("Other hosts over ssh", "--ssh", texts.shell, "run COMMAND HOST ... instead of ssh", "COMMAND");
  app.add_flag("--one-report", texts.one_report, "several hosts: only host 0 prints the report (as with --hosts)")
      ->group("Output");
  app.add_flag("--json", texts.json, "print the report as JSON")->group("Output");
  add("", "--names", texts.names, "", "LIST");
  add("", "--unreached", texts.unreached, "", "JSON");
}

std::string network_of(const Texts& texts) {
  return texts.iface.empty() ? env("TUTTI_IFACE").value_or("") : texts.iface;
}

Result<transport::Secret> secret_of(const Texts& texts, bool several) {
  if (texts.insecure || !several) return transport::Secret::none();
  if (!texts.secret_file.empty()) return rendezvous::secret_in(texts.secret_file);
  if (auto given = TUTTI_TRY(rendezvous::given_secret(current_environment()))) return *given;
  return usage("the hosts need a secret that all of them know",
               "make one (umask 077; openssl rand -hex 32 > secret), copy it to all hosts, and give --secret-file "
               "secret; or do without one: --insecure");
}

Result<int> number(const std::string& option, const std::string& text, int least, int most, int otherwise) {
  return text.empty() ? otherwise : int(TUTTI_TRY(whole_number(option, text, least, most)));
}

Result<doctor::Options> interpret(const Texts& texts) {
  if (!texts.shell.empty()) return usage("--ssh is for hosts that are examined over ssh", "name them: --hosts a:8,b:2");
  doctor::Options options;
  doctor::PlannedJob& job = options.job;
  job.nodes = TUTTI_TRY(number("--nnodes", texts.nodes, 1, 10000, 1));
  options.node = TUTTI_TRY(number("--node-rank", texts.node_rank, 0, 10000, 0));
  if (options.node >= job.nodes)
    return usage("--node-rank " + std::to_string(options.node) + " is not one of " + std::to_string(job.nodes) +
                     (job.nodes == 1 ? " host" : " hosts"),
                 "hosts are numbered from 0; --nnodes says how many there are");
  options.master_address = texts.master_address;
  options.iface = network_of(texts);
  if (job.nodes > 1 && options.node == 0 && options.master_address.empty() && !texts.iface.empty())
    options.master_address = TUTTI_TRY(transport::address_at(texts.iface));
  if (job.nodes > 1 && options.master_address.empty())
    return usage(std::to_string(job.nodes) + " hosts need --master-addr", "the address of host 0, as all hosts see it");
  const launch::MachineCounts machine{.cores = usable_cores(), .gpus = int(visible_gpus(current_environment()).size())};
  const auto counts =
      TUTTI_TRY(launch::parse_rank_counts(texts.ranks.empty() ? "1" : texts.ranks, job.nodes, options.node, machine));
  job.ranks = counts.here;
  job.world = 0;
  for (const int count : counts.all) job.world += count;
  job.world = std::max(job.world, job.ranks * (counts.all.empty() ? job.nodes : 1));
  job.master_port = TUTTI_TRY(number("--master-port", texts.master_port, 1, 65535, 29500));
  job.store_port = TUTTI_TRY(number("--store-port", texts.store_port, 1, 65535,
                                    job.master_port < 65535 ? job.master_port + 1 : job.master_port - 1));
  if (!texts.devices.empty()) job.devices = TUTTI_TRY(number("--devices", texts.devices, 0, 1024, 0));
  if (!texts.heap.empty()) {
    job.heap = parse_bytes(texts.heap);
    if (!job.heap) return usage("--heap needs a size such as 2G or 512M, not '" + texts.heap + "'");
  }
  job.core_type = env("OPENBLAS_CORETYPE").value_or("");
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY"})
    if (const auto value = env(name)) job.threads[name] = *value;
  for (const Status& variables : {log::check_setting(), check_variables(), launch::check_thread_count(env)})
    if (!variables) job.bad_variables.push_back(variables.error());
  options.fixed_ports = !texts.master_port.empty() || !texts.store_port.empty();
  options.log_folder = texts.log_dir;
  options.patience = TUTTI_TRY(duration("--timeout", texts.timeout));
  if (!texts.names.empty()) options.names = split(texts.names, ',');
  options.credentials = {.secret = TUTTI_TRY(secret_of(texts, job.nodes > 1)),
                         .job = "doctor-" + std::to_string(job.master_port)};
  options.say = [](const std::string& text) { log::info(text); };
  return options;
}

void print(const doctor::Report& report) {
  for (const doctor::HostReport& host : report.hosts) {
    std::printf("%s, for %d %s\n%s\n", host.host.c_str(), host.ranks, host.ranks == 1 ? "rank" : "ranks",
                to_text(host.findings).c_str());
  }
  if (!report.between.empty()) std::printf("between the hosts\n%s\n", to_text(report.between).c_str());
  std::printf("%s\n", summary(report.all()).c_str());
}

void print_json(const doctor::Report& report) {
  nlohmann::json json = {{"hosts", nlohmann::json::array()}, {"pairs", nlohmann::json::array()}};
  for (const doctor::HostReport& host : report.hosts)
    json["hosts"].push_back({{"node", host.node},
                             {"host", host.host},
                             {"ranks", host.ranks},
                             {"findings", nlohmann::json::parse(to_json(host.findings))},
                             {"gpus", nlohmann::json::parse(to_json(host.gpus))}});
  for (const doctor::PairMeasure& measure : report.measures)
    json["pairs"].push_back(nlohmann::json::parse(to_json(measure)));
  json["between"] = nlohmann::json::parse(to_json(report.between));
  json["summary"] = summary(report.all());
  std::puts(json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

// What the same command on every host is given.
Result<std::vector<std::string>> options_there(const Texts& texts, bool counted) {
  std::vector<std::string> options = {"--one-report"};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) options.insert(options.end(), {option, value});
  };
  if (!texts.nodes.empty() || !texts.node_rank.empty())
    return usage("the list of hosts sets the number of nodes and their ranks", "drop --nnodes and --node-rank");
  if (counted && !texts.ranks.empty())
    return usage("the list of hosts gives the number of ranks of each host, and -n gives " + texts.ranks,
                 "one of them is enough");
  add("-n", texts.ranks), add("--devices", texts.devices), add("--heap", texts.heap);
  add("--iface", network_of(texts));
  if (!texts.log_dir.empty()) add("--log-dir", std::filesystem::absolute(texts.log_dir));
  add("--master-port", texts.master_port), add("--store-port", texts.store_port), add("--timeout", texts.timeout);
  if (texts.json) options.emplace_back("--json");
  if (texts.insecure) options.emplace_back("--insecure");
  return options;
}

doctor::Finding finding_of(const launch::UnreachedHost& unreached) {
  Error fact = unreached.why;
  fact.hint.clear();
  return {doctor::Grade::kFail, fact.code == Code::kMismatch ? "versions" : "ssh", to_string(fact), unreached.why.hint};
}

// Where nobody can be reached, that is the report.
Result<int> examine_over_ssh(const launch::HostList& hosts, const Texts& texts) {
  launch::SshOptions ssh = TUTTI_TRY(way_to(hosts, texts.shell));
  ssh.command = "doctor";
  ssh.options = TUTTI_TRY(options_there(texts, !hosts.ranks.empty()));
  ssh.folder = "/";
  ssh.master_address = texts.master_address;
  ssh.iface = network_of(texts);
  ssh.variables["TUTTI_SECRET"] = TUTTI_TRY(secret_text(texts.secret_file, texts.insecure));
  ssh.patience = TUTTI_TRY(duration("--timeout", texts.timeout));
  bool anybody = true;
  doctor::Report report;
  ssh.go_without = [&](const std::vector<std::string>& reached, const std::vector<launch::UnreachedHost>& unreached) {
    anybody = !reached.empty();
    for (const launch::UnreachedHost& host : unreached) report.between.push_back(finding_of(host));
    std::vector<std::string> more = {"--names", join(reached, ",")};
    if (!unreached.empty()) more.insert(more.end(), {"--unreached", to_json(report.between)});
    return more;
  };
  const auto code = launch::run_over_ssh(ssh);
  if (anybody) return code;
  texts.json ? print_json(report) : print(report);
  return 1;
}

// This host, and with the same command on others these as well.
Result<int> examine_here(const Texts& texts) {
  const doctor::Options options = TUTTI_TRY(interpret(texts));
  std::vector<doctor::Finding> unreached;
  if (!texts.unreached.empty()) unreached = TUTTI_TRY(doctor::findings_from_json(texts.unreached));
  doctor::Report report = TUTTI_TRY(doctor::examine(options));
  report.between.insert(report.between.begin(), unreached.begin(), unreached.end());
  if (options.node == 0 || !texts.one_report || !report.whole) texts.json ? print_json(report) : print(report);
  return doctor::worst(report.all()) == doctor::Grade::kFail ? 1 : 0;
}

int reported(const Error& error) {
  report("tutti doctor", error);
  return launch::exit_code_of(error.code) == launch::kExitUsage ? launch::kExitUsage : 1;
}

}  // namespace
}  // namespace in_doctor

int doctor_command(std::vector<std::string> arguments) {
  using namespace in_doctor;
  CLI::App app("Checks that this host, or several hosts together, are ready to run a job.", "tutti doctor");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const auto hosts = listed_hosts(texts.hosts, texts.hostfile);
  if (!hosts.ok()) return reported(hosts.error());
  const auto code = *hosts ? examine_over_ssh(**hosts, texts) : examine_here(texts);
  return code.ok() ? *code : reported(code.error());
}

}  // namespace tutti::cli
