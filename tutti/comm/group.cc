// The handle: metadata, sub-groups, and the convenience functions built from the verbs.
#include "tutti/comm/group.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <random>
#include <set>

#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group/group_state.h"
#include "tutti/comm/links/select.h"

namespace tutti {
namespace {

// Exchanges a short text with every rank of `group`, by rank. Longer texts are truncated.
constexpr std::size_t kNote = 512;
Result<std::vector<std::string>> exchange_notes(const Group& group, std::string mine) {
  mine.resize(kNote - 1);  // zero-filled
  mine.push_back('\0');
  std::string all(kNote * group.size(), '\0');
  TUTTI_TRY(
      group.run({.kind = Kind::kAllGather, .dtype = DType::kU8, .in = mine.data(), .out = all.data(), .count = kNote}));
  std::vector<std::string> notes;
  for (int r = 0; r < group.size(); ++r) notes.emplace_back(all.c_str() + kNote * r);
  return notes;
}

// Runs `act` if it is this rank's turn. Then all ranks learn whether it failed.
void act_and_tell(const Group& group, bool my_turn, const std::function<void()>& act) {
  group.status().or_throw();
  std::string trouble;
  std::exception_ptr thrown;
  if (my_turn) {
    try {
      act();
    } catch (const std::exception& e) {
      trouble = *e.what() ? e.what() : "an exception without a message";
      thrown = std::current_exception();
    } catch (...) {
      trouble = "an exception that is not a std::exception";
      thrown = std::current_exception();
    }
  }
  const auto notes = exchange_notes(group, trouble);
  if (thrown) std::rethrow_exception(thrown);
  notes.status().or_throw();
  for (int r = 0; r < group.size(); ++r)
    if (!(*notes)[r].empty())
      throw Exception(Error{.code = Code::kAborted,
                            .detail = "failed in its turn: " + (*notes)[r],
                            .group = group.name(),
                            .rank = group.rank(),
                            .peer = r});
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a + 0x9e3779b97f4a7c15ull) ^ (b * 0xbf58476d1ce4e5b9ull);
  h ^= h >> 31;
  h *= 0x94d049bb133111ebull;
  return (h ^ h >> 29) >> 2;  // the shift leaves two bits for the purpose of a link
}

// Checks the deadline of a new group; 0 means none of its own.
Status check_timeout(const char* verb, Duration timeout) {
  const Duration most = from_seconds(std::numeric_limits<double>::infinity());
  if (timeout >= Duration(0) && timeout <= most) return {};
  return invalid_argument(detail::words(verb, ": the timeout is ", seconds_text(to_seconds(timeout))),
                          "give the time that a call may take, at most 100 years, or 0 for the timeout of this group");
}

// "a timeout of 2 s", "no timeout of its own"
std::string timeout_text(Duration timeout) {
  return timeout.count() > 0 ? "a timeout of " + seconds_text(to_seconds(timeout)) : "no timeout of its own";
}

const comm::Process::Rank& whereabouts(const comm::GroupState& state, int rank) {
  return state.process().world[state.spec().global_ranks[rank]];
}

// Shared by all handles of a group. Its destructor leaves the group.
struct Handles {
  explicit Handles(std::shared_ptr<comm::GroupState> of) : group(std::move(of)) { group->process().add_member(); }
  Handles(const Handles&) = delete;
  ~Handles() {
    if (group->process().is_copy()) {  // after a fork: the threads, sockets and peers are the parent's
      new std::shared_ptr<comm::GroupState>(std::move(group));  // never destroyed
      return;
    }
    group->leave(unwinding.is_past());
    const auto process = group->process_ptr();
    group.reset();
    process->remove_member(unwinding.is_past());
  }
  std::shared_ptr<comm::GroupState> group;
  const Unwinding unwinding{};
};

}  // namespace

Group::Group(std::shared_ptr<comm::GroupState> state) {
  if (!state) return;
  const auto handles = std::make_shared<Handles>(std::move(state));
  state_ = std::shared_ptr<comm::GroupState>(handles, handles->group.get());
}

comm::GroupState& Group::state() const {
  TUTTI_REQUIRE(state_,
                "this rank is not in the group: split() and new_group() gave it an empty Group, which has no rank and "
                "takes no calls (hint: ask `if (group)` first)");
  return *state_;
}

