#include "sim/replay/replay.h"

#include <algorithm>
#include <memory>

namespace fathom {
namespace {

constexpr std::int64_t kPartsMax = 8;  // pages that a block is cut into
constexpr std::int64_t kRequestsPerProgress = 64;

// The view of requests in pages of one size.
class Pager {
  public:
    static Result<Pager> make(std::int64_t page_tokens, std::int64_t block_tokens,
                              const ReplayOptions& options) {
        const bool cut = page_tokens <= block_tokens;
        const std::int64_t large = cut ? block_tokens : page_tokens;
        const std::int64_t small = cut ? page_tokens : block_tokens;
        if (small < 1 || large % small != 0 || (cut && large / small > kPartsMax) ||
            (cut && options.trace.limits.blocks_max > UINT32_MAX / (large / small)))
            return invalid_argument(
                "pages of {} tokens and the trace's blocks of {}: expected a multiple, or a part "
                "down to one in {}",
                page_tokens, block_tokens, kPartsMax);
        return Pager(page_tokens, cut ? large / small : 1, cut ? 1 : large / small,
                     options.keep_tail);
    }

    std::int64_t page_tokens() const { return page_tokens_; }

    PagedRequest view(const TraceRequest& request) {
        pages_.clear();
        append(request.blocks);
        const std::int64_t whole = request.input_tokens / page_tokens_;
        const bool has_tail = keep_tail_ && request.input_tokens % page_tokens_ != 0;
        const auto most = static_cast<std::size_t>(whole + (has_tail ? 1 : 0));
        if (pages_.size() > most) pages_.resize(most);
        const std::size_t input = pages_.size();
        if (!request.output_blocks.empty()) {
            // Blocks of the output are in line behind whole blocks of the input.
            joined_ = request.blocks;
            joined_.insert(joined_.end(), request.output_blocks.begin(),
                           request.output_blocks.end());
            pages_.clear();
            append(joined_);
        }
        const std::span<const ReplayPage> all = pages_;
        const auto largest = std::max_element(all.begin(), all.end());
        return {.time_us = request.time_us,
                .input_tokens = request.input_tokens,
                .pages = all.first(std::min(input, all.size())),
                .output_pages = all.subspan(std::min(input, all.size())),
                .pages_end = largest == all.end() ? 0 : *largest + 1};
    }

  private:
    Pager(std::int64_t page_tokens, std::int64_t parts, std::int64_t group, bool keep_tail)
        : page_tokens_(page_tokens),
          parts_(static_cast<std::uint32_t>(parts)),
          group_(static_cast<std::size_t>(group)),
          keep_tail_(keep_tail) {}

    void append(const std::vector<TraceBlock>& blocks) {
        for (std::size_t i = group_ - 1; i < blocks.size(); i += group_)
            for (std::uint32_t part = 0; part < parts_; ++part)
                pages_.push_back(blocks[i] * parts_ + part);
    }

    std::int64_t page_tokens_;
    std::uint32_t parts_;
    std::size_t group_;
    bool keep_tail_;
    std::vector<ReplayPage> pages_;
    std::vector<TraceBlock> joined_;
};

struct Group {
    Pager pager;
    std::vector<std::size_t> models;
};

class Replay {
  public:
    Replay(TraceReader& reader, const ReplayOptions& options)
        : reader_(reader), options_(options) {}

    Status add(CachePolicy policy) {
        if (policy.page_tokens == 0) policy.page_tokens = reader_.block_tokens();
        FATHOM_RETURN_IF_ERROR(check_policy(policy));
        if (policy.persist_output && reader_.format() != TraceFormat::agentic)
            return invalid_argument(
                "a trace of format {} does not say which blocks an output becomes; its reuse "
                "cannot be studied",
                trace_format_name(reader_.format()));
        auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& known) {
            return known.pager.page_tokens() == policy.page_tokens;
        });
        if (group == groups_.end()) {
            FATHOM_ASSIGN(Pager pager,
                          Pager::make(policy.page_tokens, reader_.block_tokens(), options_));
            groups_.push_back({std::move(pager), {}});
            group = std::prev(groups_.end());
        }
        group->models.push_back(models_.size());
        models_.push_back(std::make_unique<CacheModel>(policy));
        return {};
    }

    Status run() {
        TraceRequest request;
        for (std::int64_t count = 0;; ++count) {
            FATHOM_ASSIGN(const bool more, reader_.next(request));
            if (!more) return {};
            feed(request);
            if (count % kRequestsPerProgress == 0 && options_.progress &&
                !options_.progress(reader_.bytes_read(), reader_.bytes_total()))
                return error(StatusCode::cancelled, "the replay was interrupted");
        }
    }

    ReplayResult result() const {
        ReplayResult result{reader_.format(), reader_.block_tokens(), {}};
        for (const auto& model : models_)
            result.rows.push_back({model->policy(), model->counts()});
        return result;
    }

  private:
    void feed(const TraceRequest& request) {
        if (options_.gaps != nullptr) options_.gaps->add(request);
        for (Group& group : groups_) {
            const PagedRequest paged = group.pager.view(request);
            for (const std::size_t model : group.models) {
                if (request.new_scope) models_[model]->begin_scope();
                models_[model]->replay(paged);
            }
        }
    }

    TraceReader& reader_;
    const ReplayOptions& options_;
    std::vector<Group> groups_;
    std::vector<std::unique_ptr<CacheModel>> models_;  // in the order of the policies
};

}  // namespace

Result<ReplayResult> replay_trace(TraceReader& reader, std::span<const CachePolicy> policies,
                                  const ReplayOptions& options) {
    Replay replay(reader, options);
    for (const CachePolicy& policy : policies)
        FATHOM_RETURN_IF_ERROR(replay.add(policy));
    FATHOM_RETURN_IF_ERROR(replay.run());
    return replay.result();
}

Result<ReplayResult> replay_trace(const std::string& path, std::span<const CachePolicy> policies,
                                  const ReplayOptions& options) {
    FATHOM_ASSIGN(const std::unique_ptr<TraceReader> reader,
                  TraceReader::open(path, options.trace));
    return replay_trace(*reader, policies, options);
}

}  // namespace fathom
