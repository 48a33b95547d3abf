// Tests GPUs and CPU quotas as the kernel's files describe them, read from a temporary tree.

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/facts/gpus.h"
#include "launcher/facts/host.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"
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

// Describes the GPUs of a stand-in for NVIDIA's library while it exists.
class Library {
 public:
  explicit Library(const std::string& text) { ::setenv("DRUN_TEST_NVML", text.c_str(), 1); }
  ~Library() { ::unsetenv("DRUN_TEST_NVML"); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};
const std::string kLibrary = testing::built("standin/nvml/libnvidia-ml.so.1");

}  // namespace

TEST_CASE("NVIDIA GPUs are found with their locations, in the order of their PCI addresses") {
  const Tree tree;
  CHECK(look_at_gpus(tree.path()).gpus.empty());
  tree.nvidia_gpu("0000:db:00.0", 0, "1");
  tree.nvidia_gpu("0000:3b:00.0", 1, "-1");
  const GpuTable installed = look_at_gpus(tree.path());
  CHECK_FALSE(installed.is_amd);
  CHECK(installed.gpus ==
        std::vector<Gpu>{
            {.pci_address = "0000:3b:00.0", .uuid = "GPU-1", .memory_node = std::nullopt},
            {.pci_address = "0000:db:00.0", .uuid = "GPU-0", .memory_node = 1}});
}

TEST_CASE("in a container only GPUs with a device file count") {
  const Tree tree;
  for (int number = 0; number < 4; ++number)
    tree.nvidia_gpu("0000:0" + std::to_string(number) + ":00.0", number, "0");
  for (const char* file : {"nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"})
    tree.write(std::string("/dev/") + file, "");
  const GpuTable installed = look_at_gpus(tree.path());
  REQUIRE(installed.gpus.size() == 1);
  CHECK(installed.gpus[0].uuid == "GPU-2");
}

TEST_CASE("device files alone are enough to count the GPUs") {
  const Tree tree;
  tree.write("/dev/nvidia0", "");
  tree.write("/dev/nvidia7", "");
  CHECK(look_at_gpus(tree.path()).gpus == std::vector<Gpu>(2));
}

TEST_CASE("AMD GPUs are found with their locations and distinguished from CPUs") {
  const Tree tree;
  const std::string nodes = "/sys/class/kfd/kfd/topology/nodes/";
  tree.write(nodes + "0/gpu_id", "0\n");
  tree.write(nodes + "0/properties", "cpu_cores_count 64\n");
  tree.write(nodes + "1/gpu_id", "51140\n");
  tree.write(nodes + "1/properties", "simd_count 416\nlocation_id 49664\ndomain 0\n");
  tree.write(nodes + "2/gpu_id", "");  // a GPU outside the container: the kernel makes the file
                                       // unreadable
  tree.write("/sys/bus/pci/devices/0000:c2:00.0/numa_node", "3\n");
  const GpuTable installed = look_at_gpus(tree.path());
  CHECK(installed.is_amd);
  CHECK(installed.gpus == std::vector<Gpu>{{.pci_address = "0000:c2:00.0", .memory_node = 3}});
}

