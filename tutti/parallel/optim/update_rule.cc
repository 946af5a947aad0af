// All that depends on the step and not on the element is worked out here, in double, once a step: bias corrections,
// decayed rates. What is left for the loops are a few multiplications by constants.
#include "tutti/parallel/optim/update_rule.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>

namespace tutti {
namespace {

struct OptionBound {
  const char* option;
  double value;
  bool good;
  const char* expected;
};

Status check_all(const char* rule, std::initializer_list<OptionBound> bounds) {
  for (const auto& bound : bounds) {
    if (!bound.good)
      return invalid_argument(
          fmt::format("{}: {} is {}; expected {}", rule, bound.option, bound.value, bound.expected));
  }
  return {};
}

OptionBound not_negative(const char* option, double value) {
  return {option, value, value >= 0 && std::isfinite(value), "a number that is not negative"};
}
OptionBound part_of_one(const char* option, double value) {
  return {option, value, value >= 0 && value < 1, "a number from 0 to below 1"};
}

template <class Options>
Status check_adam(const char* rule, const Options& o) {
  return check_all(rule, {not_negative("lr", o.lr), part_of_one("beta1", o.beta1), part_of_one("beta2", o.beta2),
                          not_negative("eps", o.eps), not_negative("weight_decay", o.weight_decay)});
}

Status check_one(const SgdOptions& o) {
  TUTTI_TRY(check_all("Sgd", {not_negative("lr", o.lr),
                              not_negative("momentum", o.momentum),
                              not_negative("weight_decay", o.weight_decay),
                              {"dampening", o.dampening, std::isfinite(o.dampening), "a number"}}));
  if (o.nesterov && (o.momentum == 0 || o.dampening != 0))
    return invalid_argument(fmt::format("Sgd: nesterov with momentum {} and dampening {}", o.momentum, o.dampening),
                            "Nesterov's momentum needs a momentum, and no dampening");
  return {};
}
Status check_one(const AdamOptions& o) { return check_adam("Adam", o); }
Status check_one(const AdamWOptions& o) { return check_adam("AdamW", o); }
Status check_one(const AdagradOptions& o) {
  return check_all(
      "Adagrad",
      {not_negative("lr", o.lr), not_negative("lr_decay", o.lr_decay), not_negative("weight_decay", o.weight_decay),
       not_negative("initial_accumulator_value", o.initial_accumulator_value), not_negative("eps", o.eps)});
}

Status check_one(const LionOptions& o) {
  return check_all("Lion", {not_negative("lr", o.lr), part_of_one("beta1", o.beta1), part_of_one("beta2", o.beta2),
                            not_negative("weight_decay", o.weight_decay)});
}
Status check_one(const MuonOptions& o) {
  return check_all("Muon", {not_negative("lr", o.lr),
                            part_of_one("momentum", o.momentum),
                            not_negative("weight_decay", o.weight_decay),
                            {"ns_steps", double(o.ns_steps), o.ns_steps >= 1 && o.ns_steps < 100, "1 to 99 steps"},
                            not_negative("eps", o.eps)});
}

std::vector<StateKind> kinds_of(const SgdOptions& o) {
  if (o.momentum == 0) return {};
  return {{"momentum_buffer", 0}};
}
std::vector<StateKind> kinds_of(const LionOptions&) { return {{"exp_avg", 0}}; }
std::vector<StateKind> kinds_of(const MuonOptions&) { return {{"momentum_buffer", 0}}; }
template <class Options>
std::vector<StateKind> kinds_of(const Options& o) {  // Adam and AdamW
  std::vector<StateKind> kinds = {{"exp_avg", 0}, {"exp_avg_sq", 0}};
  if (o.amsgrad) kinds.push_back({"max_exp_avg_sq", 0});
  return kinds;
}
std::vector<StateKind> kinds_of(const AdagradOptions& o) { return {{"sum", o.initial_accumulator_value}}; }

Update update_of(const SgdOptions& o, std::int64_t step) {
  Update update{.step_size = o.lr, .decay = o.weight_decay, .beta1 = o.momentum};
  update.formula = o.momentum == 0 ? Update::Formula::kPlain
                   : o.nesterov    ? Update::Formula::kNesterov
                                   : Update::Formula::kMomentum;
  update.fresh1 = step == 1 ? 1 : 1 - o.dampening;
  return update;
}

template <class Options>
Update update_of_adam(const Options& o, std::int64_t step) {
  const double correction1 = 1 - std::pow(o.beta1, double(step)), correction2 = 1 - std::pow(o.beta2, double(step));
  return {.formula = o.amsgrad ? Update::Formula::kAmsgrad : Update::Formula::kAdam,
          .step_size = o.lr / correction1,
          .beta1 = o.beta1,
          .fresh1 = 1 - o.beta1,
          .beta2 = o.beta2,
          .fresh2 = 1 - o.beta2,
          .root_factor = 1 / std::sqrt(correction2),
          .eps = o.eps};
}
Update update_of(const AdamOptions& o, std::int64_t step) {
  Update update = update_of_adam(o, step);
  update.decay = o.weight_decay;
  return update;
}
Update update_of(const AdamWOptions& o, std::int64_t step) {
  Update update = update_of_adam(o, step);
  update.shrink = 1 - o.lr * o.weight_decay;
  return update;
}
Update update_of(const AdagradOptions& o, std::int64_t step) {
  return {.formula = Update::Formula::kAdagrad,
          .step_size = o.lr / (1 + double(step - 1) * o.lr_decay),
          .decay = o.weight_decay,
          .eps = o.eps};
}

Update update_of(const LionOptions& o, std::int64_t) {
  return {.formula = Update::Formula::kLion,
          .step_size = o.lr,
          .shrink = 1 - o.lr * o.weight_decay,
          .beta1 = o.beta1,
          .fresh1 = 1 - o.beta1,
          .beta2 = o.beta2,
          .fresh2 = 1 - o.beta2};
}
Update update_of(const MuonOptions&, std::int64_t) {
  TUTTI_INVARIANT(false, "Muon has no update of single elements: see matrix_rule.h");
}

std::string words_of(const LionOptions& o) {
  return fmt::format("lr {}, beta1 {}, beta2 {}, weight decay {}", o.lr, o.beta1, o.beta2, o.weight_decay);
}
std::string words_of(const MuonOptions& o) {
  return fmt::format("lr {}, momentum {}, weight decay {}, nesterov {}, ns_steps {}, eps {}", o.lr, o.momentum,
                     o.weight_decay, o.nesterov, o.ns_steps, o.eps);
}
std::string words_of(const SgdOptions& o) {
  return fmt::format("lr {}, momentum {}, weight decay {}, nesterov {}, dampening {}", o.lr, o.momentum, o.weight_decay,
                     o.nesterov, o.dampening);
}
template <class Options>
std::string words_of(const Options& o) {  // Adam and AdamW
  return fmt::format("lr {}, beta1 {}, beta2 {}, eps {}, weight decay {}, amsgrad {}", o.lr, o.beta1, o.beta2, o.eps,
                     o.weight_decay, o.amsgrad);
}
std::string words_of(const AdagradOptions& o) {
  return fmt::format("lr {}, lr decay {}, weight decay {}, initial accumulator value {}, eps {}", o.lr, o.lr_decay,
                     o.weight_decay, o.initial_accumulator_value, o.eps);
}

}  // namespace

const char* name(const UpdateRule& rule) {
  constexpr const char* kNames[] = {"Sgd", "Adam", "AdamW", "Adagrad", "Lion", "Muon"};
  return kNames[rule.index()];
}

std::string to_string(const UpdateRule& rule) {
  return fmt::format("{}, {}", name(rule), std::visit([](const auto& options) { return words_of(options); }, rule));
}

Status check(const UpdateRule& rule) {
  return std::visit([](const auto& options) { return check_one(options); }, rule);
}
double learning_rate(const UpdateRule& rule) {
  return std::visit([](const auto& options) { return options.lr; }, rule);
}
void set_learning_rate(UpdateRule& rule, double lr) {
  std::visit([lr](auto& options) { options.lr = lr; }, rule);
}
double weight_decay(const UpdateRule& rule) {
  return std::visit([](const auto& options) { return options.weight_decay; }, rule);
}
void set_weight_decay(UpdateRule& rule, double decay) {
  std::visit([decay](auto& options) { options.weight_decay = decay; }, rule);
}
std::vector<StateKind> state_kinds(const UpdateRule& rule) {
  return std::visit([](const auto& options) { return kinds_of(options); }, rule);
}
Update update_in_step(const UpdateRule& rule, std::int64_t step) {
  return std::visit([step](const auto& options) { return update_of(options, step); }, rule);
}

}  // namespace tutti
