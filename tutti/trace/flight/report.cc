// Collectives of a group have the same number on all ranks, so the records are aligned by it. For each group, the call
// after the last one that every recorded rank completed is *awaited*, if anybody began it. Some members may have
// completed it (a broadcast lets its root go early), some wait in it, some have not joined it, some left no record.
//
// A rank that has not joined is not the culprit yet: it may itself wait, in another group, for another rank. So the
// waits are followed: a rank that others wait for and that waits for no other is the one to check; where there is none,
// ranks wait for one another in a circle.
//
// The records of a healthy job are written one after another while it runs, so the later ones show more calls. A group
// counts as stuck only where a rank had waited for long, or where the job had failed.
#include "tutti/trace/flight/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tutti/base/text.h"

namespace tutti::trace {
namespace {

using State = FlightOperation::State;
using Sequence = std::uint64_t;

constexpr double kLongWait = 0.5;          // seconds
constexpr std::size_t kMostSentences = 6;  // of one sort in the verdict; the table has the rest

bool was_begun(const FlightOperation& o) { return o.started != 0; }
bool is_unfinished(const FlightOperation& o) {
  return was_begun(o) && (o.state == State::kStarted || o.state == State::kFailed);
}

// One rank in one group.
struct Track {
  const FlightGroup* group = nullptr;
  std::map<Sequence, const FlightOperation*> collectives;
  Sequence completed = 0;                         // the last collective
  const FlightOperation* current = nullptr;       // the first collective that it began and did not complete
  std::vector<const FlightOperation*> exchanges;  // begun and not completed
};

// One rank.
struct RankRecord {
  const FlightDump* dump = nullptr;
  std::map<std::uint64_t, Track> tracks;  // by the id of the group
  const FlightOperation* last = nullptr;  // that it began, in any group
};

// A wait of one rank, for others.
struct Wait {
  int rank;
  const FlightOperation* operation;
  std::string group;
};

class Inquiry {
 public:
  explicit Inquiry(const std::vector<FlightDump>& dumps);
  FlightReport report();

 private:
  void examine(std::uint64_t id);
  void find_mismatch(std::uint64_t id, FlightReport::GroupPart& part) const;
  void find_awaited(std::uint64_t id, FlightReport::GroupPart& part);
  void add_rows(std::uint64_t id, FlightReport::GroupPart& part) const;
  void follow_exchanges();
  void judge();
  void judge_suspects();
  std::string circle() const;

  const RankRecord* record_of(int rank) const {
    const auto found = records_.find(rank);
    return found == records_.end() ? nullptr : &found->second;
  }
  const Track* track(int rank, std::uint64_t id) const {
    const RankRecord* const w = record_of(rank);
    const auto found = w ? w->tracks.find(id) : decltype(w->tracks.find(id)){};
    return w && found != w->tracks.end() ? &found->second : nullptr;
  }
  double ago(int rank, std::int64_t time) const;
  double waited(int rank, const FlightOperation& o) const;
  std::string whereabouts(int rank) const;
  void add_wait(int rank, const FlightOperation& o, const std::string& group, const std::vector<int>& awaited);

