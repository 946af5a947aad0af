// The keys, below join/:
//   world       the RankInfo of the first rank that came; all others compare their world sizes. Rank 0 appends a word
//               once all have come: a process that finds it on arrival is one too many
//   member/R    the processes that came as rank R, a line each: all but the first replace killed ones, or duplicate it
//   arrivals    the gather_all in which all ranks wait, and whose values are the RankInfo of each
//   tokens      of all that came, as "a2f0 77b1 "
//   trouble     the error of the process that found the ranks to disagree
//   told/TOKEN  that process has read the trouble, or found it, or has given up
//   gave_up     a line for each process that gave up: its rank, its token, and how long it had waited
// A rank that was killed while it waited and is started again finds its own old line in member/R. So that key accuses
// no process: it only gives the name, when the gather_all reports that the rank is there already. (It may report that
// to the first process as well as to the second.)
//
// A gather_all cannot be cancelled by others, so the wait is cut into slices: between two of them a rank checks for
// trouble, and every rank fails with the same message within seconds, instead of some with another's closed connection
// or after the whole limit. Rank 0 may serve the store: it stays until the other ranks have read the trouble.
//
// Over a wide area every call takes its time: where all is well there are four, and the first slice is longer than one.
#include "tutti/rendezvous/assembly.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/transport/handshake.h"
#include "tutti/version.h"

namespace tutti::rendezvous {
namespace {

constexpr int kCalls = 4;  // that the first slice lasts, at least
constexpr Duration kFirstSlice = std::chrono::milliseconds(100), kLongestSlice = std::chrono::seconds(5);
constexpr Duration kFarewell =
    std::chrono::seconds(8);  // for the others to read the trouble: more than the longest slice
constexpr Duration kAskLimit = std::chrono::seconds(2);  // to find out who never came
constexpr std::size_t kMostNamed = 8;                    // of those that have come
constexpr int kMostAsked = 64;                           // for them
constexpr const char* kWorld = "join/world";
constexpr const char* kArrivals = "join/arrivals";
constexpr const char* kTokens = "join/tokens";
constexpr const char* kComplete = "\ncomplete";  // at the end of kWorld
constexpr const char* kTrouble = "join/trouble";
constexpr const char* kGaveUp = "join/gave_up";
std::string member_key(int rank) { return "join/member/" + std::to_string(rank); }
std::string told_key(const std::string& token) { return "join/told/" + token; }

std::string process(const RankInfo& arrival) { return "pid " + std::to_string(arrival.pid) + " on " + arrival.host; }

Error wrong_size(const RankInfo& me, const RankInfo& first) {
  return Error{.code = Code::kMismatch,
               .detail = "this is " + process(me) + " and says the world has " + std::to_string(me.world_size) +
                         " ranks (" + me.world_size_source + "), but " + to_string(first) + " says " +
                         std::to_string(first.world_size) + " (" + first.world_size_source + ")",
               .hint = "give every rank the same world size; if they belong to two jobs, give these different ports"};
}

// Two calls of init() in one process. Numbers of processes and names of hosts alone do not tell: two containers may
// share both.
bool is_this_process(const RankInfo& me, const RankInfo& other) {
  const auto process_part = [](const RankInfo& a) { return a.token.substr(0, a.token.find('.')); };
  return me.pid == other.pid && process_part(me) == process_part(other);
}

Error called_twice(const RankInfo& me) {
  return Error{.code = Code::kUsage,
               .detail = "init() was called already in this process, " + process(me),
               .hint = "call it once and pass the world Group on; Group::split() makes further groups"};
}

Error duplicate(const RankInfo& me, const RankInfo& other) {
  return Error{.code = Code::kMismatch,
               .detail = "two processes are rank " + std::to_string(me.rank) + ": this one, " + process(me) + " (" +
                         me.rank_source + "), and " + process(other) + " (" + other.rank_source + ")",
               .hint = "give every rank its own number; if they belong to two jobs, give these different ports"};
}

Error one_too_many(const RankInfo& me, const std::optional<RankInfo>& other) {
  if (other && is_this_process(me, *other)) return called_twice(me);
  return Error{.code = Code::kMismatch,
               .detail = "all " + std::to_string(me.world_size) + " ranks of this job have already joined" +
                         (other ? "; rank " + std::to_string(me.rank) + " is " + process(*other) : std::string()) +
                         ", so this process, " + process(me) + ", is one too many",
               .hint = "was it started twice, or does it belong to another job at the same place?"};
}

class Assembly {
 public:
  Assembly(Store& store, const RankInfo& me, Deadline deadline, const std::string& place,
           const std::function<std::optional<Error>()>& wrong)
      : store_(store), me_(me), mine_(encode(me)), deadline_(deadline), place_(place), wrong_(wrong) {}

