// A FUSE file system that mirrors a directory and blocks every operation while a certain file
// exists, like a stalled NFS or Lustre.
//
//   stalling_fs BACKING_DIRECTORY STALL_FILE MOUNT_POINT      prints "mounted", ends on SIGTERM
//
// Exits with 77 if it was built without libfuse3.
#include <cstdio>

#ifndef DRUN_HAS_FUSE
int main() {
  std::puts("built without libfuse3");
  return 77;
}
#else

#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace {

std::string backing;
std::string stall_file;

std::string below(const char* path) {
  for (int i = 0; i < 3000 && ::access(stall_file.c_str(), F_OK) == 0; ++i) ::usleep(20'000);
  return backing + path;
}

int code(int result) { return result < 0 ? -errno : 0; }
int file_of(const fuse_file_info* info) { return static_cast<int>(info->fh); }

int get_attributes(const char* path, struct stat* about, fuse_file_info*) {
  return code(::lstat(below(path).c_str(), about));
}
int read_directory(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
                   fuse_readdir_flags) {
  DIR* directory = ::opendir(below(path).c_str());
  if (directory == nullptr) return -errno;
  while (const dirent* entry = ::readdir(directory))
    fill(buffer, entry->d_name, nullptr, 0, static_cast<fuse_fill_dir_flags>(0));
  ::closedir(directory);
  return 0;
}
int open_file(const char* path, fuse_file_info* info) {
  const int fd = ::open(below(path).c_str(), info->flags & ~O_NOFOLLOW);
  if (fd < 0) return -errno;
  info->fh = static_cast<uint64_t>(fd);
  return 0;
}
int create_file(const char* path, mode_t mode, fuse_file_info* info) {
  const int fd = ::open(below(path).c_str(), info->flags | O_CREAT, mode);
  if (fd < 0) return -errno;
  info->fh = static_cast<uint64_t>(fd);
  return 0;
}
int read_file(const char*, char* buffer, size_t size, off_t offset, fuse_file_info* info) {
  below("");
  const ssize_t got = ::pread(file_of(info), buffer, size, offset);
  return got < 0 ? -errno : static_cast<int>(got);
}
// pwrite() on a descriptor with O_APPEND appends; the kernel passes the end of the file anyway.
int write_file(const char*, const char* bytes, size_t size, off_t offset, fuse_file_info* info) {
  below("");
  const ssize_t written = ::pwrite(file_of(info), bytes, size, offset);
  return written < 0 ? -errno : static_cast<int>(written);
}
int truncate_file(const char* path, off_t size, fuse_file_info*) {
  return code(::truncate(below(path).c_str(), size));
}
int release_file(const char*, fuse_file_info* info) { return code(::close(file_of(info))); }
int flush_file(const char*, fuse_file_info*) {
  below("");
  return 0;
}
int make_directory(const char* path, mode_t mode) {
  return code(::mkdir(below(path).c_str(), mode));
}
int remove_directory(const char* path) { return code(::rmdir(below(path).c_str())); }
int remove_file(const char* path) { return code(::unlink(below(path).c_str())); }
void* begin(fuse_conn_info*, fuse_config* config) {
  config->attr_timeout = 0;  // so that stat() reaches this program and blocks here
  config->entry_timeout = 0;
  std::puts("mounted");
  std::fflush(stdout);
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  backing = argv[1];
  stall_file = argv[2];
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.readdir = read_directory;
  operations.open = open_file;
  operations.create = create_file;
  operations.read = read_file;
  operations.write = write_file;
  operations.truncate = truncate_file;
  operations.release = release_file;
  operations.flush = flush_file;
  operations.mkdir = make_directory;
  operations.rmdir = remove_directory;
  operations.unlink = remove_file;
  operations.init = begin;
  char foreground[] = "-f";
  char* arguments[] = {argv[0], foreground, argv[3], nullptr};
  return fuse_main(3, arguments, &operations, nullptr);
}
#endif
