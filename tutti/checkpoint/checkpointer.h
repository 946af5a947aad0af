#pragma once
// What a training program does with checkpoints:
//
//   tutti::Checkpointer checkpoints(world, {.folder = "runs/a", .interval = 100, .keep = 3});
//   checkpoints.add("model", model);
//   checkpoints.add("optimizer", optimizer);
//   checkpoints.add("loader", loader);                 // any object whose state a StateDict takes (state.h)
//   std::int64_t step = checkpoints.resume().step;     // 0 where there is no checkpoint yet
//   while (step < steps) {
//     train(++step);
//     if (checkpoints.after(step)) return tutti::kLeftEarly;
//   }
//   checkpoints.finish();                              // saves the last step
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/thread.h"
#include "tutti/checkpoint/folder/folder_lock.h"
#include "tutti/checkpoint/folder/resume.h"
#include "tutti/checkpoint/io/background_saver.h"
#include "tutti/checkpoint/memory/memory_copies.h"
#include "tutti/checkpoint/state.h"
#include "tutti/comm/group.h"

namespace tutti {

struct CheckpointerOptions {
  std::string folder;            // where checkpoints are saved; empty: nowhere
  bool folder_per_node = false;  // the folder is another one on each node, which keeps what its ranks write
  std::int64_t interval = 0;     // steps between saves; 0: only at the end, and where the job is asked to stop
  int keep = 0;                  // so many of the newest checkpoints stay; 0: all
  std::int64_t keep_every = 0;   // and those whose step is a multiple of this
  std::string resume = "auto";   // "auto", "never" or the path of a checkpoint (folder/resume.h)
  bool weights_only = false;     // load only the weights of the checkpoint at that path, and begin at step 0
  // Save from a copy while training continues. false: save() returns when all is on disk, and copies nothing, for a
  // state of which memory has no room for a copy.
  bool in_background = true;
  // Steps between copies in memory that the agents of tutti run hold, from which a restarted job resumes without a
  // disk; 0: none. With or without a folder.
  std::int64_t memory_copy_interval = 0;
  // Called with the path of each checkpoint that is complete, for example to copy it (SaveOptions::on_saved).
  std::function<Status(const std::string& path)> on_saved = {};
};

// Whether the options fit each other (kUsage). Errors name the options of the trainers.
Status check(const CheckpointerOptions& options);

// Every rank makes one, adds the same objects and calls its functions alike. One thread at a time. Without a folder and
// without copies in memory all of it does nothing, except resume() from a path.
class Checkpointer {
 public:
  // Locks the folder until it is destroyed (folder/folder_lock.h). Collective. Throws Exception where another job has
  // the folder, where it is not one that all ranks share and may write to, and where copies in memory are wanted that
  // no agent keeps.
  Checkpointer(const Group& world, CheckpointerOptions options);
  // Waits for the save that is under way. Logs a warning if steps since the last save are lost because finish() was not
  // called.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;

  // An object (an lvalue: it must outlive this), or a handle such as a shared pointer to a module (an rvalue). Before
  // resume(). `name` is that of StateDict::add().
  template <class T>
  void add(std::string name, T&& object) {
    if constexpr (std::is_lvalue_reference_v<T>) {
      parts_.push_back([name, &object](StateDict& state) { state.add(name, object); });
    } else {
      parts_.push_back(
          [name, held = std::make_shared<T>(std::move(object))](StateDict& state) { state.add(name, *held); });
    }
  }

  struct Resumed {
    std::int64_t step = 0;               // of which the state is; 0: from the start, or with weights alone
    std::optional<ResumeSource> source;  // none: from the start
    std::string checkpoint;              // its path, or what copy in memory it is
  };
  // Loads what was added from the checkpoint that the options choose, and gets the memory that the first save needs.
  // Collective; once, before the first step. Throws Exception: kMismatch where the checkpoint does not fit, then
  // nothing was changed.
  Resumed resume();

  struct Due {
    bool save = false, copy = false;
    bool stop = false;  // the job was asked to stop (Group::should_stop())
  };
  // What after() would do.
  Due due(std::int64_t step, bool last = false) const;
  // Saves and copies to memory as far as it is due after this step. True: the job was asked to stop, and its state is
  // saved; exit with kLeftEarly. A save that fails is reported and counted, and training continues; if it is the save
  // before stopping, this throws Exception. `last`: of the training; it is saved, and not copied. Collective.
  bool after(std::int64_t step, bool last = false);
  // At once, whatever is due. Collective.
  void save(std::int64_t step);
  void copy(std::int64_t step);
  // Saves the step that was given to after() last, unless it is saved, and waits until all is on disk. Collective.
  // Throws Exception where the last save failed: then the work since the save before is not kept.
  void finish();

  bool saves() const { return !options_.folder.empty(); }
  bool copies() const { return options_.memory_copy_interval > 0; }
  BackgroundSaverStats stats();
  MemoryCopiesStats copy_stats();

 private:
  void lock_folder();
  void collect(StateDict& state) const;
  std::optional<ResumePoint> find(std::span<const StateBox> wanted);
  std::optional<CheckpointReader> newest_copy(std::span<const StateBox> wanted);
  std::optional<ResumePoint> later_on_disk(std::int64_t step, std::span<const StateBox> wanted) const;

  const Group world_;
  const CheckpointerOptions options_;
  std::vector<std::function<void(StateDict&)>> parts_;
  std::shared_ptr<const NodeFolders> node_folders_;  // with folder_per_node
  std::optional<FolderLock> folder_lock_;            // one rank of those that see the folder; outlives the last save
  std::unique_ptr<BackgroundSaver> saver_;
  std::unique_ptr<MemoryCopies> copies_;
  std::int64_t after_ = -1, saved_ = -1;  // steps: of the last after(), of the last save()
  std::int64_t resumed_ = 0;              // the step
  const Unwinding unwinding_{};
};

// The exit code of a job that was asked to stop, has saved, and wants to be started again.
inline constexpr int kLeftEarly = 75;

}  // namespace tutti
