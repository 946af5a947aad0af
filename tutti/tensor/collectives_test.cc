// Every verb on tensors: every element type, shapes without elements and without dimensions, worlds of 1 to 4; several
// in flight at once; and what is wrong with a tensor, said by every verb.
#include "tutti/tensor/collectives.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tests/harness/error_of.h"
#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/mesh_groups.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using tutti::test::check;
using Sizes = std::vector<std::int64_t>;
using Splits = std::vector<std::size_t>;

using test::error_of;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble,       at::kHalf,         at::kBFloat16,
                                     at::kChar,  at::kByte,         at::kInt,          at::kLong,
                                     at::kBool,  at::kComplexFloat, at::kComplexDouble};

// What rank r brings. Small, so that sums are exact in every type.
at::Tensor brought(int r, const Sizes& sizes, at::ScalarType type) {
  const auto count = std::accumulate(sizes.begin(), sizes.end(), std::int64_t(1), std::multiplies<>());
  auto values = ((at::arange(count) + 3 * r) % 7).view(sizes).to(type);
  return values.is_complex() ? values * c10::complex<double>(1, 2) : values;
}

// All verbs once, each rank's small part of shape `part`; the uneven ones give r elements to or from rank r.
class Exercise {
 public:
  Exercise(const Group& world, const Sizes& part, at::ScalarType type)
      : world_(world), n_(world.size()), me_(world.rank()), last_(n_ - 1), part_(part), type_(type) {
    whole_ = part;
    whole_.insert(whole_.begin(), n_);
    for (int r = 0; r < n_; ++r) by_rank_.push_back(std::size_t(r));
    to_each_.assign(std::size_t(n_), std::size_t(me_));
    const std::int64_t steps = n_ * (n_ - 1) / 2;
    mine_ = brought(me_, part, type);
    large_ = brought(me_, whole_, type);
    own_ = brought(me_, {me_}, type);
    steps_ = brought(me_, {steps}, type);
    alike_ = brought(me_, {me_ * n_}, type);
    reduced_to_all_ = mine_.clone(), told_ = mine_.clone();
    reduced_ = empty(part), gathered_ = empty(whole_), scattered_ = empty(part), all_ = empty(whole_);
    reduced_part_ = empty(part), exchanged_ = empty(whole_);
    gathered_v_ = empty({steps}), scattered_v_ = empty({me_}), all_v_ = empty({steps}), reduced_v_ = empty({me_});
    exchanged_v_ = empty({steps}), exchanged_back_ = empty({me_ * n_});
    passed_ = empty(part), passed_to_any_ = empty(part);
  }

  void blocking() {
    all_reduce(world_, reduced_to_all_);
    broadcast(world_, told_, last_);
    reduce(world_, mine_, on_last(reduced_), last_);
    gather(world_, mine_, on_last(gathered_), last_);
    scatter(world_, on_last(large_), scattered_, last_);
    all_gather(world_, mine_, all_);
    reduce_scatter(world_, large_, reduced_part_);
    all_to_all(world_, large_, exchanged_);
    all_to_all(world_, steps_, by_rank_, exchanged_back_, to_each_);
    all_to_all(world_, alike_, to_each_, exchanged_v_, by_rank_);
    all_gather_v(world_, own_, all_v_, by_rank_);
    reduce_scatter_v(world_, steps_, by_rank_, reduced_v_);
    gather_v(world_, own_, on_last(gathered_v_), root_splits(), last_);
    scatter_v(world_, on_last(steps_), root_splits(), scattered_v_, last_);
    if (n_ == 1) return;
    const auto arriving = irecv(world_, passed_, before(), 3);
    send(world_, mine_, after(), 3);
    arriving.get();
    const auto leaving = isend(world_, mine_, after(), 4);
    check(recv_any(world_, passed_to_any_, 4) == before(), "recv_any took another's");
    leaving.get();
  }

