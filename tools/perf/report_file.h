// The file of -J, opened before anything is measured, so that a wrong path costs nothing. Of
// kolo-chooser and kolo-kernels, too; one rank alone writes it, on the main thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace kolo::perf {

class ReportFile {
 public:
  /// Creates the file; one that is there stays as it is. Throws std::runtime_error that names the
  /// path and the reason.
  explicit ReportFile(std::string path);
  /// Puts the text in place of what is in the file, and closes it. Throws as the constructor does.
  void write(std::string_view text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace kolo::perf
