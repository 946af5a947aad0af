#include "tutti/models/gpt/model.h"

namespace tutti::gpt {

Parallel make_parallel(const Group& world, const Options& options) {
  const auto& parallel = options.parallel;
  const Schedule schedule = pipeline_schedule(options, 1, true);
  return tutti::make_parallel(world, parallel.grid,
                              {.sequence_parallel = parallel.sequence_parallel,
                               .last_stage = schedule.rank_of(schedule.shape.stages() - 1),
                               .split_messages = parallel.split_messages});
}

std::shared_ptr<Transformer> make_model(const Parallel& parallel, const Options& options, at::Device device) {
  const auto model =
      std::make_shared<Transformer>(options.model, parallel,
                                    TransformerOptions{.stages = stages_of_rank(options, parallel.pipeline.rank()),
                                                       .recompute = options.parallel.recompute});
  model->to(device);
  return model;
}

}  // namespace tutti::gpt
