// A process of members_process_test, which starts and kills them: members_worker HOW FOLDER NAME.
// Processes find each other's handles, and the shrunk world's store, in the folder.
#include <kolo/c10d.h>
#include <kolo/torch.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

namespace {

using Handles = std::vector<c10d::ReconfigureHandle>;

struct Process {
  std::string folder;
  std::string name;

  void write(const std::string& file, const std::string& text) const {
    const std::string path = folder + "/" + file;
    std::ofstream(path + ".part") << text;
    std::rename((path + ".part").c_str(), path.c_str());
  }
  std::string read(const std::string& file) const {  // waits for it; the test has a timeout
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      std::string text;
      if (std::ifstream in(folder + "/" + file); std::getline(in, text)) return text;
    }
  }
  Handles handles_of(const std::vector<std::string>& names) const {
    Handles handles;
    for (const std::string& other : names) handles.push_back(read(other));
    return handles;
  }
};

/// Waits for reconfigure(); its handle is there for the others.
c10::intrusive_ptr<kolo::ProcessGroupKolo> waiting_group(const Process& process) {
  auto options = c10::make_intrusive<c10d::Backend::Options>("kolo");
  options->enable_reconfigure = true;
  auto group = c10::make_intrusive<kolo::ProcessGroupKolo>(options);
  process.write(process.name, group->get_reconfigure_handle());
  return group;
}

/// "rank 1 of 3: sum 6": of 1 + rank, small and large.
void report(const std::string& when, c10d::Backend& group) {
  std::string sums;
  for (const std::int64_t count : {1, 300000}) {
    std::vector<torch::Tensor> tensors{torch::full({count}, 1 + group.getRank())};
    group.allreduce(tensors)->wait();
    sums += " " + std::to_string(tensors[0][count - 1].item<std::int64_t>());
  }
  std::cout << when << ": rank " << group.getRank() << " of " << group.getSize() << ": sums" << sums
            << std::endl;
}

/// Sums until rank 1 has died of it.
void lose_rank_1(c10d::Backend& group) {
  try {
    for (int i = 0; i < 1000000; ++i) {
      std::vector<torch::Tensor> tensors{torch::ones({100000})};
      group.allreduce(tensors)->wait();
      if (group.getRank() == 1 && i == 10) std::raise(SIGKILL);
    }
  } catch (const kolo::Exception& error) {
    std::cout << "lost: " << error.what() << std::endl;
  }
}

/// What a call of a group whose world has ended says.
void report_old(c10d::Backend& group) {
  try {
    report("old", group);
  } catch (const kolo::Exception& error) {
    std::cout << "old: " << error.what() << std::endl;
  }
}

void survive(const Process& process) {
  kolo::init();
  const auto group = c10::make_intrusive<kolo::ProcessGroupKolo>();
  const auto old = c10::make_intrusive<kolo::ProcessGroupKolo>();
  process.write(process.name, group->get_reconfigure_handle());
  report("first", *group);
  lose_rank_1(*group);
  // By list: in another order than before.
  group->reconfigure({.uuid = 7, .handles = process.handles_of({"c", "a"})})->wait();
  report("survivors", *group);
  report_old(*old);
  const Handles all = process.handles_of({"a", "c", "new"});
  group->reconfigure({.uuid = 8, .handles = std::unordered_set(all.begin(), all.end())})->wait();
  report("joined", *group);
  group->barrier()->wait();
}

void join(const Process& process) {
  const auto group = waiting_group(process);
  const Handles all = process.handles_of({"a", "c", "new"});
  group->reconfigure({.uuid = 8, .handles = std::unordered_set(all.begin(), all.end())})->wait();
  report("joined", *group);
  group->barrier()->wait();
}

/// No launcher, and no world before the first reconfigure().
void begin(const Process& process) {
  const auto backend = waiting_group(process);
  const auto group = kolo::process_group(backend);
  group->reconfigure({.uuid = 1, .handles = process.handles_of({"a", "b", "c"})})->wait();
  std::cout << "group: rank " << group->getRank() << " of " << group->getSize() << std::endl;
  report("first", *backend);
  // To one process, and to the three again.
  backend->reconfigure({.uuid = 2, .handles = Handles{backend->get_reconfigure_handle()}})->wait();
  report("alone", *backend);
  backend->reconfigure({.uuid = 3, .handles = process.handles_of({"c", "b", "a"})})->wait();
  report("again", *backend);
  try {
    backend->reconfigure({.uuid = 3, .handles = process.handles_of({"c", "b", "a"})});
  } catch (const kolo::Exception& error) {
    std::cout << "twice: " << error.what() << std::endl;
  }
  report("last", *backend);
  backend->barrier()->wait();
  // One of the three does not come any more.
  if (process.name == "b") return;
  try {
    backend->reconfigure({.uuid = 4,
                          .handles = process.handles_of({"c", "b", "a"}),
                          .timeout = std::chrono::milliseconds(1500)});
  } catch (const kolo::Exception& error) {
    std::cout << "in vain: " << error.what() << std::endl;
  }
  report_old(*backend);
  backend->reconfigure({.uuid = 5, .handles = process.handles_of({"a", "c"})})->wait();
  report("two", *backend);
  backend->barrier()->wait();
}

/// Two processes mean to meet, but each gives another uuid.
void differ(const Process& process) {
  const auto group = waiting_group(process);
  const Handles both = process.handles_of({"a", "b"});
  try {
    group->reconfigure({.uuid = process.name == "a" ? 1 : 2,
                        .handles = both,
                        .timeout = std::chrono::milliseconds(3000)});
  } catch (const kolo::Exception& error) {
    std::cout << kolo::to_string(error.code()) << ": " << error.what() << std::endl;
  }
  group->reconfigure({.uuid = 3, .handles = both})->wait();
  report("met", *group);
}

void shrink(const Process& process, int rank, int size) {
  const auto store = c10::make_intrusive<c10d::FileStore>(process.folder + "/store", -1);
  kolo::init({.rank = rank, .size = size, .store = kolo::key_value_store(store)});
  const auto group = c10::make_intrusive<kolo::ProcessGroupKolo>();
  report("first", *group);
  lose_rank_1(*group);
  const auto shrunk = group->shrink({1});
  report("shrunk", *shrunk);
  report_old(*group);
  // The aborted group of all ranks, by the way of a failed world.
  if (shrunk->getRank() != 0) {
    report("last", *shrunk->shrink({0}, 1));
  } else {
    report_old(*shrunk);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  torch::set_num_threads(1);
  const std::string how = argv[1];
  const Process process{argv[2], argv[3]};
  try {
    if (how == "survive") survive(process);
    if (how == "join") join(process);
    if (how == "begin") begin(process);
    if (how == "differ") differ(process);
    if (how == "shrink") shrink(process, std::atoi(argv[4]), std::atoi(argv[5]));
  } catch (const std::exception& error) {
    std::cout << "failed: " << kolo::reason_of(error) << std::endl;
    return 1;
  }
  return 0;
}