  void asynchronous() {
    std::vector<TensorWork> works = {
        all_reduce_async(world_, reduced_to_all_),
        broadcast_async(world_, told_, last_),
        reduce_async(world_, mine_, on_last(reduced_), last_),
        gather_async(world_, mine_, on_last(gathered_), last_),
        scatter_async(world_, on_last(large_), scattered_, last_),
        all_gather_async(world_, mine_, all_),
        reduce_scatter_async(world_, large_.clone(), reduced_part_),  // the work keeps its input alive
        all_to_all_async(world_, large_, exchanged_),
        all_to_all_async(world_, steps_, Splits(by_rank_), exchanged_back_, Splits(to_each_)),  // splits are copied
        all_to_all_async(world_, alike_, Splits(to_each_), exchanged_v_, Splits(by_rank_)),
        all_gather_v_async(world_, own_, all_v_, Splits(by_rank_)),
        reduce_scatter_v_async(world_, steps_, Splits(by_rank_), reduced_v_),
        gather_v_async(world_, own_, on_last(gathered_v_), root_splits(), last_),
        scatter_v_async(world_, on_last(steps_), root_splits(), scattered_v_, last_),
    };
    std::int32_t source = kAnySource;
    if (n_ > 1) {
      TensorBatch batch(world_);
      batch.recv(passed_, before(), 3).send(mine_, after(), 4).send(mine_, after(), 3);
      works.push_back(batch.recv_any(passed_to_any_, source, 4).submit());
    }
    for (const auto& work : works) work.get();
    for (const auto& work : works) check(work.done(), "not done after get()");
    check(n_ == 1 || source == before(), "irecv_any took rank ", source, "'s");
  }

  void check_values() const {
    const bool last = me_ == last_;
    std::vector<at::Tensor> parts, wholes, owns, columns;
    for (int r = 0; r < n_; ++r) {
      parts.push_back(brought(r, part_, type_));
      wholes.push_back(brought(r, whole_, type_));
      owns.push_back(brought(r, {r}, type_));
      columns.push_back(brought(r, whole_, type_)[me_]);
    }
    same(reduced_to_all_, sum(parts), "all_reduce");
    same(told_, parts[std::size_t(last_)], "broadcast");
    if (last) same(reduced_, sum(parts), "reduce");
    if (last) same(gathered_, at::stack(parts), "gather");
    same(scattered_, wholes[std::size_t(last_)][me_], "scatter");
    same(all_, at::stack(parts), "all_gather");
    same(reduced_part_, sum(columns), "reduce_scatter");
    same(exchanged_, at::stack(columns), "all_to_all");
    same(all_v_, at::cat(owns), "all_gather_v");
    if (last) same(gathered_v_, at::cat(owns), "gather_v");
    std::vector<at::Tensor> stretches, back, pieces;
    const std::int64_t begin = me_ * (me_ - 1) / 2;
    for (int r = 0; r < n_; ++r) {
      const auto steps = brought(r, {steps_.numel()}, type_);
      stretches.push_back(steps.narrow(0, begin, me_));
      pieces.push_back(brought(r, {r * n_}, type_).narrow(0, me_ * r, r));
    }
    same(reduced_v_, sum(stretches), "reduce_scatter_v");
    same(scattered_v_, stretches[std::size_t(last_)], "scatter_v");
    same(exchanged_back_, at::cat(stretches), "all_to_all of parts by receiver");
    same(exchanged_v_, at::cat(pieces), "all_to_all of parts by sender");
    if (n_ == 1) return;
    same(passed_, parts[std::size_t(before())], "send, recv");
    same(passed_to_any_, parts[std::size_t(before())], "recv_any");
  }