  std::map<int, RankRecord> records_;
  std::map<std::uint64_t, const FlightGroup*> groups_;
  double latest_ = 0;  // the time of day at which the last record was written
  bool failed_ = false;
  FlightReport report_;
  std::map<int, std::vector<Wait>> waits_;  // by the rank that waits
  std::map<int, std::set<int>> waits_for_;  // of those that are stuck
  std::set<int> awaited_;                   // by somebody
};

std::string call_of(const FlightOperation& o) { return numbered(o.call, o.sequence); }

// The file by its name and its folder: "model/train.cc:212".
std::string brief(const std::string& site) {
  const std::size_t slash = site.rfind('/');
  const std::size_t before = slash == std::string::npos || slash == 0 ? std::string::npos : site.rfind('/', slash - 1);
  return before == std::string::npos ? site : site.substr(before + 1);
}
std::string at(const std::string& site) { return site.empty() ? "" : " at " + brief(site); }

// Verbs for the ranks before them.
const char* plural(const std::vector<int>& ranks, const char* one, const char* many) {
  return ranks.size() == 1 ? one : many;
}

Inquiry::Inquiry(const std::vector<FlightDump>& dumps) {
  report_.job = dumps.front().job;
  report_.world_size = dumps.front().world_size;
  for (const FlightDump& dump : dumps) {
    latest_ = std::max(latest_, dump.wall);
    failed_ |= dump.failed;
    RankRecord& w = records_[dump.rank];
    w.dump = &dump;
    for (const FlightGroup& group : dump.groups) {
      groups_.emplace(group.id, &group);
      w.tracks[group.id].group = &group;
    }
    for (const FlightOperation& o : dump.operations) {
      if (was_begun(o) && (!w.last || o.started >= w.last->started)) w.last = &o;
      Track& t = w.tracks[dump.groups[std::size_t(o.group)].id];
      if (o.exchange) {
        if (is_unfinished(o)) t.exchanges.push_back(&o);
        continue;
      }
      t.collectives[o.sequence] = &o;
      if (o.state == State::kCompleted) t.completed = std::max(t.completed, o.sequence);
      if (is_unfinished(o) && (!t.current || o.sequence < t.current->sequence)) t.current = &o;
    }
  }
  for (int rank = 0; rank < report_.world_size; ++rank)
    if (!record_of(rank)) report_.without_record.push_back(rank);
  // Last: the ranks that only heard of the failure.
  std::map<std::pair<bool, std::string>, std::vector<int>> by_reason;
  for (const FlightDump& dump : dumps)
    if (!dump.reasons.empty())
      by_reason[{dump.reasons.front().starts_with("Aborted: "), dump.reasons.front()}].push_back(dump.rank);
  for (const auto& [reason, ranks] : by_reason) report_.reasons.push_back(ranks_words(ranks) + ": " + reason.second);
}

double Inquiry::ago(int rank, std::int64_t time) const {
  const FlightDump& dump = *record_of(rank)->dump;
  return std::max(0.0, latest_ - (dump.wall - double(dump.monotonic - time) * 1e-9));
}

// Until it ended, or until its rank wrote the record.
double Inquiry::waited(int rank, const FlightOperation& o) const {
  const std::int64_t until = o.ended ? o.ended : record_of(rank)->dump->monotonic;
  return std::max(0.0, double(until - o.started) * 1e-9);
}

void Inquiry::add_wait(int rank, const FlightOperation& o, const std::string& group, const std::vector<int>& awaited) {
  waits_[rank].push_back({rank, &o, group});
  if (!failed_ && waited(rank, o) < kLongWait) return;
  for (const int other : awaited)
    if (other != rank) waits_for_[rank].insert(other), awaited_.insert(other);
}

// The first number under which two ranks made calls that are not the same.
void Inquiry::find_mismatch(std::uint64_t id, FlightReport::GroupPart& part) const {
  struct First {
    const FlightOperation* operation;
    bool differs;
  };
  std::map<Sequence, First> calls;
  for (const int rank : part.members)
    if (const Track* const t = track(rank, id))
      for (const auto& [sequence, o] : t->collectives) {
        const auto [first, fresh] = calls.try_emplace(sequence, First{o, false});
        if (!fresh && first->second.operation->call != o->call) first->second.differs = true;
      }
  const auto found = std::find_if(calls.begin(), calls.end(), [](const auto& c) { return c.second.differs; });
  if (found == calls.end()) return;
  part.mismatch = found->first;
  for (const int rank : part.members) {
    const Track* const t = track(rank, id);
    const auto mine = t ? t->collectives.find(part.mismatch) : decltype(t->collectives.find(0)){};
    if (!t || mine == t->collectives.end()) continue;
    const FlightOperation& o = *mine->second;
    const auto variant = std::find_if(part.variants.begin(), part.variants.end(),
                                      [&](const FlightReport::Variant& v) { return v.call == o.call; });
    if (variant == part.variants.end())
      part.variants.push_back({.call = o.call, .ranks = {rank}, .site = o.site});
    else
      variant->ranks.push_back(rank);
  }
}

void Inquiry::find_awaited(std::uint64_t id, FlightReport::GroupPart& part) {
  Sequence low = ~Sequence(0), high = 0;
  for (const int rank : part.members) {
    const RankRecord* const w = record_of(rank);
    const Track* const t = track(rank, id);
    if (!w) part.without_record.push_back(rank);
    if (!w) continue;
    low = std::min(low, t ? t->completed : 0);
    if (t) high = std::max({high, t->completed, t->current ? t->current->sequence : 0});
  }
  part.completed_by_all = low;
  for (const int rank : part.members)
    if (const Track* const t = track(rank, id))
      if (const auto found = t->collectives.find(low); found != t->collectives.end())
        part.completed_call = found->second->call;
  if (high <= low) {
    part.without_record.clear();
    return;
  }
  part.awaited = low + 1;
  for (const int rank : part.members) {
    const Track* const t = track(rank, id);
    if (!record_of(rank)) continue;
    const auto mine = t ? t->collectives.find(part.awaited) : decltype(t->collectives.find(0)){};
    const FlightOperation* const o = t && mine != t->collectives.end() ? mine->second : nullptr;
    if (t && t->completed >= part.awaited) {
      part.done.push_back(rank);
    } else if (o && is_unfinished(*o)) {
      part.waiting.push_back(rank);
      part.waited = std::max(part.waited, waited(rank, *o));
    } else {
      part.missing.push_back(rank);
    }
    if (o && part.awaited_call.empty()) part.awaited_call = o->call;
  }
  std::vector<int> absent = part.missing;
  absent.insert(absent.end(), part.without_record.begin(), part.without_record.end());
  for (const int rank : part.waiting) add_wait(rank, *track(rank, id)->collectives.at(part.awaited), part.name, absent);
}

// The current or last call of a rank.
std::string Inquiry::whereabouts(int rank) const {
  const RankRecord* const w = record_of(rank);
  if (!w) return "it left no record";
  if (const auto waits = waits_.find(rank); waits != waits_.end()) {
    const Wait& wait = waits->second.front();
    return fmt::format("it has been in {} on group {}{} for {}", call_of(*wait.operation), wait.group,
                       at(wait.operation->site), seconds_text(waited(rank, *wait.operation)));
  }
  if (!w->last) return "it has made no call yet";
  const FlightOperation& o = *w->last;
  const std::string& group = w->dump->groups[std::size_t(o.group)].name;
  if (is_unfinished(o))  // and all other ranks have joined it
    return fmt::format("it has been in {} on group {}{} for {}", call_of(o), group, at(o.site),
                       seconds_text(waited(rank, o)));
  return fmt::format("it has been in no call for {}; its last call was {} on group {}{}",
                     seconds_text(ago(rank, o.ended ? o.ended : o.started)), call_of(o), group, at(o.site));
}

void Inquiry::add_rows(std::uint64_t id, FlightReport::GroupPart& part) const {
  for (const int rank : part.members) {
    FlightReport::Row row{.ranks = {rank}};
    const RankRecord* const w = record_of(rank);
    const Track* const t = track(rank, id);
    if (t) row.completed = t->completed;
    const FlightOperation* const o = t ? t->current : nullptr;
    if (!w) {
      row.now = "no record";
    } else if (o) {
      row.now = (o->state == State::kFailed ? "failed in " : "waits in ") + call_of(*o);
      row.seconds = waited(rank, *o);
      row.site = brief(o->site);
    } else {
      const bool missing = std::binary_search(part.missing.begin(), part.missing.end(), rank);
      row.now = t && t->group->left ? "has left the group"
                : missing           ? fmt::format("not in #{} yet", part.awaited)
                                    : "in no call of this group";
      if (const auto last = t ? t->collectives.find(t->completed) : decltype(t->collectives.find(0)){};
          t && last != t->collectives.end()) {
        row.seconds = ago(rank, last->second->ended ? last->second->ended : last->second->started);
        row.site = brief(last->second->site);
      }
    }
    const auto same = std::find_if(part.rows.begin(), part.rows.end(), [&](const FlightReport::Row& other) {
      return other.completed == row.completed && other.now == row.now && other.site == row.site;
    });
    if (same == part.rows.end()) {
      part.rows.push_back(std::move(row));
    } else {
      same->ranks.push_back(rank);
      same->seconds = std::max(same->seconds, row.seconds);
    }
  }
}

void Inquiry::examine(std::uint64_t id) {
  FlightReport::GroupPart part;
  part.name = groups_.at(id)->name;
  part.members = groups_.at(id)->global_ranks;
  std::sort(part.members.begin(), part.members.end());
  find_mismatch(id, part);
  find_awaited(id, part);
  add_rows(id, part);
  report_.groups.push_back(std::move(part));
}

void Inquiry::follow_exchanges() {
  for (const auto& [rank, w] : records_)
    for (const auto& [id, t] : w.tracks)
      for (const FlightOperation* const o : t.exchanges) {
        std::vector<int> peer;
        if (o->root >= 0 && std::size_t(o->root) < t.group->global_ranks.size())
          peer.push_back(t.group->global_ranks[std::size_t(o->root)]);
        add_wait(rank, *o, t.group->name, peer);
      }
}

// Every rank that is awaited waits for another: from any of them the way leads into a circle.
std::string Inquiry::circle() const {
  std::vector<int> way = {waits_for_.begin()->first};
  for (;;) {
    const int next = *waits_for_.at(way.back()).begin();
    const auto before = std::find(way.begin(), way.end(), next);
    if (before != way.end()) {
      way.erase(way.begin(), before);
      break;
    }
    way.push_back(next);
  }
  std::sort(way.begin(), way.end());
  std::string text = ranks_words(way) + " wait for one another";
  for (std::size_t i = 0; i < std::min(way.size(), kMostSentences); ++i) {
    const Wait& wait = waits_.at(way[i]).front();
    text += fmt::format("{} rank {} in {} on group {}{}", i == 0 ? ":" : ",", way[i], call_of(*wait.operation),
                        wait.group, at(wait.operation->site));
  }
  return text;
}

void Inquiry::judge_suspects() {
  std::vector<int> silent, idle;
  for (const int rank : awaited_) {
    if (!record_of(rank))
      silent.push_back(rank);
    else if (!waits_for_.count(rank))
      idle.push_back(rank);
  }
  if (!silent.empty())
    report_.verdict.push_back(fmt::format(
        "{} left no record: {} killed (SIGKILL), crashed, {} stopped, or {} not asked for one", ranks_words(silent),
        plural(silent, "it was", "they were"), plural(silent, "is", "are"), plural(silent, "was", "were")));
  for (std::size_t i = 0; i < std::min(idle.size(), kMostSentences); ++i)
    report_.verdict.push_back(fmt::format("rank {} did not join: {}", idle[i], whereabouts(idle[i])));
  if (const std::size_t more = idle.size() - std::min(idle.size(), kMostSentences))
    report_.verdict.push_back(fmt::format("{} more rank{} did not join", more, more == 1 ? "" : "s"));
  if (silent.empty() && idle.empty() && !waits_for_.empty()) report_.verdict.push_back(circle());
}

void Inquiry::judge() {
  std::vector<std::string>& verdict = report_.verdict;
  for (const FlightReport::GroupPart& part : report_.groups) {
    if (part.mismatch == 0) continue;
    std::string text = fmt::format("different calls on group {}:", part.name);
    for (std::size_t i = 0; i < part.variants.size(); ++i)
      text += fmt::format("{} {} called {}{}", i == 0 ? "" : ",", ranks_words(part.variants[i].ranks),
                          numbered(part.variants[i].call, part.mismatch), at(part.variants[i].site));
    verdict.push_back(text);
    report_.stuck = true;
  }
  std::size_t told = 0;
  double longest = 0;
  for (const FlightReport::GroupPart& part : report_.groups) {
    longest = std::max(longest, part.waited);
    if (part.waiting.empty() || (!failed_ && part.waited < kLongWait)) continue;
    report_.stuck = true;
    if (part.mismatch == part.awaited || ++told > kMostSentences) continue;
    std::string text =
        fmt::format("{} {} in {} on group {} for {}", ranks_words(part.waiting), plural(part.waiting, "waits", "wait"),
                    numbered(part.awaited_call, part.awaited), part.name, seconds_text(part.waited));
    if (!part.missing.empty())
      text += fmt::format("; {} {} not joined", ranks_words(part.missing), plural(part.missing, "has", "have"));
    if (!part.without_record.empty()) text += fmt::format("; {} left no record", ranks_words(part.without_record));
    if (!part.done.empty())
      text += fmt::format("; {} {} completed it", ranks_words(part.done), plural(part.done, "has", "have"));
    if (part.missing.empty() && part.without_record.empty())
      text += "; every rank has joined: data still moves, or a rank is stopped";
    verdict.push_back(text);
  }
  if (told > kMostSentences) verdict.push_back(fmt::format("{} more groups wait", told - kMostSentences));
  told = 0;
  for (const auto& [rank, waits] : waits_)
    for (const Wait& wait : waits)
      if (wait.operation->exchange && waits_for_.count(rank)) {
        report_.stuck = true;
        if (++told <= kMostSentences)
          verdict.push_back(fmt::format("rank {} waits in {} on group {}{} for {}", rank, call_of(*wait.operation),
                                        wait.group, at(wait.operation->site),
                                        seconds_text(waited(rank, *wait.operation))));
      }
  if (told > kMostSentences) verdict.push_back(fmt::format("{} more sends and receives wait", told - kMostSentences));
  judge_suspects();
  if (!verdict.empty()) return;
  verdict.push_back(waits_.empty()
                        ? "no rank waits for another"
                        : fmt::format("nothing is stuck: no rank had waited longer than {} when the records were "
                                      "written",
                                      seconds_text(longest)));
  if (!report_.without_record.empty())
    verdict.push_back(fmt::format("{} left no record", ranks_words(report_.without_record)));
}

FlightReport Inquiry::report() {
  for (const auto& [id, group] : groups_) examine(id);
  follow_exchanges();
  const auto trouble = [](const FlightReport::GroupPart& part) {
    return part.mismatch                                                             ? 0
           : part.awaited && (!part.missing.empty() || !part.without_record.empty()) ? 1
           : part.awaited                                                            ? 2
                                                                                     : 3;
  };
  std::stable_sort(report_.groups.begin(), report_.groups.end(), [&](const auto& a, const auto& b) {
    return std::tuple(trouble(a), -a.waited, a.name, a.members) < std::tuple(trouble(b), -b.waited, b.name, b.members);
  });
  judge();
  return std::move(report_);
}

}  // namespace

FlightReport make_flight_report(const std::vector<FlightDump>& dumps) { return Inquiry(dumps).report(); }

}  // namespace tutti::trace
