// What N ranks get through the verbs with gradients, values and gradients, equals what one process gets that has the
// inputs of all ranks and does the same with at::cat, at::stack and sums: over every transport, in float64 to 1e-12.
// Every rank has a loss of its own, and the one process their sum.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <ostream>
#include <vector>

#include "tests/harness/ranks.h"
#include "tests/parity/torch_oracle.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/tensor/autograd_collectives.h"

namespace tutti {
namespace {

using test::check;
using Sizes = std::vector<std::int64_t>;
using Rows = std::vector<std::size_t>;
using Tensors = std::vector<at::Tensor>;

at::Tensor numbers(const Sizes& sizes, int seed) {
  const auto count = std::accumulate(sizes.begin(), sizes.end(), std::int64_t(1), std::multiplies<>());
  return (((at::arange(count) * 3 + seed * 7) % 11 - 5).to(at::kDouble) * 0.25).view(sizes);
}

struct Rank {
  Group group;
  int me, n;
};

// One verb: the shape of each rank's input, the verb itself, and what one process does instead.
struct Verb {
  const char* name;
  std::function<Sizes(int rank, int n)> in;
  std::function<at::Tensor(const Rank&, const at::Tensor& in)> distributed;
  std::function<Tensors(const Tensors& ins)> local;
  bool has_second = true;
};

// Rows from rank r to rank k; some are none.
std::size_t rows(int r, int k) { return std::size_t((r + 2 * k + 1) % 3); }
Rows rows_to(int r, int n) {
  Rows all;
  for (int k = 0; k < n; ++k) all.push_back(rows(r, k));
  return all;
}
Rows rows_from(int k, int n) {
  Rows all;
  for (int r = 0; r < n; ++r) all.push_back(rows(r, k));
  return all;
}
// Rows of rank r, the same to all.
Rows rows_by_rank(int n) { return rows_to(0, n); }
std::int64_t sum(const Rows& all) { return std::int64_t(std::accumulate(all.begin(), all.end(), std::size_t(0))); }

at::Tensor total(const Tensors& all) { return at::stack(all).sum(0); }
Tensors repeat(const at::Tensor& one, std::size_t n) { return Tensors(n, one); }
Tensors on(int root, const at::Tensor& one, std::size_t n) {
  Tensors all(n, one.new_zeros({0}));
  all[std::size_t(root)] = one;
  return all;
}
Tensors split(const at::Tensor& one, const Rows& sizes) {
  Tensors parts;
  std::int64_t begin = 0;
  for (const auto size : sizes) {
    parts.push_back(one.narrow(0, begin, std::int64_t(size)));
    begin += std::int64_t(size);
  }
  return parts;
}
Tensors split_evenly(const at::Tensor& one, std::size_t n) { return split(one, Rows(n, std::size_t(one.size(0)) / n)); }
Tensors swap_parts(const Tensors& ins, const std::function<Tensors(int r, const at::Tensor&)>& split) {
  std::vector<Tensors> parts;
  for (std::size_t r = 0; r < ins.size(); ++r) parts.push_back(split(int(r), ins[r]));
  Tensors outs;
  for (std::size_t k = 0; k < ins.size(); ++k) {
    Tensors from;
    for (const auto& of : parts) from.push_back(of[k]);
    outs.push_back(at::cat(from));
  }
  return outs;
}
Tensors weighted(const Tensors& ins) {
  Tensors all;
  for (std::size_t r = 0; r < ins.size(); ++r) all.push_back(ins[r] * (0.5 + double(r)));
  return all;
}
Reduction weight(const Rank& r) { return premul_sum(0.5 + r.me); }

std::function<Sizes(int, int)> each(Sizes sizes) {
  return [=](int, int) { return sizes; };
}
Sizes even(int, int n) { return {2 * n, 3}; }
Sizes by_rank(int r, int n) { return {std::int64_t(rows_by_rank(n)[std::size_t(r)]), 3}; }
Sizes of_all(int, int n) { return {sum(rows_by_rank(n)), 3}; }
Sizes uneven(int r, int n) { return {sum(rows_to(r, n)), 3}; }

std::vector<Verb> verbs() {
  using namespace autograd;
  const auto gathered = [](const Tensors& ins) { return repeat(at::cat(ins), ins.size()); };
  const auto exchanged = [](const Tensors& ins) {
    return swap_parts(ins, [&](int, const at::Tensor& in) { return split_evenly(in, ins.size()); });
  };
  const auto exchanged_unevenly = [](const Tensors& ins) {
    return swap_parts(ins, [&](int r, const at::Tensor& in) { return split(in, rows_to(r, int(ins.size()))); });
  };
  std::vector<Verb> all = {
      {"all_reduce", each({4, 3}), [](auto& r, auto& in) { return all_reduce(r.group, in); },
       [](auto& ins) { return repeat(total(ins), ins.size()); }},
      {"all_reduce avg", each({4, 3}), [](auto& r, auto& in) { return all_reduce(r.group, in, ReduceOp::kAvg); },
       [](auto& ins) { return repeat(at::stack(ins).mean(0), ins.size()); }},
      {"all_reduce premul_sum", each({4, 3}), [](auto& r, auto& in) { return all_reduce(r.group, in, weight(r)); },
       [](auto& ins) { return repeat(total(weighted(ins)), ins.size()); }},
      {"all_reduce max", each({4, 3}),  // of values that several ranks have
       [](auto& r, auto& in) { return all_reduce(r.group, at::round(in), ReduceOp::kMax) + in; },
       [](auto& ins) {
         Tensors rounded, outs;
         for (const auto& in : ins) rounded.push_back(at::round(in));
         for (const auto& in : ins) outs.push_back(at::stack(rounded).amax(0) + in);
         return outs;
       },
       false},
      {"all_reduce min", each({4, 3}), [](auto& r, auto& in) { return all_reduce(r.group, in, ReduceOp::kMin); },
       [](auto& ins) { return repeat(at::stack(ins).amin(0), ins.size()); }, false},
      {"all_reduce of a number", each({}), [](auto& r, auto& in) { return all_reduce(r.group, in); },
       [](auto& ins) { return repeat(total(ins), ins.size()); }},
      {"broadcast", each({4, 3}), [](auto& r, auto& in) { return broadcast(r.group, in, r.n - 1); },
       [](auto& ins) { return repeat(ins.back(), ins.size()); }, false},
      {"reduce", each({4, 3}), [](auto& r, auto& in) { return reduce(r.group, in, r.n - 1); },
       [](auto& ins) { return on(int(ins.size()) - 1, total(ins), ins.size()); }},
      {"reduce avg", each({4, 3}), [](auto& r, auto& in) { return reduce(r.group, in, 0, ReduceOp::kAvg); },
       [](auto& ins) { return on(0, at::stack(ins).mean(0), ins.size()); }},
      {"reduce premul_sum", each({4, 3}), [](auto& r, auto& in) { return reduce(r.group, in, 0, weight(r)); },
       [](auto& ins) { return on(0, total(weighted(ins)), ins.size()); }},
      {"all_gather", each({4, 3}), [](auto& r, auto& in) { return all_gather(r.group, in); }, gathered},
      {"all_gather of nothing", each({0, 3}), [](auto& r, auto& in) { return all_gather(r.group, in); }, gathered},
      {"all_gather of a number", each({}), [](auto& r, auto& in) { return all_gather(r.group, in); },
       [](auto& ins) { return repeat(at::stack(ins), ins.size()); }},
      {"all_gather_v", by_rank, [](auto& r, auto& in) { return all_gather_v(r.group, in, rows_by_rank(r.n)); },
       gathered},
      {"reduce_scatter", even, [](auto& r, auto& in) { return reduce_scatter(r.group, in); },
       [](auto& ins) { return split_evenly(total(ins), ins.size()); }},
      {"reduce_scatter avg", even, [](auto& r, auto& in) { return reduce_scatter(r.group, in, ReduceOp::kAvg); },
       [](auto& ins) { return split_evenly(at::stack(ins).mean(0), ins.size()); }},
      {"reduce_scatter premul_sum", even, [](auto& r, auto& in) { return reduce_scatter(r.group, in, weight(r)); },
       [](auto& ins) { return split_evenly(total(weighted(ins)), ins.size()); }},
      {"reduce_scatter_v", of_all,
       [](auto& r, auto& in) { return reduce_scatter_v(r.group, in, rows_by_rank(r.n), weight(r)); },
       [](auto& ins) { return split(total(weighted(ins)), rows_by_rank(int(ins.size()))); }},
      {"all_to_all", even, [](auto& r, auto& in) { return all_to_all(r.group, in); }, exchanged},
      {"uneven all_to_all", uneven,
       [](auto& r, auto& in) { return all_to_all(r.group, in, rows_to(r.me, r.n), rows_from(r.me, r.n)); },
       exchanged_unevenly},
      {"gather", each({4, 3}), [](auto& r, auto& in) { return gather(r.group, in, r.n - 1); },
       [](auto& ins) { return on(int(ins.size()) - 1, at::cat(ins), ins.size()); }},
      {"gather_v", by_rank,
       [](auto& r, auto& in) { return gather_v(r.group, in, r.me == 0 ? rows_by_rank(r.n) : Rows(), 0); },
       [](auto& ins) { return on(0, at::cat(ins), ins.size()); }},
      {"scatter", even,
       [](auto& r, auto& in) {
         const auto like = at::empty({2, 3}, in.options());
         return scatter(r.group, r.me == r.n - 1 ? in : at::Tensor(), like, r.n - 1);
       },
       [](auto& ins) { return split_evenly(ins.back(), ins.size()); }, false},
      {"scatter_v", of_all,
       [](auto& r, auto& in) {
         const auto like = at::empty({std::int64_t(rows_by_rank(r.n)[std::size_t(r.me)]), 3}, in.options());
         return scatter_v(r.group, in, r.me == 0 ? rows_by_rank(r.n) : Rows(), like, 0);
       },
       [](auto& ins) { return split(ins[0], rows_by_rank(int(ins.size()))); }, false},
      {"send and recv", each({4, 3}),
       [](auto& r, auto& in) -> at::Tensor {
         if (r.n == 1) return all_reduce(r.group, in);
         const int next = (r.me + 1) % r.n, previous = (r.me + r.n - 1) % r.n;
         if (r.me == 0) {
           const auto sent = send(r.group, in, next, 5);
           return recv(r.group, in, previous, 5) + sent;
         }
         const auto received = recv(r.group, in, previous, 5);
         return received + send(r.group, in, next, 5);
       },
       [](auto& ins) {
         Tensors outs = ins;
         for (std::size_t r = 0; r < ins.size(); ++r) outs[(r + 1) % ins.size()] = ins[r];
         return outs;
       },
       false},
      // Asynchronous, with work in between.
      {"all_reduce_async", each({4, 3}),
       [](auto& r, auto& in) {
         const auto pending = all_reduce_async(r.group, in * 2, ReduceOp::kAvg);
         const auto meanwhile = at::cos(in);
         return pending.get() * meanwhile;
       },
       [](auto& ins) {
         Tensors outs;
         for (const auto& in : ins) outs.push_back(at::stack(ins).mean(0) * 2 * at::cos(in));
         return outs;
       },
       false},
      {"all_gather_async", each({4, 3}), [](auto& r, auto& in) { return all_gather_async(r.group, in).get(); },
       gathered, false},
      {"all_gather_async of a number", each({}), [](auto& r, auto& in) { return all_gather_async(r.group, in).get(); },
       [](auto& ins) { return repeat(at::stack(ins), ins.size()); }, false},
      {"all_gather_v_async", by_rank,
       [](auto& r, auto& in) { return all_gather_v_async(r.group, in, rows_by_rank(r.n)).get(); }, gathered, false},
      {"reduce_scatter_async", even,
       [](auto& r, auto& in) { return reduce_scatter_async(r.group, in, weight(r)).get(); },
       [](auto& ins) { return split_evenly(total(weighted(ins)), ins.size()); }, false},
      {"reduce_scatter_v_async", of_all,
       [](auto& r, auto& in) { return reduce_scatter_v_async(r.group, in, rows_by_rank(r.n)).get(); },
       [](auto& ins) { return split(total(ins), rows_by_rank(int(ins.size()))); }, false},
      {"all_to_all_async", even, [](auto& r, auto& in) { return all_to_all_async(r.group, in).get(); }, exchanged,
       false},
      {"three at once", uneven,  // waited for in another order than started, with a blocking one between
       [](auto& r, auto& in) {
         const auto to = rows_to(r.me, r.n), from = rows_from(r.me, r.n);
         const auto first = all_to_all_async(r.group, in, to, from),
                    second = all_to_all_async(r.group, in * in, to, from), sum = all_reduce_async(r.group, in.sum());
         const auto biggest = all_reduce(r.group, in.sum());
         const auto b = second.get(), a = first.get();
         return a * b + sum.get() * biggest;
       },
       [=](auto& ins) {
         Tensors squares, sums, outs;
         for (const auto& in : ins) squares.push_back(in * in), sums.push_back(in.sum());
         const auto a = exchanged_unevenly(ins), b = exchanged_unevenly(squares);
         for (std::size_t r = 0; r < ins.size(); ++r) outs.push_back(a[r] * b[r] + total(sums) * total(sums));
         return outs;
       },
       false},
  };
  return all;
}

at::Tensor loss_of(const at::Tensor& out, int rank) {
  return (numbers(out.sizes().vec(), rank + 3) * at::sin(out)).sum() + out.sum();
}

struct Gradients {
  at::Tensor out, first, second;
};

void backward(const at::Tensor& loss) { torch::autograd::backward({loss}, {}); }
// As a function of `ins` again.
Tensors gradients(const at::Tensor& loss, const Tensors& ins) {
  return torch::autograd::grad({loss}, ins, {}, /*retain_graph=*/true, /*create_graph=*/true);
}

// Leaves lie transposed in memory, so no input is contiguous.
at::Tensor leaf(const Sizes& sizes, int rank) {
  const auto in = numbers(sizes, rank);
  return (in.dim() == 2 ? in.t().contiguous().t() : in).requires_grad_();
}

Gradients distributed(const Verb& verb, const Rank& rank, bool trained) {
  auto in = leaf(verb.in(rank.me, rank.n), rank.me).requires_grad_(trained);
  Gradients found{.out = verb.distributed(rank, in)};
  check(found.out.requires_grad(), verb.name, ": the result has no gradient");
  const auto loss = loss_of(found.out, rank.me);
  if (verb.has_second && trained) {
    found.first = gradients(loss, {in})[0];
    backward((found.first * found.first).sum());
    found.second = in.grad();
  } else {
    backward(loss);
    found.first = in.grad();
  }
  return found;
}

std::vector<Gradients> local(const Verb& verb, int n) {
  Tensors ins, losses;
  std::vector<Gradients> all(static_cast<std::size_t>(n));
  for (int r = 0; r < n; ++r) ins.push_back(leaf(verb.in(r, n), r));
  const auto outs = verb.local(ins);
  for (int r = 0; r < n; ++r) losses.push_back(loss_of(outs[std::size_t(r)], r));
  const auto loss = total(losses);
  if (!verb.has_second) backward(loss);
  const Tensors first = verb.has_second ? gradients(loss, ins) : Tensors();
  if (verb.has_second) {
    Tensors squares;
    for (const auto& gradient : first) squares.push_back((gradient * gradient).sum());
    backward(total(squares));
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r] = {.out = outs[r], .first = verb.has_second ? first[r] : ins[r].grad(), .second = ins[r].grad()};
  }
  return all;
}

void same(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  const bool nothing = !expected.defined() || expected.numel() == 0 || at::equal(expected, at::zeros_like(expected));
  if (!found.defined() && nothing) return;
  check(found.defined(), what, " is missing");
  check(found.sizes() == expected.sizes(), what, " has another shape");
  if (found.numel() == 0) return;
  const double apart = (found - expected).abs().max().item<double>();
  check(apart <= 1e-12 * (1 + expected.abs().max().item<double>()), what, " differs by ", apart * 1e12, "e-12");
}

struct World {
  const char* way;  // a transport, or an engine
  int ranks;
};
void PrintTo(const World& value, std::ostream* out) { *out << value.way << "_" << value.ranks; }

// Forked ranks, or threads of a forked process: nothing of LibTorch has run in this process before.
std::string outcome_of(const World& world, const test::RankBody& body) {
  if (world.way == std::string("inproc"))
    return test::describe(test::run_processes(1, [&](Group&) {
      at::set_num_threads(1);
      const auto outcomes = test::run_threads(world.ranks, body);
      check(test::describe(outcomes).empty(), test::describe(outcomes));
    }));
  test::WorldOptions way;
  if (world.way == std::string("gloo"))
    way.environment["TUTTI_ENGINE"] = world.way;
  else
    way.transport = world.way;
  return test::describe(test::run_processes(
      world.ranks,
      [&](Group& group) {
        at::set_num_threads(1);
        body(group);
      },
      way));
}

class AutogradParity : public testing::TestWithParam<World> {};

TEST_P(AutogradParity, VerbsEqualOneProcess) {
  const auto body = [](Group& group) {
    const Rank rank{group, group.rank(), group.size()};
    for (const Verb& verb : verbs()) {
      const auto found = distributed(verb, rank, true);
      const auto expected = local(verb, rank.n)[std::size_t(rank.me)];
      same(found.out, expected.out, std::string(verb.name) + ": result");
      same(found.first, expected.first, std::string(verb.name) + ": gradient");
      if (verb.has_second) same(found.second, expected.second, std::string(verb.name) + ": second derivative");
    }
  };
  EXPECT_EQ(outcome_of(GetParam(), body), "");
}

// Rank 0's input has no gradient, as that of a rank without parameters; the others still get theirs.
TEST_P(AutogradParity, ARankWithoutParametersTakesPart) {
  const auto body = [](Group& group) {
    const Rank rank{group, group.rank(), group.size()};
    for (Verb verb : verbs()) {
      verb.has_second = false;
      const auto found = distributed(verb, rank, rank.me != 0);
      const auto expected = local(verb, rank.n)[std::size_t(rank.me)];
      same(found.out, expected.out, std::string(verb.name) + ": result");
      if (rank.me != 0)
        same(found.first, expected.first, std::string(verb.name) + ": gradient");
      else
        check(!found.first.defined(), verb.name, ": a gradient of nobody");
    }
  };
  EXPECT_EQ(outcome_of(GetParam(), body), "");
}

// The same through torch.distributed.nn.functional over gloo.
TEST(AutogradOracle, TorchDistributedGivesTheSame) {
  const std::string python = test::python_with_torch();
  if (python.empty()) GTEST_SKIP() << test::no_python_with("torch.distributed with gloo");
  for (const int ranks : {2, 3}) {
    const auto oracle = test::answer_of(python + " " TUTTI_TORCH_FUNCTIONAL " " + std::to_string(ranks));
    EXPECT_EQ(oracle.size(), 7u);
    const auto body = [&](Group& group) {
      const Rank rank{group, group.rank(), group.size()};
      int compared = 0;
      for (Verb verb : verbs()) {
        if (!oracle.contains(verb.name)) continue;
        ++compared;
        verb.has_second = false;
        const auto found = distributed(verb, rank, true);
        const auto& expected = oracle[verb.name][std::size_t(rank.me)];
        const auto compare = [&](const at::Tensor& tensor, const char* what) {
          const auto values = expected[what].get<std::vector<double>>();
          const auto theirs = at::empty({std::int64_t(values.size())}, at::kDouble);
          std::copy(values.begin(), values.end(), theirs.data_ptr<double>());
          same(tensor.defined() ? tensor.flatten() : tensor, theirs, std::string(verb.name) + ": " + what);
        };
        compare(found.out, "out");
        compare(found.first, "gradient");
      }
      check(compared == int(oracle.size()), "verbs that were compared: ", compared);
    };
    EXPECT_EQ(outcome_of({"shm", ranks}, body), "");
  }
}

// Column-parallel, then row-parallel (Megatron-LM): each rank has a part of both weights, all have the same loss.
TEST_P(AutogradParity, RegionsEqualOneProcess) {
  const auto body = [](Group& group) {
    using namespace autograd;
    const int n = group.size(), me = group.rank();
    const auto alone_x = numbers({5, 12}, 1).requires_grad_(), first = numbers({12, 12}, 2),
               second = numbers({12, 12}, 3);
    const auto weights = [](const at::Tensor& whole, int dim, int n, int me) {
      return whole.narrow(dim, 12 / n * me, 12 / n).clone().requires_grad_();
    };
    const auto run = [](const auto& x, const auto& a, const auto& b, const auto& f, const auto& g, const auto& scatter,
                        const auto& gather) {
      const auto h = at::tanh(at::matmul(f(x), a));
      const auto y = g(at::matmul(h, b));
      const auto z = gather(at::sin(scatter(y)));
      return (z * numbers({5, 12}, 4)).sum() + z.sum();
    };
    const auto same_as_it_is = [](const at::Tensor& x) { return x * 1; };
    const auto a = weights(first, 1, 1, 0), b = weights(second, 0, 1, 0);
    backward(run(alone_x, a, b, same_as_it_is, same_as_it_is, same_as_it_is, same_as_it_is));
    for (const std::int64_t dim : {-1, 1}) {
      const auto x = numbers({5, 12}, 1).requires_grad_();
      const auto my_a = weights(first, 1, n, me), my_b = weights(second, 0, n, me);
      const auto loss = run(
          x, my_a, my_b, [&](const auto& t) { return copy_to_region(group, t); },
          [&](const auto& t) { return reduce_from_region(group, t); },
          [&](const auto& t) { return scatter_to_region(group, t, dim); },
          [&](const auto& t) { return gather_from_region(group, t, dim); });
      backward(loss);
      same(x.grad(), alone_x.grad(), "gradient of the input");
      same(my_a.grad(), a.grad().narrow(1, 12 / n * me, 12 / n), "gradient of the first weight");
      same(my_b.grad(), b.grad().narrow(0, 12 / n * me, 12 / n), "gradient of the second weight");
    }
  };
  EXPECT_EQ(outcome_of(GetParam(), body), "");
}

// A contrastive loss: every rank has the features of all, and the same loss. Backward counts it once a rank, and
// DataParallel averages that away.
TEST_P(AutogradParity, ALossThatAllShareIsRightUnderDataParallel) {
  const auto body = [](Group& group) {
    const int n = group.size(), me = group.rank();
    const auto net = [] {
      static std::mutex one_at_a_time;  // ranks that are threads share the generator
      const std::lock_guard lock(one_at_a_time);
      at::manual_seed(3);
      auto linear = std::make_shared<torch::nn::LinearImpl>(5, 4);
      linear->to(at::kDouble);
      return linear;
    };
    const auto loss_of_all = [](const at::Tensor& features) {
      return at::log_softmax(at::matmul(features, features.t()), 1).diagonal().mean();
    };
    const auto pictures = numbers({12, 5}, 9);
    const auto alone = net(), together = net();
    backward(loss_of_all(alone->forward(pictures)));
    DataParallel ddp(together, group.split(0, me).or_throw());
    const auto features = ddp.forward(pictures.narrow(0, 12 / n * me, 12 / n));
    backward(loss_of_all(autograd::all_gather(group, features)));
    ddp.finish();
    same(together->weight.grad(), alone->weight.grad(), "gradient of the weight");
    same(together->bias.grad(), alone->bias.grad(), "gradient of the bias");
  };
  EXPECT_EQ(outcome_of(GetParam(), body), "");
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (const int ranks : {1, 2, 3, 4})
    for (const char* way : {"inproc", "shm", "tcp"}) all.push_back({way, ranks});
#ifdef TUTTI_HAS_GLOO
  all.push_back({"gloo", 3});
#endif
  return all;
}
INSTANTIATE_TEST_SUITE_P(, AutogradParity, testing::ValuesIn(worlds()), testing::PrintToStringParamName());

}  // namespace
}  // namespace tutti
