// What the verbs with gradients do besides computing them (tests/parity holds the numbers): they record nothing where
// nothing is asked for, free what they held, travel while other work goes on, name who is missing in backward, and
// refuse in sentences.
#include "tutti/tensor/autograd_collectives.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <latch>
#include <string>
#include <vector>

#include "tests/harness/error_of.h"
#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tutti::test::check;
using Rows = std::vector<std::size_t>;

using test::error_of;
void says(const std::function<void()>& act, const std::string& words) {
  const auto said = error_of(act);
  check(said.find(words) != std::string::npos, said, " instead of: ", words);
}

at::Tensor leaf(at::IntArrayRef sizes, double value = 1) { return at::full(sizes, value).requires_grad_(); }
void backward(const at::Tensor& loss, bool again = false) { torch::autograd::backward({loss}, {}, again); }

TEST(AutogradCollectives, RecordNothingWhereNoGradientIsAskedFor) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    const auto counted = autograd::all_reduce(world, at::full({2}, 3, at::kLong), ReduceOp::kBor);
    check(!counted.requires_grad() && at::equal(counted, at::full({2}, 3, at::kLong)), "integers");
    at::NoGradGuard guard;
    const auto x = leaf({2}, 2);
    const auto product = autograd::all_reduce(world, x, ReduceOp::kProduct);
    check(!product.requires_grad() && at::equal(product, at::full({2}, 4.)), "product");
    const auto pending = autograd::all_gather_async(world, x);
    check(!pending.get().requires_grad() && at::equal(pending.get(), at::full({4}, 2.)), "all_gather_async");
    check(pending.done(), "done");
    check(autograd::copy_to_region(world, x).is_same(x), "the identity copies nothing");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(AutogradCollectives, OfEveryTypeThatHasAGradient) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kComplexDouble}) {
      const auto x = at::ones({4}, type).requires_grad_();
      const auto first = autograd::all_reduce(world, x * 2, premul_sum(world.rank() + 1));  // 12
      const auto second = autograd::all_gather_async(world, first).get();
      check(at::equal(second.detach(), at::full({12}, 12, type)), "values of ", describe(x));
      backward(at::real(second).sum());  // 3 losses, times 2, times 1, 2 or 3
      check(x.grad().scalar_type() == type && at::equal(x.grad(), at::full({4}, 18. * (world.rank() + 1), type)),
            "gradient of ", describe(x));
    }
    // A lazy conjugate is sent as what it shows.
    const auto z = at::full({1}, c10::complex<double>(0, 1), at::kComplexDouble);
    const auto sum = autograd::all_reduce(world, z.conj());
    check(at::equal(sum.detach(), at::full({1}, c10::complex<double>(0, -3), at::kComplexDouble)), "conjugate");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(AutogradCollectives, BackwardMayRunTwice) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    const auto x = leaf({2});
    const auto loss = autograd::all_to_all_async(world, autograd::all_reduce(world, x, ReduceOp::kMax)).get().sum();
    backward(loss, true);
    const auto once = x.grad().clone();
    backward(loss);
    check(at::equal(x.grad(), 2 * once) && at::equal(once, at::ones({2})), "gradient");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(AutogradCollectives, GiveTheGradientTheShapeOfTheInput) {
  const auto outcomes = test::run_threads(1, [](Group& world) {
    const auto shape_of = [](const std::function<at::Tensor(const at::Tensor&)>& verb) {
      const auto x = leaf({});
      backward(verb(x).sum());
      return x.grad().dim();
    };
    const Rows one = {1};
    check(shape_of([&](auto& x) { return autograd::all_gather(world, x); }) == 0, "all_gather");
    check(shape_of([&](auto& x) { return autograd::reduce_scatter(world, x); }) == 0, "reduce_scatter");
    check(shape_of([&](auto& x) { return autograd::all_to_all(world, x, one, one); }) == 0, "all_to_all");
    check(shape_of([&](auto& x) { return autograd::reduce_scatter_async(world, x).get(); }) == 0, "asynchronous");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// The memory of an input goes when the graph does: nothing in it holds itself.
TEST(AutogradCollectives, TheGraphFreesWhatItHeld) {
  int gone = 0;
  std::vector<float> memory(8);
  const auto outcomes = test::run_threads(1, [&](Group& world) {
    const auto counted = [&] {
      return at::from_blob(
                 memory.data(), {8}, [&](void*) { ++gone; }, at::kFloat)
          .requires_grad_();
    };
    { const auto out = autograd::all_reduce(world, counted() * counted(), ReduceOp::kMax); }
    check(gone == 2, "without backward: ", gone);
    { backward(autograd::reduce_scatter(world, counted() * counted()).sum()); }
    check(gone == 4, "after backward: ", gone);
    { const auto dropped = autograd::all_gather_async(world, counted() * counted()); }
    check(gone == 6, "never waited for: ", gone);
    { backward(autograd::all_to_all_async(world, counted() * counted()).get().sum(), true); }
    check(gone == 8, "asynchronous, graph kept: ", gone);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// Rank 0 goes on with its own work, in forward and in backward, only after rank 1 has got all of the exchange.
TEST(PendingTensor, IsTransferredDuringOtherWork) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    const auto signal = at::ones({1});
    const bool first = world.rank() == 0;
    const auto x = leaf({2, 3}), other = leaf({2, 3});
    const auto pending = autograd::all_to_all_async(world, x * 2);
    auto meanwhile = other * 3;
    if (first) {
      recv(world, signal, 1);
      meanwhile.register_hook([&](const at::Tensor&) { recv(world, signal, 1); });
    }
    const auto loss = (pending.get() * meanwhile).sum();
    if (!first) send(world, signal, 0);
    backward(loss);
    if (!first) send(world, signal, 0);
    check(at::equal(x.grad(), at::full({2, 3}, 6.)) && at::equal(other.grad(), at::full({2, 3}, 6.)), "gradients");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(PendingTensor, MayBeDroppedWithoutAWait) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    { const auto dropped = autograd::all_reduce_async(world, leaf({1000})); }
    { (void)autograd::all_reduce_async(world, leaf({1000})); }
    const auto x = leaf({1});
    backward(autograd::all_reduce(world, x));
    check(at::equal(x.grad(), at::full({1}, 2.)), "the group is in step");
    check(!autograd::PendingTensor().done(), "nothing is never done");
    says([] { autograd::PendingTensor().get(); }, "that no verb has returned");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(AutogradCollectives, NameTheRankThatRunsNoBackward) {
  for (const bool later : {false, true}) {
    std::string said;
    std::latch others(2);
    const auto body = [&](Group& world) {
      const auto x = leaf({2});
      const auto sum = later ? autograd::all_reduce_async(world, x).get() : autograd::all_reduce(world, x);
      if (world.rank() == 1) {  // still there, elsewhere
        others.wait();
        return;
      }
      const auto error = error_of([&] { backward(sum.sum()); });
      if (world.rank() == 0) said = error;
      others.count_down();
    };
    (void)test::run_threads(3, body, {.timeout = 1});
    EXPECT_THAT(said, AllOf(HasSubstr("Timeout: all_reduce"), HasSubstr("(f32[2], sum)"),
                            HasSubstr("still waiting for rank 1 after 1"), HasSubstr("s of 1 s")));
  }
}

TEST(AutogradCollectives, ShowBothCallsWhereBackwardDiffers) {
  std::string said;
  (void)test::run_threads(2, [&](Group& world) {
    const auto x = leaf({2});
    const auto sum = autograd::all_reduce(world, x);
    const auto all = autograd::all_gather(world, x);
    const auto error = error_of([&] { backward(world.rank() == 0 ? sum.sum() : sum.sum() + all.sum()); });
    if (world.rank() == 0) said = error;
  });
  EXPECT_THAT(said, AllOf(HasSubstr("Mismatch"), HasSubstr("all_reduce"), HasSubstr("reduce_scatter")));
}

TEST(AutogradCollectives, RefuseASecondDerivativeThatTheyDoNotHave) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    const int peer = 1 - world.rank();
    const auto second = [](const at::Tensor& loss) { torch::autograd::backward({loss}, {}, true, true); };
    const auto of = [&](const at::Tensor& out, const std::string& words) {
      says([&] { second(out.sum()); }, words + " has no second derivative");
    };
    of(autograd::all_reduce_async(world, leaf({2})).get(), "an asynchronous verb");
    of(autograd::all_reduce(world, leaf({2}), ReduceOp::kMax), "all_reduce (max)");
    of(autograd::all_reduce(world, leaf({2}), ReduceOp::kMin), "all_reduce (min)");
    of(autograd::broadcast(world, leaf({2})), "broadcast");
    of(autograd::scatter(world, leaf({4}), leaf({2}), 0), "scatter");
    of(autograd::scatter_v(world, leaf({4}), Rows{2, 2}, leaf({2}), 0), "scatter_v");
    const auto sent = autograd::send(world, leaf({2}), peer);
    of(autograd::recv(world, leaf({2}), peer), "recv");
    of(sent, "send");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(AutogradCollectives, SayWhatIsWrong) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    const auto x = leaf({3, 2});
    const Rows three = {1, 1, 1}, four = {2, 2}, fits = {1, 2};
    const at::Tensor nothing;
    const int me = world.rank(), peer = 1 - me;
    for (const auto& [verb, call] : std::vector<std::pair<std::string, std::function<void()>>>{
             {"all_reduce", [&] { autograd::all_reduce(world, nothing); }},
             {"all_reduce", [&] { autograd::all_reduce_async(world, nothing); }},
             {"broadcast", [&] { autograd::broadcast(world, nothing); }},
             {"reduce", [&] { autograd::reduce(world, nothing, 0); }},
             {"all_gather", [&] { autograd::all_gather(world, nothing); }},
             {"all_gather_v", [&] { autograd::all_gather_v(world, nothing, fits); }},
             {"reduce_scatter", [&] { autograd::reduce_scatter(world, nothing); }},
             {"reduce_scatter_v", [&] { autograd::reduce_scatter_v(world, nothing, fits); }},
             {"all_to_all", [&] { autograd::all_to_all(world, nothing); }},
             {"all_to_all", [&] { autograd::all_to_all(world, nothing, fits, fits); }},
             {"gather", [&] { autograd::gather(world, nothing, 0); }},
             {"gather_v", [&] { autograd::gather_v(world, nothing, fits, 0); }},
             {"scatter", [&] { autograd::scatter(world, nothing, x, me); }},
             {"scatter", [&] { autograd::scatter(world, x, nothing, me); }},
             {"scatter_v", [&] { autograd::scatter_v(world, nothing, fits, x, me); }},
             {"send", [&] { (void)autograd::send(world, nothing, peer); }},
             {"recv", [&] { autograd::recv(world, nothing, peer); }},
             {"copy_to_region", [&] { autograd::copy_to_region(world, nothing); }},
             {"reduce_from_region", [&] { autograd::reduce_from_region(world, nothing); }},
             {"scatter_to_region", [&] { autograd::scatter_to_region(world, nothing); }},
             {"gather_from_region", [&] { autograd::gather_from_region(world, nothing); }},
         }) {
      says(call, verb);
      says(call, "an undefined tensor");
    }
    says([&] { autograd::reduce_scatter(world, x); },
         "reduce_scatter: in is f32[3, 2] with 3 rows; expected a multiple of 2, the size of group world");
    says([&] { autograd::all_to_all(world, x); }, "all_to_all: in is f32[3, 2] with 3 rows; expected a multiple of 2");
    says([&] { autograd::all_to_all_async(world, x); }, "the form with rows");
    says([&] { autograd::all_to_all(world, x, three, fits); },
         "all_to_all: in_rows has 3 entries; expected 2, one for each rank of group world");
    says([&] { autograd::all_to_all(world, x, fits, three); }, "all_to_all: out_rows has 3 entries; expected 2");
    says([&] { autograd::all_to_all(world, x, four, fits); },
         "all_to_all: in is f32[3, 2] with 3 rows, but in_rows sum up to 4");
    says([&] { autograd::reduce_scatter_v(world, x, four); }, "in is f32[3, 2] with 3 rows, but rows sum up to 4");
    says([&] { autograd::all_gather_v(world, x, fits); }, "all_gather_v: in is f32[3, 2] with 3 rows, but rows[" +
                                                              std::to_string(me) + "] is " + std::to_string(me + 1));
    says([&] { autograd::gather_v(world, x, three, me); }, "gather_v: rows has 3 entries");
    says([&] { autograd::gather_v(world, x, fits, me); }, "gather_v: in is f32[3, 2] with 6 elements");
    says([&] { autograd::scatter_v(world, x, four, x, me); },
         "scatter_v: in is f32[3, 2] with 3 rows, but rows sum up to 4");
    says([&] { autograd::scatter(world, x, x, me); }, "scatter: in is f32[3, 2] with 6 elements; expected 12");
    says([&] { autograd::all_reduce(world, x, ReduceOp::kProduct); }, "all_reduce (product) has no gradient");
    says([&] { autograd::all_reduce_async(world, x, ReduceOp::kMax); }, "min and max of the blocking all_reduce");
    says([&] { autograd::reduce(world, x, 0, ReduceOp::kMax); }, "reduce (max) has no gradient");
    says([&] { autograd::reduce_scatter_v(world, x, fits, ReduceOp::kMin); }, "reduce_scatter_v (min) has no gradient");
    says([&] { autograd::all_reduce(world, at::ones({2}).to_sparse()); }, "is not dense");
    says([&] { autograd::all_gather(world, at::empty({2}, at::TensorOptions(at::kMeta))); }, "is not on the CPU");
    says([&] { autograd::all_reduce(world, at::ones({2}, at::kShort)); }, "element type that collectives do not know");
    says([&] { autograd::broadcast(world, x, 2); }, "the root 2 is not a rank of this group");
    says([&] { (void)autograd::send(world, x, me); }, "a rank cannot send to itself");
    says([&] { autograd::scatter_to_region(world, x, 0); },
         "scatter_to_region: in is f32[3, 2], whose dimension 0 is no multiple of 2, the size of group world");
    says([&] { autograd::scatter_to_region(world, x, 2); }, "which has no dimension 2");
    says([&] { autograd::gather_from_region(world, x, -3); }, "which has no dimension -3");
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { autograd::all_reduce(Group(), x); }, [&] { autograd::all_to_all(Group(), x, fits, fits); },
             [&] { autograd::all_gather(Group(), x); }, [&] { autograd::scatter(Group(), x, x, 0); },
             [&] { autograd::copy_to_region(Group(), x); }, [&] { autograd::recv(Group(), x, 1); },
             [&] { autograd::gather_from_region(Group(), x); }, [&] { autograd::reduce_scatter_async(Group(), x); }}) {
      says(call, "this rank is not in the group");
    }
    const auto y = leaf({1});
    backward(autograd::all_reduce(world, y));
    check(at::equal(y.grad(), at::full({1}, 2.)), "the group is in step");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