  Result<std::vector<RankInfo>> run() {
    TUTTI_TRY(store_.append(member_key(me_.rank), mine_ + "\n"));
    TUTTI_TRY(store_.append(kTokens, me_.token + " "));
    const auto asked = now();
    const auto world = TUTTI_TRY(store_.compare_set(kWorld, std::nullopt, mine_));
    const Duration call = now() - asked;
    if (!world.stored && world.value) {
      if (world.value->ends_with(kComplete)) return one_too_many(me_, TUTTI_TRY(other_process_of_this_rank()));
      const RankInfo first = TUTTI_TRY(decode(*world.value));
      if (first.world_size != me_.world_size) return report_to_all(wrong_size(me_, first));
    }
    const auto values = TUTTI_TRY(gather(std::clamp<Duration>(kCalls * call, kFirstSlice, kLongestSlice)));
    std::vector<RankInfo> arrivals;
    for (const std::string& value : values) arrivals.push_back(TUTTI_TRY(decode(value)));
    if (me_.rank == 0) TUTTI_TRY(store_.append(kWorld, kComplete));
    return arrivals;
  }

 private:
  Result<std::vector<std::string>> gather(Duration slice) {
    double next_line = to_seconds(kLongestSlice);
    for (;; slice = std::min(slice * 2, kLongestSlice)) {
      auto values = store_.gather_all(kArrivals, me_.rank, me_.world_size, mine_, deadline_.at_most(slice));
      if (values.ok()) return values;
      const Error& error = values.error();
      if (error.code == Code::kMismatch)
        if (const auto other = TUTTI_TRY(other_process_of_this_rank())) return report_to_all(duplicate(me_, *other));
      if (error.code != Code::kTimeout) return values;
      if (TUTTI_TRY(store_.check({kTrouble}))) return read_reported_error();
      if (TUTTI_TRY(store_.get(kWorld, deadline_)).ends_with(kComplete))
        if (const auto other = TUTTI_TRY(other_process_of_this_rank())) return one_too_many(me_, other);
      if (const auto error = wrong_ ? wrong_() : std::nullopt) return report_to_all(*error);
      if (deadline_.expired()) {
        const Error timeout = deadline_.error(absent_ranks_text(me_.world_size).value_or(error.detail),
                                              error.hint + (place_.empty() ? "" : "; the ranks meet at " + place_));
        if (me_.rank == 0) return report_to_all(timeout);  // with rank 0 the store may end, so the others end here too
        (void)store_.set(told_key(me_.token), "");         // rank 0 need not wait for this one
        const std::string waited = std::to_string(std::llround(deadline_.limit() * 1000));  // milliseconds
        (void)store_.append(kGaveUp, std::to_string(me_.rank) + " " + me_.token + " " + waited + "\n");
        return timeout;
      }
      if (deadline_.waited() < next_line) continue;
      log::info("waiting for the other ranks, " + seconds_text(deadline_.waited()) + " of " +
                seconds_text(deadline_.limit()) + " so far: " + absent_ranks_text(kMostAsked).value_or(error.detail) +
                present_ranks_text() + (place_.empty() ? "" : "; the ranks meet at " + place_));
      next_line = deadline_.waited() + to_seconds(kLongestSlice);
    }
  }

  // "rank 1 of 3 did not join; rank 2 joined and timed out after 4 s". A rank that gave up has left the gather_all,
  // whose error says that it did not join. None: no rank is absent, or there are more than `most` ranks to ask for.
  std::optional<std::string> absent_ranks_text(int most) {
    if (me_.world_size > most) return std::nullopt;
    const Deadline limit = Deadline::after(kAskLimit);
    std::vector<int> ranks;
    for (int rank = 0; rank < me_.world_size; ++rank) {
      const auto came = rank == me_.rank ? Result<bool>(true) : store_.check({member_key(rank)});
      if (!came.ok() || limit.expired()) return std::nullopt;
      if (!*came) ranks.push_back(rank);
    }
    std::vector<std::string> clauses;
    if (!ranks.empty())
      clauses.push_back(ranks_words(ranks) + " of " + std::to_string(me_.world_size) + " did not join");
    for (const auto& [rank, waited] : ranks_that_gave_up())
      clauses.push_back("rank " + std::to_string(rank) + " joined and timed out after " + waited);
    return clauses.empty() ? std::nullopt : std::optional(join(clauses, "; "));
  }