 private:
  at::Tensor empty(const Sizes& sizes) const { return at::empty(sizes, at::TensorOptions(type_)); }
  at::Tensor on_last(const at::Tensor& tensor) const { return me_ == last_ ? tensor : at::Tensor(); }
  Splits root_splits() const { return me_ == last_ ? by_rank_ : Splits(); }
  int before() const { return (me_ + n_ - 1) % n_; }
  int after() const { return (me_ + 1) % n_; }
  at::Tensor sum(const std::vector<at::Tensor>& tensors) const { return at::stack(tensors).sum(0).to(type_); }
  void same(const at::Tensor& found, const at::Tensor& expected, const char* what) const {
    check(at::equal(found, expected), what, " of ", describe(mine_), " among ", n_);
  }

  Group world_;
  int n_, me_, last_;
  Sizes part_, whole_;
  at::ScalarType type_;
  Splits by_rank_, to_each_;
  at::Tensor mine_, large_, own_, steps_, alike_, reduced_to_all_, told_, reduced_, gathered_, scattered_, all_,
      reduced_part_, exchanged_, gathered_v_, scattered_v_, all_v_, reduced_v_, exchanged_v_, exchanged_back_, passed_,
      passed_to_any_;
};

void exercise(const Group& world, const Sizes& part, at::ScalarType type) {
  Exercise one(world, part, type), other(world, part, type);
  one.blocking();
  one.check_values();
  other.asynchronous();
  other.check_values();
}

class TensorVerbs : public testing::TestWithParam<int> {};

