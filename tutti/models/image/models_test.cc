// Golden values: the Python modules of PyTorch 1.13 with the same layers.
#include "tutti/models/image/models.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tutti/base/error.h"

namespace tutti {
namespace {

struct Golden {
  const char* name;
  float first, last;
  double sum;
};

void check_weights(const std::string& model, std::uint64_t seed, const std::vector<Golden>& goldens) {
  const auto parameters = make_image_model(model, seed)->named_parameters();
  ASSERT_EQ(parameters.size(), goldens.size());
  for (std::size_t i = 0; i < goldens.size(); ++i) {
    EXPECT_EQ(parameters[i].key(), goldens[i].name) << "the order of parameters";
    const auto values = parameters[i].value().detach().flatten();
    EXPECT_FLOAT_EQ(values[0].item<float>(), goldens[i].first) << goldens[i].name;
    EXPECT_FLOAT_EQ(values[-1].item<float>(), goldens[i].last) << goldens[i].name;
    EXPECT_NEAR(values.to(at::kDouble).sum().item<double>(), goldens[i].sum, 1e-4) << goldens[i].name;
  }
}

TEST(ImageModels, CnnStartsAsInPython) {
  check_weights("cnn", 0,
                {{"conv1.weight", -0.0024956068955361843f, 0.09818514436483383f, -4.403385692101438},
                 {"conv1.bias", -0.0762253999710083f, 0.026125948876142502f, -0.4370788736268878},
                 {"conv2.weight", 0.00492214085534215f, -0.023276643827557564f, 4.991375209956004},
                 {"conv2.bias", 0.005928382743149996f, 0.03266800194978714f, 0.0009698676876723766},
                 {"fc1.weight", -0.004101208411157131f, -0.005917266011238098f, 0.5793211761453323},
                 {"fc1.bias", 0.004339556209743023f, -0.008366357535123825f, -0.04866955784291349},
                 {"fc2.weight", -0.08710197359323502f, -0.0530443899333477f, -0.7909000790241407},
                 {"fc2.bias", 0.08592425286769867f, 0.023868540301918983f, 0.2283862684853375}});
}

TEST(ImageModels, MlpStartsAsInPython) {
  check_weights("mlp", 3,
                {{"1.weight", -0.035409748554229736f, -0.009129396639764309f, 9.145900294075837},
                 {"1.bias", -0.0015260492218658328f, -0.004280831199139357f, 0.48608503315776375},
                 {"3.weight", 0.013200080022215843f, -0.002758784219622612f, 5.917268548160791},
                 {"3.bias", 0.009919943287968636f, -0.001896783709526062f, -1.1948145776987076},
                 {"5.weight", -0.004662858322262764f, -0.0009466353803873062f, 1.1463309936225414},
                 {"5.bias", 0.01229042373597622f, 0.0001892298460006714f, 0.05549897626042366}});
}

TEST(ImageModels, ComputeAsInPython) {
  const at::NoGradGuard no_grad;
  const auto pictures = at::arange(2 * 784, at::kFloat).div(784).view({2, 1, 28, 28});
  const auto cnn = make_image_model("cnn", 0)->forward(pictures), mlp = make_image_model("mlp", 3)->forward(pictures);
  EXPECT_EQ(cnn.sizes(), (std::vector<std::int64_t>{2, 10}));
  EXPECT_NEAR(cnn[0][0].item<float>(), -2.2408931255340576, 1e-5);
  EXPECT_NEAR(cnn[0][5].item<float>(), -2.2897226810455322, 1e-5);
  EXPECT_NEAR(mlp[0][0].item<float>(), -2.386237621307373, 1e-5);
  EXPECT_NEAR(mlp[0][5].item<float>(), -2.251389980316162, 1e-5);
}

TEST(ImageModels, UnknownName) {
  try {
    make_image_model("rnn", 0);
    FAIL();
  } catch (const Exception& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("there is no image model \"rnn\""));
  }
}

}  // namespace
}  // namespace tutti
