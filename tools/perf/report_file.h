// ReportFile: the file of -J. It is opened before anything is measured, so that a wrong path costs
// nothing. Also used by kolo-kernels. One rank writes it, on the main thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace kolo::perf {

class ReportFile {
 public:
  /// Creates the file; an existing file is not changed yet. Throws std::runtime_error with the path
  /// and the reason.
  explicit ReportFile(std::string path);
  /// Replaces the file's content by `text` and closes the file. Throws as the constructor does.
  void write(std::string_view text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace kolo::perf
