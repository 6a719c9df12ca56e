#include <cerrno>
#include <cstring>

#include "pool/rados_core.h"

namespace fathom {

namespace {

constexpr int kRounds = 3;  // against other writers of the same block

Status dropping() {
    return Status(StatusCode::unavailable, "the namespace is being dropped");
}

}  // namespace

void RadosCore::begin(const std::shared_ptr<RadosPut>& call) {
    const std::size_t n = call->requests.size();
    call->result.blocks.assign(n, PutOutcome::failed);
    call->settled.assign(n, false);
    if (!admit(call, n)) return;
    if (n == 0) return call->finish(*this, CallEnd::complete);
    for (std::size_t i = 0; i < n; ++i)
        writes_.emplace_back(call, i);
    pump();
}

// Pages are copied when a write is sent, so none is in use any more.
void RadosPut::finish(RadosCore& core, CallEnd end) {
    core.end(*this);
    for (std::size_t i = 0; i < settled.size(); ++i)
        if (!settled[i]) result.blocks[i] = unwritten_block(end);
    result.status = core.end_status(*this, end);
    for (const PutOutcome outcome : result.blocks)
        core.metrics_.put_blocks[static_cast<std::size_t>(outcome)]->add();
    core.metrics_.put_seconds.observe(static_cast<double>(core.now_us() - begun_us) * 1e-6);
    const BlockStore::PutCalls to = std::move(calls);
    to.done(std::move(result));
    if (to.released) to.released();
}

// Ends a block's way; its call may have ended before.
void RadosCore::settle(const WritePtr& write, PutOutcome outcome, const Status& status) {
    release(*write);
    RadosPut& call = *write->call;
    if (call.finished) return;
    call.result.blocks[write->at] = outcome;
    call.settled[write->at] = true;
    if (call.status.ok()) call.status = status;
    if (--call.unsettled == 0) call.finish(*this, CallEnd::complete);
}

void RadosCore::release(const Write& write) {
    writing_.erase(write.request().name.key);
    --writes_in_flight_;
    begin_waiting_drop(write.ns_tag);
}

void RadosCore::start_write(const std::shared_ptr<RadosPut>& call, std::size_t at) {
    const auto write = std::make_shared<Write>();
    write->call = call;
    write->at = at;
    const PutRequest& request = write->request();
    write->ns_tag = namespace_tag(request.name.ns);
    const auto refuse = [&](PutOutcome outcome, Status status) {
        call->result.blocks[at] = outcome;
        call->settled[at] = true;
        if (call->status.ok()) call->status = std::move(status);
        if (--call->unsettled == 0) call->finish(*this, CallEnd::complete);
    };
    if (drops_.contains(write->ns_tag)) return refuse(PutOutcome::failed, dropping());
    if (writing_.contains(request.name.key)) return refuse(PutOutcome::in_flight, {});
    write->digest = payload_digest(request.page, geometry_.payload_bytes);
    if (request.has_digest && request.digest != write->digest) {
        metrics_.faults[static_cast<std::size_t>(SlotFault::digest)]->add();
        return refuse(PutOutcome::failed,
                      Status(StatusCode::data_loss,
                             "a block is not what its producer had: its digest does not match; it "
                             "is not stored"));
    }
    writing_.emplace(request.name.key, write->ns_tag);
    ++writes_in_flight_;
    // Most blocks that are offered are there already, and bytes cost more than a question.
    start_stat({call, request.name.key, [this, write](const Stat& stat) { decide(write, stat); }});
}

void RadosCore::decide(const WritePtr& write, const Stat& stat) {
    if (write->call->finished) return release(*write);
    if (stat.result < 0 && stat.result != -ENOENT)
        return fail(write, stat.result, rados_block_object(write->request().name.key));
    write->old = stat;
    if (stat.result == -ENOENT) {
        write->kind = Write::Kind::create;
    } else if (!stat.alive) {
        write->kind = Write::Kind::replace;
    } else {
        const PutOptions& options = write->call->options;
        const ClassLife& life = options_.lives[static_cast<std::size_t>(options.traffic_class)];
        const bool old = stat.expiry_ms - wall_ms() < options.renew_before_ms;
        const bool longer =
            bucket_expiry_ms(life, bucket_start_ms(life, wall_ms())) > stat.expiry_ms;
        if (!old || !longer) return settle(write, PutOutcome::exists);
        write->kind = Write::Kind::renew;
    }
    name_in_list(write);
}

RadosCore::ListPtr RadosCore::list_of(TrafficClass traffic_class) {
    ListPtr& list = lists_[static_cast<std::size_t>(traffic_class)];
    const ClassLife& life = options_.lives[static_cast<std::size_t>(traffic_class)];
    const std::int64_t expiry_ms = bucket_expiry_ms(life, bucket_start_ms(life, wall_ms()));
    if (list != nullptr && list->name.expiry_unix_ms == expiry_ms &&
        list->bytes < options_.list_bytes)
        return list;
    list = std::make_shared<List>();
    list->name = {.expiry_unix_ms = expiry_ms,
                  .traffic_class = traffic_class,
                  .writer = writer_,
                  .number = lists_made_++};
    list->object = rados_list_object(list->name);
    // A list that is in no set would never be swept.
    write(
        {.pool = RadosPool::lists, .object = rados_list_set_of(list->name), .keys = {list->object}},
        [this, list](int result) {
            list->ready = result == 0;
            if (list->ready) return flush(list);
            ListPtr& current = lists_[static_cast<std::size_t>(list->name.traffic_class)];
            if (current == list) current = nullptr;
            for (const WritePtr& waiting : std::exchange(list->waiting, {}))
                fail(waiting, result, rados_list_set_of(list->name));
            pump();
        });
    return list;
}

void RadosCore::name_in_list(const WritePtr& write) {
    const ListPtr list = list_of(write->call->options.traffic_class);
    write->expiry_ms = list->name.expiry_unix_ms;
    list->waiting.push_back(write);
    list->bytes += kRadosEntryBytes;
    flush(list);
}

// The names of all that wait, at once, while others come to wait.
void RadosCore::flush(const ListPtr& list) {
    if (!list->ready || list->appending) return;
    std::vector<std::uint8_t> entries;
    std::vector<WritePtr> named;
    for (const WritePtr& waiting : std::exchange(list->waiting, {})) {
        if (waiting->call->finished) {
            release(*waiting);
            continue;
        }
        append_rados_entry(entries,
                           {.key = waiting->request().name.key, .ns_tag = waiting->ns_tag});
        named.push_back(waiting);
    }
    if (named.empty()) return;
    list->appending = true;
    write({.pool = RadosPool::lists, .object = list->object, .append = entries},
          [this, list, named = std::move(named)](int result) {
              list->appending = false;
              for (const WritePtr& write : named)
                  result == 0 ? send(write) : fail(write, result, list->object);
              flush(list);
              pump();
          });
}

// The block as it will lie there, in slot_.
Status RadosCore::seal(const Write& write) {
    const PutRequest& request = write.request();
    const auto payload = std::span(slot_).first(static_cast<std::size_t>(geometry_.payload_bytes));
    std::memcpy(payload.data(), request.page, payload.size());
    SlotTrailer trailer;
    trailer.name = request.name;
    trailer.digest = write.digest;
    trailer.place = rados_place(pool_.uuid, request.name.key);
    trailer.payload_bytes = static_cast<std::uint32_t>(geometry_.payload_bytes);
    trailer.traffic_class = write.call->options.traffic_class;
    trailer.written_unix_ms = wall_ms();
    trailer.expiry_unix_ms = write.expiry_ms;
    trailer.writer = writer_;
    trailer.writer_sequence = ++sequence_;
    if (options_.encrypt) {
        FATHOM_ASSIGN(BlockCipher * cipher, options_.keys->find_or_make(request.name.ns));
        cipher->encrypt(payload, trailer);
    }
    seal_slot(slot_, geometry_, trailer);
    return {};
}

void RadosCore::send(const WritePtr& write) {
    if (write->call->finished) return release(*write);
    const PutRequest& request = write->request();
    RadosWrite what{
        .object = rados_block_object(request.name.key),
        .attributes = {{kRadosEnd, rados_number(static_cast<std::uint64_t>(write->expiry_ms))}}};
    if (write->kind == Write::Kind::renew) {
        what.must_exist = true;
        what.guards = {{.attribute = kRadosEnd, .value = write->old.end},
                       {.attribute = kRadosVersion, .value = write->old.version}};
    } else {
        if (Status failed = seal(*write); !failed.ok())
            return settle(write, PutOutcome::failed, failed);
        what.whole = slot_;
        what.attributes.emplace_back(kRadosVersion,
                                     rados_number(writer_) + rados_number(sequence_));
        what.attributes.emplace_back(kRadosNamespace, rados_number(write->ns_tag));
        what.create = write->kind == Write::Kind::create;
        if (write->kind == Write::Kind::replace) {
            what.must_exist = true;
            what.guards = {{.attribute = kRadosEnd, .value = write->old.end},
                           {.attribute = kRadosVersion, .value = write->old.version}};
        }
    }
    this->write(what, [this, write](int result) {
        finish_write(write, result);
        pump();
    });
}

void RadosCore::finish_write(const WritePtr& write, int result) {
    const BlockKey& key = write->request().name.key;
    if (result == -EEXIST || result == -ENOENT || result == -ECANCELED) {
        // Somebody was faster: look again at what is there now.
        if (write->call->finished || cancelled_all_) return release(*write);
        if (++write->round == kRounds) return settle(write, PutOutcome::in_flight);
        return start_stat(
            {write->call, key, [this, write](const Stat& stat) { decide(write, stat); }});
    }
    if (result < 0) return fail(write, result, rados_block_object(key));
    if (write->kind == Write::Kind::renew) {
        metrics_.renewed_blocks.add();
        return settle(write, PutOutcome::renewed);
    }
    metrics_.put_bytes.add(static_cast<std::uint64_t>(geometry_.payload_bytes));
    settle(write, PutOutcome::stored);
}

void RadosCore::fail(const WritePtr& write, int result, const std::string& object) {
    if (write->call->finished) return release(*write);
    const bool full = result == -ENOSPC || result == -EDQUOT;
    if (full) {
        evict();
    } else {
        metrics_.io_errors.add();
    }
    // What was not answered may have happened.
    settle(write,
           full                   ? PutOutcome::full
           : result == -ETIMEDOUT ? PutOutcome::timeout
                                  : PutOutcome::failed,
           failure(result, object));
}

}  // namespace fathom
