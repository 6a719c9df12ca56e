#include "recipe/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace fathom {

namespace {

double cubic(double x) {
    constexpr double kA = -0.5;
    x = std::abs(x);
    if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
    if (x < 2) return kA * (((x - 5) * x + 8) * x - 4);
    return 0;
}

// What one number of the result is made of: source numbers from `first` on, with their weights.
struct Blend {
    std::size_t first = 0;
    std::vector<float> weights = {};
};

std::vector<Blend> blends(std::int64_t from, std::int64_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double stretch = std::max(scale, 1.0);
    std::vector<Blend> result(static_cast<std::size_t>(to));
    for (std::size_t i = 0; i < result.size(); ++i) {
        const double centre = (static_cast<double>(i) + 0.5) * scale;
        const auto first =
            std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(centre - 2 * stretch)), 0);
        const auto last = std::min<std::int64_t>(
            static_cast<std::int64_t>(std::ceil(centre + 2 * stretch)), from);
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t j = first; j < last; ++j) {
            weights.push_back(cubic((static_cast<double>(j) + 0.5 - centre) / stretch));
            sum += weights.back();
        }
        result[i].first = static_cast<std::size_t>(first);
        for (const double weight : weights)
            result[i].weights.push_back(static_cast<float>(weight / sum));
    }
    return result;
}

std::uint8_t to_byte(float x) {
    return static_cast<std::uint8_t>(std::clamp(x + 0.5f, 0.0f, 255.0f));
}

}  // namespace

Picture fit_picture(const Picture& picture, ImageSize frame) {
    const ImageSize from = picture.size;
    const double ratio =
        std::min(static_cast<double>(frame.width) / static_cast<double>(from.width),
                 static_cast<double>(frame.height) / static_cast<double>(from.height));
    const auto side = [&](std::int64_t length, std::int64_t limit) {
        return std::clamp<std::int64_t>(
            static_cast<std::int64_t>(static_cast<double>(length) * ratio), 1, limit);
    };
    const ImageSize inner{side(from.width, frame.width), side(from.height, frame.height)};

    // Across first: rows of the source, as wide as the result.
    const auto columns = static_cast<std::size_t>(inner.width) * 3;
    std::vector<float> rows(static_cast<std::size_t>(from.height) * columns);
    const std::vector<Blend> across = blends(from.width, inner.width);
    for (std::size_t y = 0; y < static_cast<std::size_t>(from.height); ++y) {
        const std::uint8_t* in = picture.rgb.data() + y * static_cast<std::size_t>(from.width) * 3;
        float* out = rows.data() + y * columns;
        for (const Blend& blend : across) {
            float sum[3] = {};
            const std::uint8_t* pixel = in + blend.first * 3;
            for (const float weight : blend.weights)
                for (float& s : sum)
                    s += weight * static_cast<float>(*pixel++);
            out = std::copy(sum, sum + 3, out);
        }
    }

    Picture result{
        frame, std::vector<std::uint8_t>(static_cast<std::size_t>(frame.width * frame.height * 3),
                                         kImageGrey)};
    const auto left = static_cast<std::size_t>((frame.width - inner.width) / 2);
    const auto top = static_cast<std::size_t>((frame.height - inner.height) / 2);
    const std::vector<Blend> down = blends(from.height, inner.height);
    std::vector<float> sums(columns);
    for (std::size_t y = 0; y < down.size(); ++y) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        const float* row = rows.data() + down[y].first * columns;
        for (const float weight : down[y].weights) {
            for (std::size_t x = 0; x < columns; ++x)
                sums[x] += weight * row[x];
            row += columns;
        }
        std::transform(sums.begin(), sums.end(),
                       result.rgb.begin() +
                           static_cast<std::ptrdiff_t>(
                               ((top + y) * static_cast<std::size_t>(frame.width) + left) * 3),
                       to_byte);
    }
    return result;
}

}  // namespace fathom
