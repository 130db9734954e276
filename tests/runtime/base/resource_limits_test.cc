// The system's limits for a process; each limit is set in a child.
#include "runtime/base/resource_limits.h"
#include "runtime/base/output_file.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>

namespace kolo {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

const Environment kNothing(Environment::Variables{});

/// The status of a child that does `run` and exits with its result.
int status_of_child(const std::function<int()>& run) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

/// Whether check_resource_limits() in a child names `word` once `resource` is `limit`.
bool names(const std::string& word, __rlimit_resource resource, rlim_t limit,
           const Environment& environment = kNothing) {
  return status_of_child([&] {
           const rlimit low = {limit, limit};
           if (::setrlimit(resource, &low) != 0) return 2;
           const Status checked = check_resource_limits(environment);
           return !checked.ok() && checked.error().message.find(word) != std::string::npos ? 0 : 1;
         }) == 0;
}

TEST(ResourceLimits, AreEnoughHere) {
  const Status checked = check_resource_limits(kNothing);
  EXPECT_TRUE(checked.ok()) << checked.error().message;
}

TEST(ResourceLimits, ThatAreTooLowAreNamed) {
  EXPECT_TRUE(names("open files: 20, of which", RLIMIT_NOFILE, 20));
  EXPECT_TRUE(names("size of a file: 1000 KiB (ulimit -f)", RLIMIT_FSIZE, 1000 << 10));
  if (!kSanitized) {
    EXPECT_TRUE(names("(ulimit -v)", RLIMIT_AS, rlim_t{100} << 20));
  }
}

TEST(ResourceLimits, OfSharedMemoryAreForThoseWhoTakeIt) {
  const Environment without(Environment::Variables{{"UCX_TLS", "tcp,self"}});
  EXPECT_FALSE(names("ulimit -f", RLIMIT_FSIZE, 1000 << 10, without));
}

TEST(ResourceLimits, WithoutThreadsIsNamed) {
  if (::geteuid() == 0 && status_of_child([] { return ::setuid(65534); }) != 0)
    GTEST_SKIP() << "root has no limit of threads, and cannot become somebody else here";
  EXPECT_EQ(status_of_child([] {
              const rlimit none = {1, 1};
              if (::setrlimit(RLIMIT_NPROC, &none) != 0) return 2;
              if (::geteuid() == 0 && ::setuid(65534) != 0) return 3;
              const Status checked = check_resource_limits(kNothing);
              return !checked.ok() && checked.error().message.find("ulimit -u") != std::string::npos
                         ? 0
                         : 1;
            }),
            0);
}

int write_beyond_the_limit(int file) {
  const std::string text(8192, 'x');
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(file, text.data(), text.size() - written);
    if (count < 0) return errno;
    written += static_cast<std::size_t>(count);
  }
  return 0;
}

TEST(FileSizeErrors, AreNoSignals) {
  const std::string path = testing::TempDir() + "kolo_file_size_" + std::to_string(::getpid());
  const int status = status_of_child([&] {
    const rlimit small = {4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    {
      const FileSizeErrors file_size_errors;
      if (write_beyond_the_limit(file) != EFBIG) return 1;
    }
    const Status whole = write_new_file(path, std::string(8192, 'x'));
    if (whole.ok() || whole.error().message.find("ulimit -f") == std::string::npos) return 2;
    if (::access(path.c_str(), F_OK) == 0) return 3;
    return write_beyond_the_limit(file);  // as above
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << status;
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace kolo