int Group::rank() const { return state().rank(); }
int Group::size() const { return state_ ? state_->size() : 0; }
const std::string& Group::name() const { return state().spec().name; }
std::span<const int> Group::global_ranks() const { return state().spec().global_ranks; }

void Group::step(std::int64_t number) const {
  if (trace::ProgressPage* const page = state().process().page.get()) page->begin_step(number);
}

int Group::local_rank() const {
  int before = 0;
  for (int r = 0; r < rank(); ++r) before += whereabouts(state(), r).agent == whereabouts(state(), rank()).agent;
  return before;
}
int Group::local_size() const {
  int here = 0;
  for (int r = 0; r < size(); ++r) here += whereabouts(state(), r).agent == whereabouts(state(), rank()).agent;
  return here;
}
int Group::node() const {
  std::set<int> before;
  for (int r = 0; r < size(); ++r) {
    if (whereabouts(state(), r).node == whereabouts(state(), rank()).node) break;
    before.insert(whereabouts(state(), r).node);
  }
  return int(before.size());
}
int Group::nodes() const {
  std::set<int> all;
  for (int r = 0; r < size(); ++r) all.insert(whereabouts(state(), r).node);
  return int(all.size());
}

Duration Group::timeout() const { return state().limit(); }

std::string Group::device() const { return state().device(); }

Work Group::submit(const Request& request, CallSite at) const {
  auto submission = state().submit(request, at);
  return submission.ok() ? Work(*std::move(submission), state_) : Work(submission.status());
}
Works Group::submit(std::span<const Request> requests, CallSite at) const {
  auto submissions = state().submit(requests, at);
  std::vector<Work> works;
  for (std::size_t i = 0; i < requests.size(); ++i)
    works.push_back(submissions.ok() ? Work((*submissions)[i], state_) : Work(submissions.status()));
  return Works(std::move(works));
}
Status Group::run(const Request& request, CallSite at) const { return state().run(request, at); }
Status Group::monitored_barrier(Duration limit) const { return state().monitored_barrier(limit); }
void Group::abort(Error error) const { state().abort(std::move(error)); }
Status Group::status() const { return state().status(); }

struct Group::Choice {
  std::int32_t color, key;
  std::uint64_t list;  // for new_group and new_subgroups: a digest of their arguments
  Duration timeout;    // 0: that of this group
};

Result<Group> Group::split(int color, int key, const std::string& name, Duration timeout) const {
  TUTTI_TRY(check_timeout("split", timeout));
  return split({color, key, 0, timeout}, name);
}

Result<Group> Group::split(const Choice& mine, const std::string& name) const {
  const int color = mine.color;
  std::vector<Choice> all(size());
  TUTTI_TRY(run({.kind = Kind::kAllGather, .dtype = DType::kU8, .in = &mine, .out = all.data(), .count = sizeof mine}));
  for (int r = 0; r < size(); ++r)
    if (all[r].list != mine.list)
      return Error{.code = Code::kMismatch,
                   .detail = "gave another list of ranks for the new group, or groups, than this rank",
                   .hint = "every rank, member or not, gives the same list in the same order",
                   .group = this->name(),
                   .rank = rank(),
                   .peer = r};
  const std::uint64_t child = state().next_child();

  std::vector<int> members;  // ranks of this group
  for (int r = 0; r < size(); ++r)
    if (all[r].color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return all[a].key < all[b].key; });

  // Every rank takes part in the one exchange of create(), member or not, even if it fails.
  bool exchanged = false;
  const auto exchange = [&](const std::string& note) -> Result<std::vector<std::string>> {
    exchanged = true;
    const std::vector<std::string> notes = TUTTI_TRY(exchange_notes(*this, note));
    std::vector<std::string> of_members;
    for (int r : members) of_members.push_back(notes[r]);
    return of_members;
  };
  Result<std::shared_ptr<comm::GroupState>> made = std::shared_ptr<comm::GroupState>();
  const auto differs =
      std::find_if(members.begin(), members.end(), [&](int r) { return all[r].timeout != mine.timeout; });
  if (color >= 0 && differs != members.end()) {
    made = Error{.code = Code::kMismatch,
                 .detail = "gave the new group " + timeout_text(all[*differs].timeout) + ", this rank " +
                           timeout_text(mine.timeout),
                 .hint = "all ranks of a new group give the same timeout",
                 .group = this->name(),
                 .rank = rank(),
                 .peer = *differs};
  } else if (color >= 0) {
    comm::GroupState::Spec spec;
    spec.limit = mine.timeout.count() > 0 ? mine.timeout : state().spec().limit;
    spec.name = this->name() + "/" + (name.empty() ? detail::words("split", std::to_string(child), ".", color) : name);
    spec.id = mix(mix(state().spec().id, child), std::uint64_t(color));
    for (std::size_t i = 0; i < members.size(); ++i) {
      spec.global_ranks.push_back(global_ranks()[members[i]]);
      if (members[i] == rank()) spec.rank = int(i);
    }
    made = comm::GroupState::create(state().process_ptr(), std::move(spec), exchange, Deadline::after(state().limit()));
  }
  if (!exchanged) TUTTI_TRY(exchange({}));
  if (!made.ok()) return made.status();
  return *made ? Group(*made) : Group();
}

