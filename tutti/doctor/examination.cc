// Several nodes find each other as the agents of a job do: node 0 serves a store at the job's own port, the others
// connect to it. So the rendezvous is itself a check. A node that has not come in time is reported and left out, and
// the others continue, because which node is missing is the first question and not the last.
//
// Pairs are probed in turns (turns_of_pairs()), with a barrier between turns, so that no node serves two at once and no
// measurement disturbs another on the same cable. In its turn the node with the smaller number measures and the other
// answers; then the other tries the path back. Results go through the store, which both can reach, so two nodes that
// cannot reach each other still learn that their turn is over.
//
//   doctor/here/<node>        its Message
//   doctor/who                the nodes that take part, "0,1,3", by node 0
//   doctor/pair/<from>-<to>   what `from` measured
//   doctor/back/<from>-<to>   why `to` could not connect to `from`; empty if it could
//   doctor/turn/<i>, end      barriers
#include "tutti/doctor/examination.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/store/server/server.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/address.h"
#include "tutti/version.h"

namespace tutti::doctor {
namespace {

constexpr auto kTurnLimit = std::chrono::seconds(60);  // all that one pair may take
constexpr auto kSlice = std::chrono::seconds(2);       // between two lines of a wait

std::string pair_key(const char* kind, int from, int to) {
  return "doctor/" + std::string(kind) + "/" + std::to_string(from) + "-" + std::to_string(to);
}
std::string here_key(int node) { return "doctor/here/" + std::to_string(node); }

// This host's address on the requested network, with a finding about it.
std::string own_address(const std::string& iface, std::vector<Finding>& findings) {
  if (iface.empty()) return {};
  const auto address = transport::address_at(iface);
  if (address.ok())
    findings.push_back({Grade::kOk, "network", iface + " is " + *address + " here", {}});
  else
    findings.push_back({Grade::kFail, "network", address.error().detail, address.error().hint});
  return address.ok() ? *address : std::string();
}

// One node's part in an examination of several.
class Participation {
 public:
  // `host`: this node's address on the network of the job; empty: that by which it reaches the store.
  Participation(const Options& options, std::string host, Report& report)
      : options_(options), host_(std::move(host)), report_(report) {}

  // The first error ends the participation; the report keeps what was found until then.
  Status run(const transport::Address& store, Message mine) {
    TUTTI_TRY(find_others(store, std::move(mine)));
    TUTTI_TRY(read_messages());
    TUTTI_TRY(probe_pairs());
    TUTTI_TRY(read_pairs());
    return store_->barrier("doctor/end", place_, int(present_.size()), Deadline::after(kTurnLimit));
  }

 private:
  Status find_others(const transport::Address& store, Message mine) {
    const Deadline deadline = Deadline::after(options_.patience);
    if (options_.node == 0) server_ = TUTTI_TRY(StoreServer::start(store, options_.credentials));
    store_ = TUTTI_TRY(reach(store, deadline));
    point_ = TUTTI_TRY(ProbePoint::open(host_.empty() ? store_->local_address().host : host_));
    mine.target = {point_->stream(), point_->datagrams()};
    if (!TUTTI_TRY(store_->compare_set(here_key(options_.node), std::nullopt, encode(mine))).stored)
      return Error{.code = Code::kMismatch,
                   .detail = "another host has joined as node " + std::to_string(options_.node),
                   .hint = "every node needs its own --node-rank, from 0 up"};
    if (options_.node == 0) TUTTI_TRY(decide_who(deadline));
    // Node 0 may have begun to wait later than this node.
    const std::string who = TUTTI_TRY(store_->get("doctor/who", Deadline::after(options_.patience + kTurnLimit)));
    for (const std::string& number : split(who, ','))
      if (const auto node = parse_int(number)) present_.push_back(int(*node));
    const auto place = std::find(present_.begin(), present_.end(), options_.node);
    if (place == present_.end())
      return Error{.code = Code::kTimeout, .detail = "this node arrived after the others had started without it"};
    place_ = int(place - present_.begin());
    return {};
  }

  Result<std::unique_ptr<TcpStore>> reach(const transport::Address& store, Deadline deadline) {
    for (;;) {
      auto reached = TcpStore::connect(store, options_.credentials, -1, deadline.at_most(kSlice));
      if (reached.ok()) return reached;
      Error error = reached.error();
      if (error.code != Code::kTimeout && error.code != Code::kUnreachable) return error;
      if (deadline.expired()) {  // `error` has only the last slice
        error.waited = deadline.waited(), error.limit = deadline.limit();
        return error;
      }
      options_.say("waiting for node 0 at " + to_string(store) + " for " + seconds_text(deadline.waited()) + " of " +
                   seconds_text(deadline.limit()));
    }
  }

