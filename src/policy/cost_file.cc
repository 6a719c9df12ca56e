#include "policy/cost_file.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <string_view>

#include "policy/measured_on.h"

namespace fathom {

namespace {

constexpr const char* kFormat = "fathom-cost-model-1";
constexpr std::array<std::string_view, 8> kFields = {
    "format", "model", "kernels", "threads", "microseconds", "mean_error", "p99_error", "samples"};

// FNV-1a over the numbers' bytes.
class Digest {
  public:
    void add(std::int64_t number) {
        for (int i = 0; i < 8; ++i) {
            hash_ ^= static_cast<std::uint64_t>(number >> (8 * i)) & 0xff;
            hash_ *= 1099511628211ull;
        }
    }
    void add(const LayerKind& kind) {
        for (const std::int64_t number :
             {kind.layers, kind.ratio, std::int64_t{kind.owns_kv}, std::int64_t{kind.owns_index_k},
              std::int64_t{kind.runs_indexer}, std::int64_t{kind.uses_candidates},
              std::int64_t{kind.engram}})
            add(number);
    }
    std::string text() const { return fmt::format("{:016x}", hash_); }

  private:
    std::uint64_t hash_ = 14695981039346656037ull;
};

}  // namespace

std::string shape_digest(const ModelShape& s) {
    Digest digest;
    for (const std::int64_t number :
         {s.hidden, s.streams, s.vocab, s.heads, s.head_dim, s.q_lora_rank, s.o_groups,
          s.o_lora_rank, s.window, s.experts, s.experts_per_token, s.shared_experts, s.expert_inter,
          s.index_heads, s.index_dim, s.index_topk, s.candidate_blocks, s.candidate_block_size,
          s.engram_columns})
        digest.add(number);
    for (const LayerKind& kind : s.encoder)
        digest.add(kind);
    digest.add(s.boundary);
    for (const LayerKind& kind : s.decoder)
        digest.add(kind);
    return digest.text();
}

std::string cost_file_text(const CostIdentity& identity, const CostFit& fit) {
    Json file = Json::object();
    file.set("format", kFormat);
    file.set("model", identity.model);
    file.set("kernels", identity.kernels);
    file.set("threads", identity.threads);
    Json coefficients = Json::object();
    for (std::size_t i = 0; i < kCostFeatures; ++i)
        coefficients.set(cost_feature_name(i), fit.model.k_us[i]);
    file.set("microseconds", std::move(coefficients));
    file.set("mean_error", fit.gates.mean_error);
    file.set("p99_error", fit.gates.p99_error);
    file.set("samples", static_cast<std::int64_t>(fit.gates.used));
    return file.dump() + "\n";
}

Result<CostModel> read_cost_file(const Json& file, const CostIdentity& expected) {
    FATHOM_RETURN_IF_ERROR(check_cost_format(file, kFormat));
    FATHOM_RETURN_IF_ERROR(check_measured_on(file, "model", expected.model));
    FATHOM_RETURN_IF_ERROR(check_measured_on(file, "kernels", expected.kernels));
    FATHOM_RETURN_IF_ERROR(check_measured_on(file, "threads", expected.threads));
    const Json* coefficients = file.find("microseconds");
    if (coefficients == nullptr || !coefficients->is_object())
        return invalid_argument("microseconds: expected an object of coefficients");
    CostModel cost;
    std::array<std::string_view, kCostFeatures> names;
    for (std::size_t i = 0; i < kCostFeatures; ++i) {
        const std::string_view name = cost_feature_name(i);
        const Json* value = coefficients->find(name);
        if (value == nullptr || !value->is_number() || !(value->as_double() >= 0) ||
            !std::isfinite(value->as_double()))
            return invalid_argument("microseconds.{}: expected a number that is not negative",
                                    name);
        cost.k_us[i] = value->as_double();
        names[i] = name;
    }
    const Status known = check_members(*coefficients, names);
    if (!known.ok()) return known.with_context("microseconds");
    FATHOM_RETURN_IF_ERROR(check_fit_quality(file));
    FATHOM_RETURN_IF_ERROR(check_members(file, kFields));
    if (!cost.known()) return invalid_argument("microseconds: every coefficient is 0");
    return cost;
}

}  // namespace fathom