  // By rank, how long it waited. Not a rank that has come again.
  std::map<int, std::string> ranks_that_gave_up() {
    std::map<int, std::string> ranks;
    const auto somebody = store_.check({kGaveUp});
    if (!somebody.ok() || !*somebody) return ranks;
    const auto lines = store_.get(kGaveUp, Deadline::after(kFirstSlice));
    if (!lines.ok()) return ranks;
    for (const std::string& line : split(trim(*lines), '\n')) {
      const auto words = split(line, ' ');
      if (words.size() != 3) continue;
      const auto rank = parse_int(words[0]), waited = parse_int(words[2]);
      if (!rank || !waited || *rank < 0 || *rank >= me_.world_size || *rank == me_.rank) continue;
      if (const auto last = last_process_of(int(*rank)); last && last->token == words[1])
        ranks[int(*rank)] = seconds_text(double(*waited) / 1000);
    }
    return ranks;
  }

  // The process that came last as this rank; none: no process did, or the store does not answer.
  std::optional<RankInfo> last_process_of(int rank) {
    const auto there = store_.check({member_key(rank)});
    if (!there.ok() || !*there) return std::nullopt;
    const auto lines = store_.get(member_key(rank), Deadline::after(kFirstSlice));
    const auto arrival = lines.ok() ? decode(split(trim(*lines), '\n').back()) : Result<RankInfo>(Error{});
    return arrival.ok() ? std::optional(*arrival) : std::nullopt;
  }

  // "; here: rank 0 (pid 7 on a), rank 2 (pid 9 on b)": this rank, and of the others as many as a line can have.
  std::string present_ranks_text() {
    const auto gave_up = ranks_that_gave_up();
    std::vector<std::string> names;
    for (int rank = 0; rank < me_.world_size && names.size() < kMostNamed; ++rank) {
      if (rank == me_.rank) names.push_back(to_string(me_));
      if (rank == me_.rank || rank >= kMostAsked || gave_up.contains(rank)) continue;
      if (const auto arrival = last_process_of(rank)) names.push_back(to_string(*arrival));
    }
    return "; here: " + join(names, ", ") + (names.size() == kMostNamed ? " ..." : "");
  }

  // The last process that came as the same rank and is not this one.
  Result<std::optional<RankInfo>> other_process_of_this_rank() {
    std::optional<RankInfo> other;
    for (const std::string& line : split(trim(TUTTI_TRY(store_.get(member_key(me_.rank), deadline_))), '\n')) {
      const RankInfo arrival = TUTTI_TRY(decode(line));
      if (arrival != me_) other = arrival;
    }
    return other;
  }

  // Reports the error to all ranks, once; the first trouble stands.
  Error report_to_all(Error error) {
    const auto told = store_.compare_set(kTrouble, std::nullopt, encode_trouble(error));
    if (told.ok()) (void)store_.set(told_key(me_.token), "");
    if (told.ok() && me_.rank == 0) wait_for_readers();
    return error;
  }

  Error read_reported_error() {
    const auto text = store_.get(kTrouble, Deadline::after(kFarewell));
    if (!text.ok()) return text.error();
    (void)store_.set(told_key(me_.token), "");
    if (me_.rank == 0) wait_for_readers();
    return decode_trouble(*text);
  }

  // A rank that waits reads the trouble after its slice; one that has died never will.
  void wait_for_readers() {
    const auto tokens = store_.get(kTokens, Deadline::after(kFarewell));
    if (!tokens.ok()) return;
    std::vector<std::string> keys;
    for (const std::string& token : split(trim(*tokens), ' '))
      if (token != me_.token) keys.push_back(told_key(token));
    if (!keys.empty()) (void)store_.wait(keys, Deadline::after(kFarewell));
  }