  Status decide_who(Deadline deadline) {
    std::vector<std::string> keys;
    for (int node = 0; node < options_.job.nodes; ++node) keys.push_back(here_key(node));
    std::vector<int> missing;
    for (;;) {
      if (store_->wait(keys, deadline.at_most(kSlice)).ok()) break;
      missing.clear();
      for (int node = 0; node < options_.job.nodes; ++node)
        if (!TUTTI_TRY(store_->check({here_key(node)}))) missing.push_back(node);
      if (missing.empty() || deadline.expired()) break;
      options_.say("waiting for node" + std::string(missing.size() > 1 ? "s " : " ") + ranks_text(missing) + " for " +
                   seconds_text(deadline.waited()) + " of " + seconds_text(deadline.limit()));
    }
    std::vector<std::string> who;
    for (int node = 0; node < options_.job.nodes; ++node)
      if (std::find(missing.begin(), missing.end(), node) == missing.end()) who.push_back(std::to_string(node));
    return store_->set("doctor/who", join(who, ","));
  }

  Status read_messages() {
    std::vector<std::string> keys;
    for (const int node : present_) keys.push_back(here_key(node));
    const auto texts = TUTTI_TRY(store_->multi_get(keys, Deadline::after(kTurnLimit)));
    report_.hosts.clear();
    int world = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Message message = TUTTI_TRY(parse_doctor_message(texts[i]));
      if (message.version != TUTTI_VERSION)
        add(Grade::kFail, "versions",
            message.host + " has tutti " + message.version + ", this host " + std::string(TUTTI_VERSION),
            "install the same version on all hosts");
      names_[present_[i]] = message.host;
      targets_.push_back(message.target);
      world += message.ranks;
      report_.hosts.push_back(
          {present_[i], message.host, message.ranks, std::move(message.findings), std::move(message.gpus)});
    }
    std::vector<int> missing;
    std::vector<std::string> listed;  // their names as the user listed them
    for (int node = 0; node < options_.job.nodes; ++node) {
      if (names_.count(node)) continue;
      missing.push_back(node);
      if (std::size_t(node) < options_.names.size()) listed.push_back(options_.names[std::size_t(node)]);
    }
    const std::string came = std::to_string(present_.size()) + " of " + std::to_string(options_.job.nodes) + " nodes";
    if (missing.empty())
      add(Grade::kOk, "rendezvous",
          came + " joined at " + to_string(store_->server()) + ", for " + std::to_string(world) + " ranks");
    else
      add(Grade::kFail, "rendezvous",
          came + " joined at " + to_string(store_->server()) + " within " +
              seconds_text(to_seconds(options_.patience)) + "; missing: " +
              (listed.empty() ? "node" + std::string(missing.size() > 1 ? "s " : " ") + ranks_text(missing)
                              : join(listed, ", ")),
          listed.empty() ? "start tutti doctor there, with its own --node-rank; its output there shows more"
                         : "its own output shows more; is there a firewall between the two?");
    return {};
  }

  Status probe_pairs() {
    const auto turns = turns_of_pairs(int(present_.size()));
    for (std::size_t turn = 0; turn < turns.size(); ++turn) {
      for (const auto& [first, second] : turns[turn]) {
        if (first == place_) TUTTI_TRY(measure(second));
        if (second == place_) TUTTI_TRY(be_measured(first));
      }
      TUTTI_TRY(store_->barrier("doctor/turn/" + std::to_string(turn), place_, int(present_.size()),
                                Deadline::after(2 * kTurnLimit)));
    }
    return {};
  }

  Status measure(int other) {
    const int from = options_.node, to = present_[std::size_t(other)];
    const PairMeasure measured = probe(from, to, targets_[std::size_t(other)], options_.credentials, true);
    const Watch over = TUTTI_TRY(store_->watch(pair_key("back", from, to), Deadline::after(kTurnLimit)));
    TUTTI_TRY(store_->set(pair_key("pair", from, to), to_json(measured)));
    (void)point_->answer(to, options_.credentials, over.fd(),
                         Deadline::after(kTurnLimit));  // while the other probes the path back
    return {};
  }

  Status be_measured(int other) {
    const int from = present_[std::size_t(other)], to = options_.node;
    const std::string key = pair_key("pair", from, to);
    const Watch over = TUTTI_TRY(store_->watch(key, Deadline::after(kTurnLimit)));
    (void)point_->answer(from, options_.credentials, over.fd(), Deadline::after(kTurnLimit));
    TUTTI_TRY(store_->get(key, Deadline::after(kTurnLimit)));
    const PairMeasure back = probe(to, from, targets_[std::size_t(other)], options_.credentials, false);
    return store_->set(pair_key("back", from, to), back.trouble);
  }