Result<Group> Group::new_group(std::span<const int> ranks, const std::string& name, Duration timeout) const {
  const std::vector<int> list(ranks.begin(), ranks.end());
  return divide("new_group", {&list, 1}, name, false, timeout);
}

// The first exchange is of what must be the same; the id of the first member counts. Two groups of one name that follow
// one another have different ids, so that no late message of the first gets into the second.
Result<Group> Group::group_of_members(std::span<const int> global_ranks, const std::string& name,
                                      Duration timeout) const {
  TUTTI_TRY(check_timeout("group_of_members", timeout));
  comm::Process& process = state().process();
  const int world_size = int(process.world.size());
  comm::GroupSpec spec{.name = name, .rank = -1, .limit = timeout.count() > 0 ? timeout : state().spec().limit};
  std::string list;
  for (const int r : global_ranks) {
    if (r < 0 || r >= world_size || std::count(global_ranks.begin(), global_ranks.end(), r) > 1)
      return invalid_argument(detail::words("group_of_members: ", r, " is twice in the list, or no rank of the ",
                                            world_size, " of the world"),
                              "list each member once");
    if (r == process.rank) spec.rank = int(spec.global_ranks.size());
    spec.global_ranks.push_back(r);
    list += " " + std::to_string(r);
  }
  if (spec.rank < 0)
    return invalid_argument(detail::words("group_of_members: rank ", process.rank, " calls, and is not in the list"),
                            "only members call");
  const Deadline deadline = Deadline::after(state().limit());
  std::random_device random;
  spec.id = mix(std::uint64_t(random()) << 32 | random(), mix(state().spec().id, std::uint64_t(process.rank)));
  if (spec.size() == 1) {
    auto made = comm::GroupState::create(state().process_ptr(), std::move(spec), nullptr, deadline);
    return made.ok() ? Result<Group>(Group(*std::move(made))) : made.status();
  }
  const auto store = TUTTI_TRY(process.store->clone(deadline));
  const std::string key = "members/" + name + list;
  const auto gather = [&](const std::string& purpose, const std::string& mine) {
    return store->gather_all(key + purpose, spec.rank, spec.size(), mine, deadline);
  };
  const std::string mine = std::to_string(spec.id) + " " + timeout_text(timeout);
  const auto facts = TUTTI_TRY(gather("/facts", mine));
  for (int r = 0; r < spec.size(); ++r) {
    const std::string theirs = facts[std::size_t(r)].substr(facts[std::size_t(r)].find(' ') + 1);
    if (theirs != timeout_text(timeout))
      return Error{.code = Code::kMismatch,
                   .detail = "gave the new group " + theirs + ", this rank " + timeout_text(timeout),
                   .hint = "all ranks of a new group give the same timeout",
                   .group = name,
                   .rank = spec.rank,
                   .peer = r};
  }
  spec.id = std::uint64_t(parse_int(facts.front().substr(0, facts.front().find(' '))).value_or(1));
  auto made = comm::GroupState::create(
      state().process_ptr(), spec, [&](const std::string& note) { return gather("/paths", note); }, deadline);
  return made.ok() ? Result<Group>(Group(*std::move(made))) : made.status();
}

