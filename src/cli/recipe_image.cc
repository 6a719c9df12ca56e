#include "cli/recipe_image.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/input_file.h"
#include "base/json.h"
#include "base/output_file.h"
#include "recipe/images/image_resolver.h"

namespace fathom {
Status show_recipe_images(const std::vector<std::string>& files,
                          const RecipeImageOptions& options) {
    if (files.empty()) return invalid_argument("image: no file is named");
    const ImageLimits limits;
    Json report = Json::array();
    for (const std::string& path : files) {
        FATHOM_ASSIGN(const std::string bytes,
                      read_input_file(path, static_cast<std::uint64_t>(limits.image_bytes)));
        const auto image = prepare_image(
            bytes, options.low_detail ? ImageDetail::low : ImageDetail::high, limits, limits.side);
        if (!image) {
            return invalid_argument("{}: {}: {}", path, image_fault_name(image.error().fault),
                                    image.error().detail);
        }
        if (!options.out.empty()) {
            const auto name = std::filesystem::path(path).stem().string() + ".webp";
            FATHOM_RETURN_IF_ERROR(write_output_file(
                (std::filesystem::path(options.out) / name).string(), image->webp));
        }
        if (!options.json) {
            fmt::print("{}: {} tokens, handed on as {}x{}, {} bytes of WebP\n", path, image->tokens,
                       image->size.width, image->size.height, image->webp.size());
            continue;
        }
        Json line = Json::object();
        line.set("file", path);
        line.set("tokens", image->tokens);
        line.set("width", image->size.width);
        line.set("height", image->size.height);
        line.set("webp_bytes", static_cast<std::int64_t>(image->webp.size()));
        report.push_back(std::move(line));
    }
    if (options.json) fmt::print("{}\n", report.dump());
    return {};
}

}  // namespace fathom