  Status read_pairs() {
    for (std::size_t a = 0; a < present_.size(); ++a) {
      for (std::size_t b = a + 1; b < present_.size(); ++b) {
        const auto texts = TUTTI_TRY(
            store_->multi_get({pair_key("pair", present_[a], present_[b]), pair_key("back", present_[a], present_[b])},
                              Deadline::after(kTurnLimit)));
        PairMeasure measure = TUTTI_TRY(pair_measure_from_json(texts[0]));
        measure.from = present_[a], measure.to = present_[b];
        measure.back_trouble = texts[1];
        report_.measures.push_back(std::move(measure));
      }
    }
    for (Finding& finding : check_pairs(report_.measures, names_)) report_.between.push_back(std::move(finding));
    return {};
  }

  void add(Grade grade, const char* subject, std::string fact, std::string fix = {}) {
    report_.between.push_back({grade, subject, std::move(fact), std::move(fix)});
  }

  const Options& options_;
  const std::string host_;
  Report& report_;
  std::unique_ptr<StoreServer> server_;  // node 0's; outlives the store
  std::unique_ptr<TcpStore> store_;
  std::optional<ProbePoint> point_;
  std::vector<int> present_;          // the nodes that take part
  int place_ = 0;                     // of this node among them
  std::vector<ProbeTarget> targets_;  // of those
  std::map<int, std::string> names_;
};

std::string fix_of(const Error& error) {
  if (!error.hint.empty()) return error.hint;
  if (error.code == Code::kTimeout || error.code == Code::kUnreachable)
    return "is tutti doctor started on node 0, with the same --master-addr and --master-port, and does a firewall let "
           "its port through?";
  return {};
}

constexpr int kMostRanks = 1 << 20;  // of a node

}  // namespace

std::vector<Finding> Report::all() const {
  std::vector<Finding> findings;
  for (const HostReport& host : hosts) findings.insert(findings.end(), host.findings.begin(), host.findings.end());
  findings.insert(findings.end(), between.begin(), between.end());
  return findings;
}

Result<Report> examine(const Options& options) {
  PlannedJob job = options.job;
  const bool several = job.nodes > 1;
  transport::Address store{.host = several ? options.master_address : "127.0.0.1",
                           .port = std::uint16_t(job.store_port)};
  if (options.node == 0) {
    const bool meant = !several || transport::is_loopback(store);  // literal: several nodes on one machine
    const auto found = TUTTI_TRY(rendezvous::serving_addresses(
        store, "--master-addr", meant ? rendezvous::Identity::OneHost::kUnknown : rendezvous::Identity::OneHost::kNo));
    store = found.front();
    if (several || options.fixed_ports) job.addresses = {store.host};
  }
  const HostInfo host = inspect_host(options.log_folder);
  Report report;
  HostReport mine{.node = options.node, .host = host.name, .ranks = job.ranks};
  mine.findings = check_host(host, job);
  mine.gpus = host.devices.survey.gpus;
  const std::string own = own_address(options.iface, mine.findings);
  for (Finding& finding : try_host(job)) mine.findings.push_back(std::move(finding));
  report.hosts.push_back(mine);
  if (!several) return report;
  Message message;
  message.host = host.name;
  message.version = TUTTI_VERSION;
  message.ranks = job.ranks;
  message.findings = mine.findings;
  message.gpus = mine.gpus;
  if (const Status participated = Participation(options, own, report).run(store, std::move(message)); !participated) {
    Error error = participated.error();
    const std::string fix = fix_of(error);
    error.hint.clear();
    report.whole = false;
    report.between.push_back({Grade::kFail, "rendezvous", to_string(error), fix});
  }
  return report;
}

std::string encode(const Message& message) {
  return nlohmann::json{{"host", message.host},
                        {"version", message.version},
                        {"ranks", message.ranks},
                        {"stream", to_string(message.target.stream)},
                        {"datagrams", to_string(message.target.datagrams)},
                        {"findings", to_json(message.findings)},
                        {"gpus", to_json(message.gpus)}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<Message> parse_doctor_message(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  bool whole = json.is_object();
  const auto words = [&](const char* member) {
    const auto found = whole ? json.find(member) : json.end();
    whole = whole && found != json.end() && found->is_string();
    return whole ? found->get<std::string>() : std::string();
  };
  Message message;
  message.host = words("host");
  message.version = words("version");
  const std::string stream = words("stream"), datagrams = words("datagrams"), findings = words("findings"),
                    gpus = words("gpus");
  whole = whole && json.contains("ranks") && json["ranks"].is_number_integer() && json["ranks"] >= 1 &&
          json["ranks"] <= kMostRanks;
  if (!whole)
    return Error{.code = Code::kCorrupt,
                 .detail = "the message of a node cannot be parsed",
                 .hint = "run the same version of tutti on all hosts"};
  message.ranks = json["ranks"].get<int>();
  message.target = {TUTTI_TRY(transport::parse_address(stream)), TUTTI_TRY(transport::parse_address(datagrams))};
  message.findings = TUTTI_TRY(findings_from_json(findings));
  message.gpus = TUTTI_TRY(gpus_from_json(gpus));
  return message;
}

}  // namespace tutti::doctor