Result<Group> Group::new_subgroups(int group_size, const std::string& name, Duration timeout) const {
  const int ranks = int(global_ranks().size());
  if (group_size < 1 || ranks % group_size != 0)
    return invalid_argument(detail::words("new_subgroups: groups of ", group_size, " do not divide the ", ranks,
                                          " ranks of group ", this->name()),
                            "give a divisor, or list the ranks of each group");
  std::vector<std::vector<int>> lists;
  for (int r = 0; r < ranks; ++r) {
    if (r % group_size == 0) lists.emplace_back();
    lists.back().push_back(r);
  }
  return divide("new_subgroups", lists, name, true, timeout);
}

Result<Group> Group::new_subgroups(std::span<const std::vector<int>> lists, const std::string& name,
                                   Duration timeout) const {
  return divide("new_subgroups", lists, name, true, timeout);
}

// The group whose list contains this rank. Its place in the list becomes its key.
Result<Group> Group::divide(const char* verb, std::span<const std::vector<int>> lists, const std::string& name,
                            bool numbered, Duration timeout) const {
  TUTTI_TRY(check_timeout(verb, timeout));
  Choice mine{-1, 0, mix(lists.size(), numbered), timeout};
  std::set<int> seen;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    mine.list = mix(mine.list, lists[i].size());
    for (std::size_t place = 0; place < lists[i].size(); ++place) {
      const int r = lists[i][place];
      mine.list = mix(mine.list, std::uint64_t(r));
      if (r < 0 || r >= size())
        return invalid_argument(
            detail::words(verb, ": rank ", r, " is not in group ", this->name(), ", which has ", size()));
      if (!seen.insert(r).second)
        return invalid_argument(detail::words(verb, ": rank ", r, " is listed twice"),
                                numbered ? "a rank is in one of the groups at most" : "");
      if (r == rank()) mine.color = int(i), mine.key = int(place);
    }
  }
  const bool named = numbered && !name.empty() && mine.color >= 0;
  return split(mine, named ? name + std::to_string(mine.color) : name);
}

bool Group::first(const std::function<void()>& prepare, Scope scope) const {
  bool mine = scope == Scope::kHost || rank() == 0;
  for (int r = 0; scope == Scope::kHost && r < rank(); ++r)
    mine = mine && whereabouts(state(), r).node != whereabouts(state(), rank()).node;
  act_and_tell(*this, mine, prepare);
  return mine;
}

void Group::in_order(const std::function<void()>& act) const {
  for (int turn = 0; turn < size(); ++turn) act_and_tell(*this, turn == rank(), act);
}

Result<std::shared_ptr<std::byte>> Group::allocate(std::size_t bytes) const {
  const auto refused = [&](Error error) {
    error.operation = "allocate", error.group = name(), error.rank = rank();
    return error;
  };
  if (comm::Heap* const heap = state().process().heap.get()) {
    const auto place = heap->allocate(bytes);
    if (!place.ok()) return refused(place.error());
    const std::size_t offset = *place;
    // The block needs the process's heap, which the deleter keeps alive.
    return std::shared_ptr<std::byte>(heap->at(offset), [process = state().process_ptr(), offset, bytes](std::byte*) {
      process->heap->release(offset, bytes);
    });
  }
  const Error too_much{.code = Code::kLimit, .detail = "the system gives no " + bytes_text(bytes) + " of memory"};
  if (bytes > std::size_t(1) << 47) return refused(too_much);
  void* const memory = std::aligned_alloc(64, (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64);
  if (!memory) return refused(too_much);
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); });
}

std::string Group::plan_name(const Request& request) const {
  if (size() == 1) return "alone";
  if (request.device != kHost) return state().device_engine(request);
  if (state().engine() != "tutti") return state().engine();
  if (state().is_direct() && !is_point_to_point(request.kind)) return "direct";
  if (is_point_to_point(request.kind)) return "link";
  return comm::name(state().selector()->algorithm(request));
}

}  // namespace tutti