  Store& store_;
  const RankInfo& me_;
  const std::string mine_;
  Deadline deadline_;
  const std::string place_;  // empty: not known
  const std::function<std::optional<Error>()>& wrong_;
};

}  // namespace

RankInfo rank_info_of(const Identity& identity, const std::string& local_host) {
  static const std::string process_token = transport::Secret::random().fingerprint();
  return RankInfo{.rank = identity.rank,
                  .world_size = identity.world_size,
                  .world_size_source = identity.world_size_source,
                  .rank_source = identity.rank_source,
                  .host = host_name(),
                  .machine = machine_id(),
                  .pid = int(::getpid()),
                  .local_host = local_host,
                  .release = TUTTI_VERSION,
                  .program = program_name(),
                  .build = program_build(),
                  .token = process_token + "." + transport::Secret::random().fingerprint()};
}

std::string to_string(const RankInfo& arrival) {
  return "rank " + std::to_string(arrival.rank) + " (" + process(arrival) + ")";
}

std::string encode(const RankInfo& a) {
  const nlohmann::json json = {{"rank", a.rank},
                               {"world_size", a.world_size},
                               {"world_size_source", a.world_size_source},
                               {"rank_source", a.rank_source},
                               {"host", a.host},
                               {"machine", a.machine},
                               {"pid", a.pid},
                               {"local_host", a.local_host},
                               {"release", a.release},
                               {"program", a.program},
                               {"build", a.build},
                               {"token", a.token}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // a host name need not be UTF-8
}

Result<RankInfo> decode(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Error wrong{.code = Code::kCorrupt,
                    .detail = "the message of another rank cannot be parsed: " + text.substr(0, 200),
                    .hint = "do all ranks run the same version of tutti?"};
  if (!json.is_object()) return wrong;
  RankInfo arrival;
  const auto read = [&](const char* name, auto& to) {
    const auto at = json.find(name);
    if constexpr (std::is_same_v<decltype(to), int&>) {
      if (at == json.end() || !at->is_number_integer() || !std::in_range<int>(at->template get<std::int64_t>()))
        return false;
      to = at->template get<int>();
    } else {
      if (at == json.end() || !at->is_string()) return false;
      to = at->template get<std::string>();
    }
    return true;
  };
  if (read("rank", arrival.rank) && read("world_size", arrival.world_size) &&
      read("world_size_source", arrival.world_size_source) && read("rank_source", arrival.rank_source) &&
      read("host", arrival.host) && read("machine", arrival.machine) && read("pid", arrival.pid) &&
      read("local_host", arrival.local_host) && read("token", arrival.token)) {
    (void)(read("release", arrival.release) && read("program", arrival.program) && read("build", arrival.build));
    return arrival;
  }
  return wrong;
}

std::string encode_trouble(const Error& error) {
  const nlohmann::json json = {{"timeout", error.code == Code::kTimeout},
                               {"detail", error.detail},
                               {"hint", error.hint},
                               {"waited", error.waited},
                               {"limit", error.limit}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Error decode_trouble(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  Error error{.code = Code::kMismatch, .detail = "another rank reported that the ranks do not agree"};
  if (!json.is_object()) return error;
  const auto word = [&](const char* name, std::string& to) {
    if (const auto at = json.find(name); at != json.end() && at->is_string()) to = at->get<std::string>();
  };
  const auto number = [&](const char* name, double& to) {
    if (const auto at = json.find(name); at != json.end() && at->is_number()) to = at->get<double>();
  };
  if (const auto at = json.find("timeout"); at != json.end() && *at == true) error.code = Code::kTimeout;
  word("detail", error.detail);
  word("hint", error.hint);
  number("waited", error.waited);
  number("limit", error.limit);
  return error;
}

Result<std::vector<RankInfo>> assemble(Store& store, const RankInfo& me, Deadline deadline, const std::string& place,
                                       const std::function<std::optional<Error>()>& wrong) {
  return Assembly(store, me, deadline, place, wrong).run();
}

Status check_builds(const std::vector<RankInfo>& world, bool mixed) {
  const auto named = [](const std::string& word) { return word.empty() ? std::string("an older one") : word; };
  const RankInfo& first = world.front();
  for (const RankInfo& other : world) {
    if (other.release != first.release)
      return Error{.code = Code::kMismatch,
                   .detail = to_string(first) + " was built with tutti " + named(first.release) + ", but " +
                             to_string(other) + " with " + named(other.release),
                   .hint = "build the program with the same release on all machines"};
    if (mixed || other.build == first.build || other.program != first.program) continue;
    return Error{.code = Code::kMismatch,
                 .detail = to_string(first) + " and " + to_string(other) + " run different builds of " + first.program +
                           " (" + first.build.substr(0, 8) + " and " + other.build.substr(0, 8) + ")",
                 .hint = "copy the same file to all machines; if they are meant to differ, set TUTTI_MIXED_BUILDS=1"};
  }
  return {};
}

Status check_addresses(const std::vector<RankInfo>& world) {
  bool several = false;
  for (const RankInfo& arrival : world) several = several || arrival.machine != world.front().machine;
  if (!several) return {};
  for (const RankInfo& arrival : world)
    if (!arrival.local_host.empty() && transport::is_loopback(transport::Address{.host = arrival.local_host}))
      return Error{.code = Code::kUsage,
                   .detail = to_string(arrival) + " would advertise the loopback address " + arrival.local_host +
                             ", which the ranks on other machines cannot reach",
                   .hint =
                       "set MASTER_ADDR to an address of rank 0's machine on the network that the machines share; if "
                       "it is a name, "
                       "the line for it in /etc/hosts must not say " +
                       arrival.local_host};
  return {};
}

}  // namespace tutti::rendezvous
