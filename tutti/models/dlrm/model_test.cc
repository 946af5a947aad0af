// The arithmetic against published numbers and against autograd.
#include "tutti/models/dlrm/model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tutti/data/clicks/batch.h"
#include "tutti/models/dlrm/graph.h"
#include "tutti/models/dlrm/interaction.h"
#include "tutti/models/dlrm/loss.h"

namespace tutti::dlrm {
namespace {

struct Sample {
  at::Tensor dense, targets;
  std::vector<Lookups> lookups;
};

// Trains a model on batches, on one process; the mean loss of each.
std::vector<double> train(Model& model, const std::vector<Sample>& batches, double lr, const LossOptions& loss = {}) {
  std::vector<double> losses;
  for (const auto& batch : batches) {
    std::vector<LookupsView> views;
    for (const auto& table : batch.lookups) views.push_back({table.offsets, table.indices});
    const auto samples = batch.targets.numel();
    auto predictions =
        model.forward({.samples = samples, .dense = batch.dense.to(model.type()), .lookups = views, .number = 0});
    const auto gradient = at::empty_like(predictions), targets = batch.targets.to(model.type());
    const auto sums = loss_of<double>(loss, {predictions.data_ptr<double>(), std::size_t(samples)},
                                      {targets.data_ptr<double>(), std::size_t(samples)}, double(samples),
                                      {gradient.data_ptr<double>(), std::size_t(samples)});
    losses.push_back(sums.loss / double(samples));
    model.learn(gradient, lr);
  }
  return losses;
}

at::Tensor matrix(std::vector<double> values, std::int64_t columns) {
  return at::tensor(values, at::kDouble).view({-1, columns});
}

Architecture small() { return architecture_of({}, 4, {4, 3, 2}, "").or_throw(); }

Model make(const Architecture& architecture, ModelOptions options = {}) {
  options.type = RealType::kFloat64;
  return Model(Group(), architecture, place_by_count(table_specs(architecture, 1), 1), options);
}

// The debug example in the README of facebookresearch/dlrm. It was made by an early version that drew data and
// weights otherwise, so its printed parameters (five digits) and batches are fed.
TEST(DlrmModel, ReproducesThePublishedExample) {
  auto model = make(small());
  model.tables().write_rows(0, 0,
                            matrix({0.05438, -0.11105, 0.42513, 0.34167, -0.1426, -0.45641, -0.19523, -0.10181}, 2));
  model.tables().write_rows(1, 0, matrix({0.23667, 0.57199, -0.16638, 0.30316, 0.10759, 0.22136}, 2));
  model.tables().write_rows(2, 0, matrix({-0.49338, -0.14301, -0.36649, -0.22139}, 2));
  const auto dense = [&](const std::string& name) {
    for (const auto& tensor : model.dense())
      if (tensor.name == name) return tensor.value;
    throw std::out_of_range(name);
  };
  const auto set = [&](const char* name, std::vector<double> values) {
    const auto value = dense(name);
    value.copy_(at::tensor(values, at::kDouble).view(value.sizes()));
  };
  set("bot_l.0.weight",
      {0.51313, 0.66662, 0.10591, 0.13089, 0.32198, 0.66156, 0.84651, 0.55326, 0.85445, 0.38484, 0.31679, 0.35426});
  set("bot_l.0.bias", {0.17108, 0.82911, 0.33867});
  set("bot_l.2.weight", {0.55237, 0.57855, 0.52153, 0.00269, 0.98835, 0.90534});
  set("bot_l.2.bias", {0.20764, 0.29249});
  set("top_l.0.weight",
      {0.52001, 0.90191, 0.98363, 0.25754, 0.56436, 0.80697, 0.39437, 0.73107, 0.16107, 0.6007, 0.86586,
       0.98352, 0.07937, 0.42835, 0.20454, 0.45064, 0.54776, 0.09333, 0.29686, 0.92758, 0.569,  0.45741,
       0.75353, 0.74186, 0.04858, 0.7087,  0.83924, 0.16594, 0.781,   0.28654, 0.30647, 0.66526});
  set("top_l.0.bias", {0.11139, 0.66487, 0.88786, 0.69631});
  set("top_l.2.weight", {0.44033, 0.43821, 0.7651, 0.56564, 0.0849, 0.58267, 0.81484, 0.33707});
  set("top_l.2.bias", {0.92758, 0.75072});
  set("top_l.4.weight", {0.57406, 0.75164});
  set("top_l.4.bias", {0.07915});

  const std::vector<Sample> batches = {
      {matrix({0.69647, 0.28614, 0.22685, 0.55131, 0.71947, 0.42311, 0.98076, 0.68483}, 4),
       matrix({0.55679, 0.15896}, 1),
       {{{0, 1, 3}, {1, 0, 1}}, {{0, 1, 2}, {0, 1}}, {{0, 1, 2}, {1, 0}}}},
      {matrix({0.36179, 0.22826, 0.29371, 0.63098, 0.0921, 0.4337, 0.43086, 0.49369}, 4),
       matrix({0.15307, 0.69553}, 1),
       {{{0, 1, 4}, {1, 0, 2, 3}}, {{0, 1, 3}, {1, 1, 2}}, {{0, 1, 2}, {1, 1}}}},
      {matrix({0.60306, 0.54507, 0.34276, 0.30412, 0.41702, 0.6813, 0.87546, 0.51042}, 4),
       matrix({0.31877, 0.69197}, 1),
       {{{0, 1, 4}, {2, 0, 1, 2}}, {{0, 1, 2}, {1, 2}}, {{0, 1, 2}, {1, 1}}}}};
  const auto losses = train(model, batches, 0.01);
  EXPECT_NEAR(losses[0], 0.451893, 5e-6);
  EXPECT_NEAR(losses[1], 0.402002, 5e-6);
  EXPECT_NEAR(losses[2], 0.275460, 5e-6);
  const auto near = [](const at::Tensor& found, const at::Tensor& expected) {
    EXPECT_LE((found - expected).abs().max().item<double>(), 1.5e-5) << found << expected;
  };
  near(model.tables().read_rows(0, 0, 4),
       matrix({0.0543, -0.1112, 0.42513, 0.34167, -0.14283, -0.45679, -0.19532, -0.10197}, 2));
  near(model.tables().read_rows(1, 0, 3), matrix({0.23667, 0.57199, -0.1666, 0.30285, 0.10751, 0.22124}, 2));
  near(model.tables().read_rows(2, 0, 2), matrix({-0.49338, -0.14301, -0.36664, -0.22164}, 2));
  near(dense("bot_l.2.weight"), matrix({0.55238, 0.57857, 0.52154, 0.00265, 0.98825, 0.90528}, 3));
  near(dense("top_l.4.weight"), matrix({0.57379, 0.7514}, 2));
  near(dense("top_l.4.bias"), at::tensor({0.07908}, at::kDouble));
}

TEST(DlrmInteraction, AndItsGradientAreThoseOfAutograd) {
  at::manual_seed(7);
  for (const bool itself : {false, true}) {
    for (const std::int64_t dim : {1, 5, 16, 37}) {
      const DotShape shape{.vectors = 5, .dim = std::size_t(dim), .itself = itself};
      std::vector<at::Tensor> vectors;
      std::vector<Rows<const double>> rows;
      for (int i = 0; i < 5; ++i) {
        vectors.push_back(at::randn({7, dim}, at::kDouble).requires_grad_());
        rows.push_back({vectors.back().data_ptr<double>(), std::size_t(dim)});
      }
      const auto out = at::empty({7, std::int64_t(shape.width())}, at::kDouble);
      dot_interaction<double>(shape, rows, {out.data_ptr<double>(), shape.width()}, 0, 7);
      const auto joined = at::stack(vectors, 1), products = joined.bmm(joined.transpose(1, 2));
      const auto places = at::tril_indices(5, 5, itself ? 0 : -1);
      const auto flat = (places[0] * 5 + places[1]);
      const auto expected = at::cat({vectors[0], products.flatten(1).index_select(1, flat)}, 1);
      EXPECT_LE((out - expected).abs().max().item<double>(), 1e-12);
      const auto slopes = at::randn_like(out);
      const auto wanted = torch::autograd::grad({expected}, vectors, {slopes});
      std::vector<at::Tensor> found;
      std::vector<Rows<double>> to;
      for (int i = 0; i < 5; ++i) {
        found.push_back(at::full({7, dim}, 99, at::kDouble));
        to.push_back({found.back().data_ptr<double>(), std::size_t(dim)});
      }
      dot_interaction_backward<double>(shape, rows, {slopes.data_ptr<double>(), shape.width()}, to, 0, 7);
      for (int i = 0; i < 5; ++i) EXPECT_LE((found[i] - wanted[i]).abs().max().item<double>(), 1e-12) << i;
    }
  }
}

TEST(DlrmMlp, AndItsGradientAreThoseOfAutograd) {
  at::manual_seed(3);
  Mlp mlp({5, 8, 3}, true, {"forward", "backward"});
  mlp.to(at::kDouble);
  const auto parameters = mlp.parameters();
  const auto input = at::randn({6, 5}, at::kDouble).requires_grad_();
  std::vector<at::Tensor> leaves = {input};
  leaves.insert(leaves.end(), parameters.begin(), parameters.end());
  const auto hidden = at::relu(at::addmm(leaves[2], input, leaves[1].t()));
  const auto expected = at::sigmoid(at::addmm(leaves[4], hidden, leaves[3].t()));
  const auto found = mlp.forward(input);
  EXPECT_TRUE(at::equal(found, expected));
  const auto slopes = at::randn_like(expected);
  const auto wanted = torch::autograd::grad({expected}, leaves, {slopes});
  const auto gradients = torch::autograd::grad({found}, leaves, {slopes});
  for (std::size_t i = 0; i < leaves.size(); ++i)
    EXPECT_LE((gradients[i] - wanted[i]).abs().max().item<double>(), 1e-12) << i;
}

TEST(DlrmLoss, AndItsSlopeAreThoseOfTorch) {
  const std::vector<double> p = {0.1, 0.9, 0.5, 1.0, 0.0, 0.3}, t = {0, 1, 1, 0, 0, 1};
  const auto predictions = at::tensor(p, at::kDouble).requires_grad_(), targets = at::tensor(t, at::kDouble);
  for (const auto function : {LossFunction::kMse, LossFunction::kBce, LossFunction::kWbce}) {
    const LossOptions options{.function = function, .weights = {0.5, 3}};
    const auto weights = at::where(targets > 0, at::full_like(targets, 3), at::full_like(targets, 0.5));
    const auto expected = function == LossFunction::kMse ? at::mse_loss(predictions, targets, at::Reduction::Sum)
                          : function == LossFunction::kBce
                              ? at::binary_cross_entropy(predictions, targets, {}, at::Reduction::Sum)
                              : at::binary_cross_entropy(predictions, targets, weights, at::Reduction::Sum);
    auto copy = p;
    std::vector<double> slopes(p.size());
    const auto sums = loss_of<double>(options, copy, t, 4, slopes);
    EXPECT_NEAR(sums.loss, expected.item<double>(), 1e-10);
    EXPECT_EQ(sums.correct, 3) << "0.1, 0.9 and 0.0; 0.5 is rounded to the even 0";
    const auto wanted = torch::autograd::grad({expected}, {predictions})[0] / 4;
    for (std::size_t i = 0; i < p.size(); ++i)
      EXPECT_NEAR(slopes[i], wanted[std::int64_t(i)].item<double>(), 1e-6 * std::abs(slopes[i]) + 1e-12) << i;
  }
  auto held = p;
  std::vector<double> slopes(p.size());
  loss_of<double>({.function = LossFunction::kBce, .threshold = 0.2}, held, t, 1, slopes);
  EXPECT_EQ(held, (std::vector<double>{0.2, 0.8, 0.5, 0.8, 0.2, 0.3}));
  EXPECT_EQ(slopes[0], 0) << "held by the threshold";
  EXPECT_NE(slopes[2], 0);
}

TEST(DlrmQuantised, MlpsAndRowsStayNearTheRealOnes) {
  at::manual_seed(3);
  const at::NoGradGuard no_grad;
  Mlp mlp({37, 64, 5}, true, {"forward", "backward"});
  for (const auto& parameter : mlp.parameters()) parameter.normal_(0, 0.3);
  const auto input = at::randn({9, 37});
  const auto exact = mlp.forward(input);
  const QuantisedMlp half(mlp, 16), bytes(mlp, 8);
  EXPECT_LE((half.infer(input) - exact).abs().max().item<double>(), 2e-3);
  EXPECT_LE((bytes.infer(input) - exact).abs().max().item<double>(), 4e-2);
  EXPECT_EQ(half.weight_bytes(), 2u * (37 * 64 + 64 * 5));
  EXPECT_EQ(bytes.weight_bytes(), 37u * 64 + 64 * 5);
  EXPECT_TRUE(at::equal(bytes.infer(input).narrow(0, 4, 1), bytes.infer(input.narrow(0, 4, 1))))
      << "a sample does not depend on the others of its batch";
  const auto rows = at::rand({20, 16}), kept = rows.clone();
  round_rows(rows, 4);
  const auto step = (kept.amax({1}, true) - kept.amin({1}, true)) / 15;
  EXPECT_LE(((rows - kept).abs() / step).max().item<double>(), 0.5001);
  for (int row = 0; row < 20; ++row) EXPECT_LE(std::get<0>(at::_unique(rows[row])).numel(), 16);
}

TEST(DlrmQuantised, PackedTablesPoolWhatRoundedRowsDo) {
  at::manual_seed(5);
  for (const int bits : {4, 8}) {
    for (const std::int64_t dim : {1, 7, 16}) {
      const auto rows = at::randn({20, dim});
      PackedTable table(20, dim, bits);
      table.set_rows(0, rows.narrow(0, 0, 13));
      table.set_rows(13, rows.narrow(0, 13, 7));
      round_rows(rows, bits);
      EXPECT_LE((table.rows(0, 20) - rows).abs().max().item<double>(), 1e-5);
      const std::vector<std::int64_t> offsets = {0, 2, 2, 5}, indices = {19, 0, 3, 3, 12};
      const auto pooled = table.pool({offsets, indices});
      EXPECT_LE((pooled[0] - rows[19] - rows[0]).abs().max().item<double>(), 1e-5);
      EXPECT_EQ(pooled[1].abs().max().item<double>(), 0);
      EXPECT_LE((pooled[2] - 2 * rows[3] - rows[12]).abs().max().item<double>(), 1e-5);
      EXPECT_EQ(table.bytes(), std::size_t(20 * (8 + (bits == 4 ? (dim + 1) / 2 : dim))));
    }
  }
  const std::vector<std::int64_t> offsets = {0, 1}, indices = {2};
  try {
    PackedTable(2, 4, 8).pool({offsets, indices});
    FAIL();
  } catch (const Exception& error) {
    EXPECT_STREQ(error.what(), "InvalidArgument: there is no row 2 among 2");
  }
}

TEST(DlrmGraph, ShowsTheWholeModel) {
  ArchitectureOptions options;
  options.qr = true;
  options.qr_threshold = 3;
  const auto nodes = compute_graph(architecture_of(options, 4, {9, 3}, "").or_throw());
  const auto dot = dot_text(nodes), svg = svg_text(nodes);
  for (const char* text : {"bottom 0", "Linear 4 -> 3, ReLU", "table 0 (id / 4)", "3 x 2, sum", "product",
                           "interaction: dot", "3 x 2 -> 5", "Linear 2 -> 1, sigmoid", "probability of a click"}) {
    EXPECT_NE(dot.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(svg.rfind("</svg>\n"), svg.size() - 7);
  std::size_t boxes = 0;
  for (std::size_t at = 0; (at = svg.find("<rect", at)) != std::string::npos; ++at) ++boxes;
  EXPECT_EQ(boxes, nodes.size());
}

}  // namespace
}  // namespace tutti::dlrm
