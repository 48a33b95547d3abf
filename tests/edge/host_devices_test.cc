// What the kernel's files tell of GPUs and quotas, read from a tree made for the test.

#include <filesystem>
#include <fstream>

#include "launcher/placement/host_cpus.h"
#include "launcher/placement/host_gpus.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace drun {
namespace {

class Tree {
 public:
  const std::string& path() const { return directory_.path(); }
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path place = path() + file;
    std::filesystem::create_directories(place.parent_path());
    std::ofstream(place) << text;
  }
  void nvidia_gpu(const std::string& address, int number, const std::string& node) const {
    write("/proc/driver/nvidia/gpus/" + address + "/information",
          "Model: \t\t NVIDIA H200\nIRQ:   \t\t 128\nGPU UUID: \t GPU-" + std::to_string(number) +
              "\nBus Location: \t " + address + "\nDevice Minor: \t " + std::to_string(number) +
              "\n");
    write("/sys/bus/pci/devices/" + address + "/numa_node", node + "\n");
  }

 private:
  testing::TemporaryDirectory directory_;
};

}  // namespace

TEST_CASE("NVIDIA's GPUs are told with their places, in the order of their addresses") {
  const Tree tree;
  CHECK(look_at_gpus(tree.path()).gpus.empty());
  tree.nvidia_gpu("0000:db:00.0", 0, "1");
  tree.nvidia_gpu("0000:3b:00.0", 1, "-1");
  const InstalledGpus installed = look_at_gpus(tree.path());
  CHECK_FALSE(installed.is_amd);
  CHECK(installed.gpus ==
        std::vector<Gpu>{
            {.pci_address = "0000:3b:00.0", .uuid = "GPU-1", .memory_node = std::nullopt},
            {.pci_address = "0000:db:00.0", .uuid = "GPU-0", .memory_node = 1}});
}

TEST_CASE("in a container only the GPUs whose device files are there count") {
  const Tree tree;
  for (int number = 0; number < 4; ++number)
    tree.nvidia_gpu("0000:0" + std::to_string(number) + ":00.0", number, "0");
  for (const char* file : {"nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"})
    tree.write(std::string("/dev/") + file, "");
  const InstalledGpus installed = look_at_gpus(tree.path());
  REQUIRE(installed.gpus.size() == 1);
  CHECK(installed.gpus[0].uuid == "GPU-2");
}

TEST_CASE("device files alone tell how many GPUs there are") {
  const Tree tree;
  tree.write("/dev/nvidia0", "");
  tree.write("/dev/nvidia7", "");
  CHECK(look_at_gpus(tree.path()).gpus == std::vector<Gpu>(2));
}

TEST_CASE("AMD's GPUs are told apart from CPUs, with their places") {
  const Tree tree;
  const std::string nodes = "/sys/class/kfd/kfd/topology/nodes/";
  tree.write(nodes + "0/gpu_id", "0\n");
  tree.write(nodes + "0/properties", "cpu_cores_count 64\n");
  tree.write(nodes + "1/gpu_id", "51140\n");
  tree.write(nodes + "1/properties", "simd_count 416\nlocation_id 49664\ndomain 0\n");
  tree.write(nodes + "2/gpu_id", "");  // not ours: the kernel refuses to tell
  tree.write("/sys/bus/pci/devices/0000:c2:00.0/numa_node", "3\n");
  const InstalledGpus installed = look_at_gpus(tree.path());
  CHECK(installed.is_amd);
  CHECK(installed.gpus == std::vector<Gpu>{{.pci_address = "0000:c2:00.0", .memory_node = 3}});
}

TEST_CASE("a quota of version 2 counts, the tightest on the way up") {
  const Tree tree;
  CHECK(cpus_within_quota(8, tree.path()) == 8);  // no control groups at all
  tree.write("/proc/self/cgroup", "0::/pods/mine\n");
  tree.write("/sys/fs/cgroup/pods/mine/cpu.max", "max 100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 8);
  tree.write("/sys/fs/cgroup/pods/cpu.max", "350000 100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 3);
  tree.write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 1);
}

TEST_CASE("a quota of version 1 counts under either name of its controller") {
  const Tree tree;
  const std::string mount = GENERATE("cpu", "cpu,cpuacct");
  tree.write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/1\n1:name=systemd:/docker/1\n");
  const std::string folder = "/sys/fs/cgroup/" + mount;
  tree.write(folder + "/cpu.cfs_quota_us", "400000\n");  // a container sees its own as the root
  tree.write(folder + "/cpu.cfs_period_us", "100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 4);
  tree.write(folder + "/docker/1/cpu.cfs_quota_us", "-1\n");
  tree.write(folder + "/docker/1/cpu.cfs_period_us", "100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 4);
}

}  // namespace drun