TEST_CASE("a cgroup v2 quota applies, the lowest of all ancestors") {
  const Tree tree;
  CHECK(cpus_within_quota(8, tree.path()) == 8);  // without control groups
  tree.write("/proc/self/cgroup", "0::/pods/mine\n");
  tree.write("/sys/fs/cgroup/pods/mine/cpu.max", "max 100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 8);
  tree.write("/sys/fs/cgroup/pods/cpu.max", "350000 100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 3);
  tree.write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 1);
}

TEST_CASE("a cgroup v1 quota applies under either name of its controller") {
  const Tree tree;
  const std::string mount = GENERATE("cpu", "cpu,cpuacct");
  tree.write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/1\n1:name=systemd:/docker/1\n");
  const std::string folder = "/sys/fs/cgroup/" + mount;
  tree.write(folder + "/cpu.cfs_quota_us", "400000\n");  // a container sees its own group as the
                                                         // root
  tree.write(folder + "/cpu.cfs_period_us", "100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 4);
  tree.write(folder + "/docker/1/cpu.cfs_quota_us", "-1\n");
  tree.write(folder + "/docker/1/cpu.cfs_period_us", "100000\n");
  CHECK(cpus_within_quota(8, tree.path()) == 4);
}

TEST_CASE("NVIDIA's library reports GPUs, their locations and their MIG instances") {
  const Library library(
      "gpu 3b GPU-aaaa; denied; gpu 5e GPU-bbbb; mig MIG-1111 1 0; gap; mig MIG-2222 5 0;"
      "gpu db GPU-cccc; divided");
  const auto told = ask_nvml(kLibrary);
  REQUIRE(told);
  CHECK(*told == GpuTable{.gpus = {{.pci_address = "0000:3b:00.0", .uuid = "GPU-aaaa"},
                                   {.pci_address = "0000:5e:00.0", .uuid = "GPU-bbbb"},
                                   {.pci_address = "0000:db:00.0", .uuid = "GPU-cccc"}},
                          .divided = {1, 2},
                          .instances = {{"MIG-1111", 1, 1, 0}, {"MIG-2222", 1, 5, 0}}});
}

TEST_CASE("a library that is missing or fails to initialize reports nothing") {
  CHECK_FALSE(ask_nvml("/nowhere/libnvidia-ml.so.1"));
  CHECK_FALSE(ask_nvml("libm.so.6"));  // a library without NVML's functions
  const Library library("gpu 3b GPU-aaaa; broken");
  CHECK_FALSE(ask_nvml(kLibrary));
}

TEST_CASE("the library is used where the kernel's files are incomplete") {
  const Library library("gpu 3b GPU-aaaa; mig MIG-1111 1 0; mig MIG-2222 2 0");
  const Tree tree;
  tree.nvidia_gpu("0000:3b:00.0", 0, "1");
  CHECK(look_at_gpus(tree.path(), kLibrary).gpus.front().uuid == "GPU-0");  // the files are
                                                                            // complete
  SECTION("a GPU is divided") {
    tree.write("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "");
    const GpuTable found = look_at_gpus(tree.path(), kLibrary);
    CHECK(found.gpus ==
          std::vector<Gpu>{{.pci_address = "0000:3b:00.0", .uuid = "GPU-aaaa", .memory_node = 1}});
    CHECK(found.divided == std::vector<std::size_t>{0});
    CHECK(found.instances.size() == 2);
  }
  SECTION("a container without the driver's folder in /proc") {
    const Tree container;
    container.write("/dev/nvidia0", "");
    CHECK(look_at_gpus(container.path(), kLibrary).instances.size() == 2);
    CHECK(look_at_gpus(container.path(), "/nowhere").gpus == std::vector<Gpu>(1));
  }
  SECTION("WSL") {
    const Tree windows;
    windows.write("/dev/dxg", "");
    CHECK(look_at_gpus(windows.path(), kLibrary).gpus.size() == 1);
  }
}

TEST_CASE("without the library MIG instances get names from the kernel's files") {
  const Tree tree;
  tree.nvidia_gpu("0000:3b:00.0", 0, "1");
  tree.nvidia_gpu("0000:5e:00.0", 1, "1");
  for (const char* place : {"gi1/ci0", "gi2/ci0", "gi2/ci1"})
    tree.write("/proc/driver/nvidia/capabilities/gpu1/mig/" + std::string(place) + "/access", "");
  tree.write("/proc/driver/nvidia/capabilities/gpu1/mig/gi1/access", "");
  const GpuTable found = look_at_gpus(tree.path(), "/nowhere");
  CHECK(found.divided == std::vector<std::size_t>{1});
  REQUIRE(found.instances.size() == 3);
  CHECK(found.instances[2] == MigInstance{"MIG-GPU-1/2/1", 1, 2, 1});
}

}  // namespace drun
