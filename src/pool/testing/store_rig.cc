#include "pool/testing/store_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "base/queue.h"
#include "pool/slot.h"

namespace fathom::testing {

namespace {

constexpr std::uint8_t kGuard = 0xa5;
constexpr std::size_t kGuardBytes = 64;

}  // namespace

void Page::Free::operator()(std::uint8_t* memory) const {
    std::free(memory);
}

Page::Page(std::int64_t payload_bytes, bool whole_slot)
    : payload_bytes_(static_cast<std::size_t>(payload_bytes)), whole_slot_(whole_slot) {
    const auto page = static_cast<std::size_t>(kPoolPageBytes);
    const auto slot_bytes =
        (payload_bytes_ + static_cast<std::size_t>(kTrailerBytes) + page - 1) / page * page;
    // Off a page's beginning when the store may not count on alignment.
    const std::size_t offset = whole_slot ? 0 : 24;
    usable_bytes_ = whole_slot ? slot_bytes : payload_bytes_;
    const std::size_t room = (offset + usable_bytes_ + kGuardBytes + page - 1) / page * page;
    memory_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(page, room)));
    FATHOM_CHECK(memory_ != nullptr);
    std::fill_n(memory_.get(), room, kGuard);
    page_ = memory_.get() + offset;
}

bool Page::intact() const {
    const std::uint8_t* guard = page_ + usable_bytes_;
    return std::all_of(guard, guard + kGuardBytes,
                       [](std::uint8_t byte) { return byte == kGuard; });
}

// Shared with the callbacks, which may run after the caller has gone.
template <typename Answer>
struct Call<Answer>::State {
    std::function<void(const Answer&)> check;  // of the answer's form; reports failures
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> dones{0}, releases{0};
    BoundedQueue<Answer> answers{1};
    BoundedQueue<bool> released{1};
    std::optional<Answer> answer;  // the waiting thread's
    bool seen_released = false;    // …

    void on_done(Answer value) {
        EXPECT_NE(std::this_thread::get_id(), caller) << "done ran inside the call";
        EXPECT_EQ(dones.fetch_add(1), 0) << "done ran twice";
        answers.try_push(std::move(value));
    }
    void on_released() {
        EXPECT_EQ(dones.load(), 1) << "released before done";
        EXPECT_EQ(releases.fetch_add(1), 0) << "released twice";
        released.try_push(true);
    }
};

template <typename Answer>
const Answer& Call<Answer>::wait() const {
    if (!state_->answer) {
        state_->answer = state_->answers.pop(kWaitUs);
        if (!state_->answer) {
            ADD_FAILURE() << "a call never ended";
            std::abort();  // it holds memory of this test
        }
        state_->check(*state_->answer);
    }
    return *state_->answer;
}

template <typename Answer>
void Call<Answer>::wait_released() const {
    static_cast<void>(wait());
    if (state_->seen_released) return;
    if (!state_->released.pop(kWaitUs)) {
        ADD_FAILURE() << "pages were never released";
        std::abort();
    }
    state_->seen_released = true;
}

template <typename Answer>
bool Call<Answer>::done() const {
    return state_->dones.load() != 0;
}

template <typename Answer>
bool Call<Answer>::released() const {
    return state_->releases.load() != 0;
}

template class Call<GetResult>;
template class Call<PutResult>;
template class Call<ExistsAnswer>;
template class Call<PrefixAnswer>;
template class Call<Status>;

Call<GetResult> start_get(BlockStore& store, std::vector<GetRequest> requests, Deadline deadline) {
    const auto state = std::make_shared<Call<GetResult>::State>();
    state->check = [count = requests.size()](const GetResult& result) {
        ASSERT_EQ(result.blocks.size(), count);
        const auto end = std::find_if(result.blocks.begin(), result.blocks.end(),
                                      [](GetStatus status) { return status != GetStatus::hit; });
        EXPECT_EQ(result.leading_hits, static_cast<std::size_t>(end - result.blocks.begin()));
    };
    return {state,
            store.get(std::move(requests), deadline,
                      {.done = [state](GetResult result) { state->on_done(std::move(result)); },
                       .released = [state] { state->on_released(); }})};
}

Call<PutResult> start_put(BlockStore& store, std::vector<PutRequest> requests,
                          const PutOptions& options, Deadline deadline) {
    const auto state = std::make_shared<Call<PutResult>::State>();
    state->check = [count = requests.size()](const PutResult& result) {
        ASSERT_EQ(result.blocks.size(), count);
    };
    return {state,
            store.put(std::move(requests), options, deadline,
                      {.done = [state](PutResult result) { state->on_done(std::move(result)); },
                       .released = [state] { state->on_released(); }})};
}

Call<ExistsAnswer> start_exists(BlockStore& store, std::vector<BlockKey> keys, Deadline deadline) {
    const auto state = std::make_shared<Call<ExistsAnswer>::State>();
    state->check = [count = keys.size()](const ExistsAnswer& answer) {
        ASSERT_EQ(answer.present.size(), count);
    };
    return {state, store.exists(std::move(keys), deadline,
                                [state](std::vector<bool> present, Status status) {
                                    state->on_done({std::move(present), std::move(status)});
                                })};
}

Call<PrefixAnswer> start_prefix(BlockStore& store, std::vector<BlockKey> chain, Deadline deadline) {
    const auto state = std::make_shared<Call<PrefixAnswer>::State>();
    state->check = [count = chain.size()](const PrefixAnswer& answer) {
        EXPECT_LE(answer.blocks, count);
    };
    return {state, store.longest_prefix(std::move(chain), deadline,
                                        [state](std::size_t blocks, Status status) {
                                            state->on_done({blocks, std::move(status)});
                                        })};
}

Call<Status> start_drop(BlockStore& store, const NamespaceId& ns, Deadline deadline) {
    const auto state = std::make_shared<Call<Status>::State>();
    state->check = [](const Status&) {};
    return {state, store.drop_namespace(ns, deadline, [state](Status status) {
                state->on_done(std::move(status));
            })};
}

}  // namespace fathom::testing
