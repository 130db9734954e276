#include "examples/rectified_flow/picture.h"

#include <cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

namespace rectified {
namespace {

struct Destroy {
  void operator()(cairo_t* context) const { cairo_destroy(context); }
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
using Surface = std::unique_ptr<cairo_surface_t, Destroy>;
using Context = std::unique_ptr<cairo_t, Destroy>;

Surface make_surface(std::int64_t width, std::int64_t height) {
  return Surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width),
                                            static_cast<int>(height)));
}

void write(const Surface& surface, const std::filesystem::path& file) {
  const cairo_status_t status = cairo_surface_write_to_png(surface.get(), file.c_str());
  if (status != CAIRO_STATUS_SUCCESS) {
    throw std::runtime_error(
        fmt::format("{}: cannot be written ({})", file.string(), cairo_status_to_string(status)));
  }
}

void line(cairo_t* context, double x0, double y0, double x1, double y1) {
  cairo_move_to(context, x0, y0);
  cairo_line_to(context, x1, y1);
  cairo_stroke(context);
}

/// Text whose right end (`anchor` 1), middle (0.5) or left end (0) is at x.
void text(cairo_t* context, double x, double y, double anchor, const std::string& what) {
  cairo_text_extents_t extents;
  cairo_text_extents(context, what.c_str(), &extents);
  cairo_move_to(context, x - anchor * extents.x_advance, y);
  cairo_show_text(context, what.c_str());
}

}  // namespace

void write_grid(const std::filesystem::path& file, const torch::Tensor& images,
                std::int64_t columns) {
  constexpr std::int64_t kGap = 4;
  const torch::Tensor bytes =
      ((images + 1) * 127.5).round().clamp(0, 255).to(torch::kUInt8).repeat_interleave(2, 2);
  const torch::Tensor large = bytes.repeat_interleave(2, 3).contiguous();
  const std::int64_t count = large.size(0);
  const std::int64_t height = large.size(2);
  const std::int64_t width = large.size(3);
  const std::int64_t rows = (count + columns - 1) / columns;
  const Surface surface =
      make_surface(columns * (width + kGap) + kGap, rows * (height + kGap) + kGap);
  unsigned char* const pixels = cairo_image_surface_get_data(surface.get());
  if (pixels == nullptr) throw std::runtime_error(fmt::format("{}: too large", file.string()));
  const std::int64_t stride = cairo_image_surface_get_stride(surface.get());
  const std::uint8_t* from = large.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t left = kGap + i % columns * (width + kGap);
    const std::int64_t top = kGap + i / columns * (height + kGap);
    for (std::int64_t y = 0; y < height; ++y) {
      // A pixel is four bytes: blue, green, red and one that is not used.
      unsigned char* to = pixels + (top + y) * stride + left * 4;
      for (std::int64_t x = 0; x < width; ++x, to += 4) std::fill_n(to, 3, *from++);
    }
  }
  cairo_surface_mark_dirty(surface.get());
  write(surface, file);
}

void write_curve(const std::filesystem::path& file, const std::vector<double>& losses) {
  constexpr double kLeft = 70;
  constexpr double kTop = 40;
  constexpr double kWidth = 700;
  constexpr double kHeight = 380;
  constexpr int kTicks = 5;
  const Surface surface = make_surface(800, 480);
  const Context owned(cairo_create(surface.get()));
  cairo_t* const context = owned.get();
  cairo_set_source_rgb(context, 1, 1, 1);
  cairo_paint(context);
  cairo_set_font_size(context, 14);

  const double highest = *std::max_element(losses.begin(), losses.end());
  const double top = highest > 0 && std::isfinite(highest) ? 1.05 * highest : 1;
  const auto last = static_cast<double>(losses.size());
  // A single epoch is in the middle.
  const auto x_of = [&](double epoch) {
    return kLeft + kWidth * (last > 1 ? (epoch - 1) / (last - 1) : 0.5);
  };
  const auto y_of = [&](double loss) { return kTop + kHeight * (1 - loss / top); };
  cairo_set_line_width(context, 1);
  for (int i = 0; i <= kTicks; ++i) {
    const double loss = top * i / kTicks;
    cairo_set_source_rgb(context, 0.85, 0.85, 0.85);
    line(context, kLeft, y_of(loss), kLeft + kWidth, y_of(loss));
    cairo_set_source_rgb(context, 0, 0, 0);
    text(context, kLeft - 8, y_of(loss) + 5, 1, fmt::format("{:.3f}", loss));
  }
  const int marks = std::min(static_cast<int>(losses.size()), 6);
  for (int i = 0; i < marks; ++i) {
    const double epoch = marks > 1 ? std::round(1 + (last - 1) * i / (marks - 1)) : 1;
    text(context, x_of(epoch), kTop + kHeight + 20, 0.5, fmt::format("{:.0f}", epoch));
  }
  text(context, kLeft, kTop - 14, 0, "mean loss of all ranks");
  text(context, kLeft + kWidth, kTop + kHeight + 42, 1, "epoch");

  cairo_set_source_rgb(context, 0.1, 0.3, 0.7);
  cairo_set_line_width(context, 2);
  cairo_set_line_cap(context, CAIRO_LINE_CAP_ROUND);  // draws a dot for a single epoch
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto epoch = static_cast<double>(i + 1);
    if (i == 0) cairo_move_to(context, x_of(epoch), y_of(losses[i]));
    cairo_line_to(context, x_of(epoch), y_of(losses[i]));
  }
  cairo_stroke(context);
  write(surface, file);
}

}  // namespace rectified