TEST_P(TensorVerbs, OfEveryType) {
  const auto outcomes = test::run_threads(GetParam(), [](Group& world) {
    for (const auto type : kTypes) exercise(world, {2, 3}, type);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST_P(TensorVerbs, WithoutElementsOrDimensionsAndOverLinks) {
  const auto body = [](Group& world) {
    for (const Sizes& part : {Sizes{0}, Sizes{0, 5}, Sizes{}, Sizes{1}, Sizes{1001}}) exercise(world, part, at::kFloat);
  };
  EXPECT_EQ(test::describe(test::run_threads(GetParam(), body)), "");
  EXPECT_EQ(test::describe(test::run_threads(GetParam(), body, {.algorithm = "ring"})), "");
}

INSTANTIATE_TEST_SUITE_P(, TensorVerbs, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

// The tensor of a rank may be any contiguous part of a larger one, its own part of the result included.
TEST(TensorCollectives, WriteIntoViews) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const int me = world.rank();
    auto all = at::full({3, 2}, -1.0);
    all[me] = at::full({2}, double(me));
    all_gather(world, all[me], all);
    check(at::equal(all, at::arange(3.0).view({3, 1}).expand({3, 2})), "all_gather in place");
    reduce_scatter(world, all, all[me]);
    check(at::equal(all[me], at::full({2}, 3.0 * me)), "reduce_scatter in place");
    auto table = at::zeros({4, 2});
    all_reduce(world, table.narrow(0, 1, 2).fill_(1));
    check(at::equal(table.select(1, 0), at::tensor({0.f, 3.f, 3.f, 0.f})), "all_reduce of rows");
    auto weights = at::full({2}, double(me)).requires_grad_();
    broadcast(world, weights, 2);  // a leaf
    check(at::equal(weights.detach(), at::full({2}, 2.0)), "broadcast of a parameter");
    const c10::InferenceMode inference;
    auto inferred = at::ones({2});
    all_reduce(world, inferred);
    check(at::equal(inferred, at::full({2}, 3.0)), "all_reduce of an inference tensor");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(TensorCollectives, TakeEveryOp) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const double mine = world.rank() + 2;  // 2, 3, 4
    const auto reduced = [&](Reduction op) {
      auto tensor = at::full({3}, mine, at::kDouble), out = at::empty({1}, at::kDouble), same = tensor.clone();
      all_reduce(world, tensor, op);
      reduce_scatter(world, same, out, op);
      check(at::equal(tensor.narrow(0, 0, 1), out), "reduce_scatter differs from all_reduce");
      return out.item<double>();
    };
    check(reduced(ReduceOp::kAvg) == 3, "avg");
    check(reduced(ReduceOp::kProduct) == 24, "product");
    check(reduced(ReduceOp::kMin) == 2 && reduced(ReduceOp::kMax) == 4, "min, max");
    check(reduced(premul_sum(mine)) == 29, "premul_sum");
    auto bits = at::full({2}, std::int64_t(mine), at::kInt);
    all_reduce(world, bits, ReduceOp::kBxor);
    check(at::equal(bits, at::full({2}, 5, at::kInt)), "bxor");
    const auto words = error_of([&] { all_reduce(world, at::ones({2}), ReduceOp::kBor); });
    check(words.find("bor") != std::string::npos, words);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(TensorCollectives, ManyTensorsAsOneCall) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const int me = world.rank(), n = world.size();
    for (const bool later : {false, true}) {
      std::vector<at::Tensor> sums, ins, gathered, wholes, parts;
      for (const auto type : kTypes) {
        for (const std::int64_t count : {0, 1, 5, 3000}) {
          sums.push_back(brought(me, {count}, type));
          ins.push_back(brought(me, {count}, type));
          gathered.push_back(at::empty({n, count}, type));
          wholes.push_back(brought(me, {n, count}, type));
          parts.push_back(at::empty({count}, type));
        }
      }
      if (later) {
        const TensorWork works[] = {all_reduce_coalesced_async(world, sums),
                                    all_gather_coalesced_async(world, ins, gathered),
                                    reduce_scatter_coalesced_async(world, wholes, parts)};
        for (const auto& work : works) work.get();
      } else {
        all_reduce_coalesced(world, sums);
        all_gather_coalesced(world, ins, gathered);
        reduce_scatter_coalesced(world, wholes, parts);
      }
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const Sizes sizes = ins[i].sizes().vec();
        std::vector<at::Tensor> each, columns;
        for (int r = 0; r < n; ++r) {
          each.push_back(brought(r, sizes, ins[i].scalar_type()));
          columns.push_back(brought(r, {n, sizes[0]}, ins[i].scalar_type())[me]);
        }
        const auto sum = [&](const auto& all) { return at::stack(all).sum(0).to(ins[i].scalar_type()); };
        check(at::equal(sums[i], sum(each)), "all_reduce_coalesced of ", describe(ins[i]));
        check(at::equal(gathered[i], at::stack(each)), "all_gather_coalesced of ", describe(ins[i]));
        check(at::equal(parts[i], sum(columns)), "reduce_scatter_coalesced of ", describe(ins[i]));
      }
    }
    const auto one = at::ones({1});
    const auto words = error_of([&] { all_gather_coalesced(world, {{one, one}}, {{at::empty({3})}}); });
    check(words.find("all_gather_coalesced: 2 inputs and 1 outputs") != std::string::npos, words);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// Twelve operations on three groups of a 2 x 2 mesh, waited for in another order than they were started in.
TEST(TensorWork, SeveralOnSeveralGroupsAreOutstandingAtOnce) {
  const auto outcomes = test::run_threads(4, [](Group& world) {
    const auto mesh = split(world, Mesh({{"dp", 2}, {"tp", 2}})).or_throw();
    const Group& dp = mesh.along("dp");
    const Group& tp = mesh.along("tp");
    struct InFlight {
      Group group;
      at::Tensor sum, all, exchanged, again;
      std::vector<TensorWork> works;
    };
    constexpr std::int64_t kCount = 20000;
    std::vector<InFlight> flights;
    for (const Group& group : {world, tp, dp}) {
      const std::int64_t n = group.size();
      auto& f =
          flights.emplace_back(InFlight{group, at::full({kCount}, world.rank(), at::kFloat), at::empty({n, kCount}),
                                        at::empty({n, kCount}), at::full({5}, world.rank(), at::kLong)});
      f.works.push_back(all_reduce_async(group, f.sum));
      f.works.push_back(all_gather_async(group, at::full({kCount}, world.rank(), at::kFloat), f.all));
      f.works.push_back(all_to_all_async(
          group, (at::arange(n).view({n, 1}).expand({n, kCount}) + 10 * world.rank()).to(at::kFloat), f.exchanged));
      f.works.push_back(all_reduce_async(group, f.again, ReduceOp::kMax));
    }
    for (auto f = flights.rbegin(); f != flights.rend(); ++f) {
      const auto globals = f->group.global_ranks();
      for (auto work = f->works.rbegin(); work != f->works.rend(); ++work) work->get();
      const int sum = std::accumulate(globals.begin(), globals.end(), 0);
      check(at::equal(f->sum, at::full({kCount}, sum, at::kFloat)), "all_reduce on ", f->group.name());
      check(at::equal(f->again, at::full({5}, globals.back(), at::kLong)), "the second on ", f->group.name());
      for (int r = 0; r < f->group.size(); ++r) {
        check(at::equal(f->all[r], at::full({kCount}, globals[r], at::kFloat)), "all_gather on ", f->group.name());
        check(at::equal(f->exchanged[r], at::full({kCount}, 10 * globals[r] + f->group.rank(), at::kFloat)),
              "all_to_all on ", f->group.name());
      }
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// A verb by its two tensors; in a world of two, rank 0's view.
struct Verb {
  const char* name;
  std::int64_t in, out;  // elements that it wants; 0: has no such tensor
  std::function<void(const Group&, const at::Tensor& in, const at::Tensor& out)> call;
};

std::vector<Verb> verbs() {
  static const Splits even = {2, 2};
  const int me = 0;
  return {
      {"all_reduce", 0, 2, [](auto& g, auto&, auto& out) { all_reduce(g, out); }},
      {"all_reduce", 0, 2, [](auto& g, auto&, auto& out) { all_reduce_async(g, out); }},
      {"broadcast", 0, 2, [](auto& g, auto&, auto& out) { broadcast(g, out, 1); }},
      {"reduce", 2, 2, [=](auto& g, auto& in, auto& out) { reduce(g, in, out, me); }},
      {"gather", 2, 4, [=](auto& g, auto& in, auto& out) { gather(g, in, out, me); }},
      {"scatter", 4, 2, [=](auto& g, auto& in, auto& out) { scatter(g, in, out, me); }},
      {"all_gather", 2, 4, [](auto& g, auto& in, auto& out) { all_gather(g, in, out); }},
      {"all_gather", 2, 4, [](auto& g, auto& in, auto& out) { all_gather_async(g, in, out); }},
      {"reduce_scatter", 4, 2, [](auto& g, auto& in, auto& out) { reduce_scatter(g, in, out); }},
      {"all_to_all", 4, 4, [](auto& g, auto& in, auto& out) { all_to_all(g, in, out); }},
      {"all_to_all", 4, 4, [](auto& g, auto& in, auto& out) { all_to_all(g, in, even, out, even); }},
      {"all_gather_v", 2, 4, [](auto& g, auto& in, auto& out) { all_gather_v(g, in, out, even); }},
      {"reduce_scatter_v", 4, 2, [](auto& g, auto& in, auto& out) { reduce_scatter_v(g, in, even, out); }},
      {"gather_v", 2, 4, [=](auto& g, auto& in, auto& out) { gather_v(g, in, out, even, me); }},
      {"scatter_v", 4, 2, [=](auto& g, auto& in, auto& out) { scatter_v(g, in, even, out, me); }},
      {"send", 2, 0, [](auto& g, auto& in, auto&) { send(g, in, 1); }},
      {"recv", 0, 2, [](auto& g, auto&, auto& out) { recv(g, out, 1); }},
      {"recv", 0, 2, [](auto& g, auto&, auto& out) { recv_any(g, out); }},
      {"recv", 0, 2, [](auto& g, auto&, auto& out) { TensorBatch(g).recv(out, 1).submit(); }},
      {"all_reduce", 0, 2, [](auto& g, auto&, auto& out) { all_reduce_coalesced(g, {{out}}); }},
      {"all_gather", 2, 4, [](auto& g, auto& in, auto& out) { all_gather_coalesced(g, {{in}}, {{out}}); }},
      {"reduce_scatter", 4, 2, [](auto& g, auto& in, auto& out) { reduce_scatter_coalesced(g, {{in}}, {{out}}); }},
  };
}

// One rank of two asks every verb, with `spoil` done to one of its tensors; nothing may have been sent.
void every_verb_says(const std::function<at::Tensor(std::int64_t count)>& spoil, const std::string& words,
                     bool only_written = false) {
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    if (world.rank() == 0) {
      for (const auto& verb : verbs()) {
        for (const bool is_in : {true, false}) {
          if ((is_in ? verb.in : verb.out) == 0 || (is_in && only_written)) continue;
          const auto in = is_in ? spoil(verb.in) : at::ones({verb.in}),
                     out = is_in ? at::ones({verb.out}) : spoil(verb.out);
          const auto said = error_of([&] { verb.call(world, in, out); });
          check(said.find(words) != std::string::npos && said.find(verb.name) != std::string::npos,
                is_in ? "in of " : "out of ", verb.name, ": ", said);
        }
      }
    }
    auto one = at::ones({1});
    all_reduce(world, one);
    check(at::equal(one, at::full({1}, 2.f)), "the group is in step");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(TensorCollectives, EveryVerbSaysWhatIsWrongWithATensor) {
  every_verb_says([](auto) { return at::Tensor(); }, "an undefined tensor, holds nothing");
  every_verb_says([](auto n) { return at::ones({n, 2}).select(1, 0); }, "is not contiguous (strides [2])");
  every_verb_says([](auto n) { return at::ones({1}).expand({n}); }, "is not contiguous (strides [0])");
  every_verb_says([](auto n) { return at::ones({n}, at::kShort); }, "element type that collectives do not know");
  every_verb_says([](auto n) { return at::empty({n}, at::TensorOptions(at::kMeta)); }, "on meta, is not on the CPU");
  every_verb_says([](auto n) { return at::ones({n}).to_sparse(); }, "is not dense");
  every_verb_says([](auto n) { return at::ones({n}, at::kComplexFloat).conj(); }, "is a lazy conjugate");
  every_verb_says([](auto n) { return at::_neg_view(at::ones({n})); }, "tensor.resolve_neg()");
  every_verb_says([](auto n) { return at::ones({n}).requires_grad_() * 2; },
                  "has a gradient that would not know of what is written to it", true);
}

TEST(TensorCollectives, ReportCountsAndTypesThatDoNotFit) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    if (world.rank() != 0) return;
    for (const auto& verb : verbs()) {
      if (verb.in == 0 || verb.out == 0) continue;
      const auto say = [&](const at::Tensor& in, const at::Tensor& out, const std::string& words) {
        const auto said = error_of([&] { verb.call(world, in, out); });
        check(said.find(words) != std::string::npos && said.find(verb.name) != std::string::npos, verb.name, ": ", said,
              " instead of: ", words);
      };
      const auto in = at::ones({verb.in}), out = at::ones({verb.out});
      say(in, at::ones({verb.out}, at::kDouble), "; expected one element type");
      say(in, at::ones({verb.out + 1}), " elements");
      say(at::ones({verb.in + 3}), out, " elements");
    }
    const auto counts = error_of([&] { all_gather(world, at::ones({3}), at::ones({5})); });
    check(counts.find("all_gather: out is f32[5] with 5 elements; expected 6") != std::string::npos, counts);
    const auto types = error_of([&] { reduce_scatter(world, at::ones({4}), at::ones({2}, at::kDouble)); });
    check(types.find("in is f32[4] and out is f64[2]; expected one element type") != std::string::npos, types);
    const Splits three = {1, 1, 1}, two = {1, 2};
    const auto say = [&](const char* words, const auto& act) {
      const auto said = error_of(act);
      check(said.find(words) != std::string::npos, said);
    };
    say("all_gather_v: out_splits has 3 entries, expected 2, one for each rank of group world",
        [&] { all_gather_v(world, at::ones({1}), at::ones({3}), three); });
    say("all_gather_v: in is f32[2] with 2 elements, but out_splits[0] is 1",
        [&] { all_gather_v(world, at::ones({2}), at::ones({3}), two); });
    say("gather_v: out is f32[4] with 4 elements, but out_splits sum up to 3",
        [&] { gather_v(world, at::ones({1}), at::ones({4}), two, 0); });
    say("scatter_v: in is f32[4] with 4 elements, but in_splits sum up to 3",
        [&] { scatter_v(world, at::ones({4}), two, at::ones({1}), 0); });
    say("all_to_all: in is f32[4] with 4 elements, but in_splits sum up to 3",
        [&] { all_to_all(world, at::ones({4}), two, at::ones({3}), two); });
    say("in_splits has 3 entries, expected 2", [&] { all_to_all(world, at::ones({3}), three, at::ones({3}), two); });
    say("all_to_all: in is f32[3] with 3 elements; expected 2",
        [&] { all_to_all(world, at::ones({3}), at::ones({3})); });
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(TensorCollectives, ReportThatThereIsNoGroup) {
  for (const auto& verb : verbs())
    EXPECT_THAT(error_of([&] { verb.call(Group(), at::ones({verb.in}), at::ones({verb.out})); }),
                HasSubstr("this rank is not in the group"))
        << verb.name;
}

TEST(TensorWork, KeepsTheTensorsAlive) {
  std::atomic<int> gone{0};
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    std::vector<std::vector<float>> memory;
    memory.reserve(20);
    const auto counted = [&](std::int64_t count) {
      auto& values = memory.emplace_back(std::size_t(count));
      return at::from_blob(
          values.data(), {count}, [&](void*) { ++gone; }, at::kFloat);
    };
    auto signal = at::empty({1});
    if (world.rank() == 1) recv(world, signal, 0);
    const std::int32_t peer = 1 - world.rank();
    std::vector<TensorWork> works = {
        all_reduce_async(world, counted(2)),
        all_gather_async(world, counted(2), counted(4)),
        all_to_all_async(world, counted(2), counted(2)),
        all_reduce_coalesced_async(world, {{counted(2), counted(3)}}),
        all_gather_coalesced_async(world, {{counted(2)}}, {{counted(4)}}),
        TensorBatch(world).send(counted(2), peer, 1).recv(counted(2), peer, 1).submit(),
    };
    check(world.rank() == 1 || gone == 0, "tensors in flight have gone");
    if (world.rank() == 0) send(world, signal, 1);
    for (const auto& work : works) work.get();
    barrier(world);
    works.clear();
  });
  EXPECT_EQ(test::describe(outcomes), "");
  EXPECT_EQ(gone, 2 * 11);
}

// Nobody joins the call, so waiting for it would end at the limit of 30 s only.
TEST(TensorWork, AnExceptionEndsTheOperationBeforeTheTensorsGo) {
  bool had_ended = false;
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto arriving = at::empty({1});
    if (world.rank() == 1) recv(world, arriving, 0);
    std::vector<float> memory(1000);
    const auto work = all_reduce_async(
        world, at::from_blob(
                   memory.data(), {1000}, [&](void*) { had_ended = !world.status().ok(); }, at::kFloat));
    throw std::runtime_error("the loss is NaN");
  });
  EXPECT_EQ(outcomes[0].error, "the loss is NaN");
  EXPECT_TRUE(had_ended);
  EXPECT_THAT(outcomes[1].error, HasSubstr("an exception ended the call on this rank"));
}

TEST(TensorCollectives, AutogradSeesThatATensorWasWrittenTo) {
  const auto outcomes = test::run_threads(1, [](Group& world) {
    auto tensor = at::ones({2});
    const auto version = tensor._version();
    all_reduce(world, tensor);
    check(tensor._version() == version + 1, "version ", int(tensor._version()));
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
