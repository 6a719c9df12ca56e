#include <rados/librados.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "base/check.h"
#include "pool/rados_cluster.h"

namespace fathom {

namespace {

class LibradosCluster final : public RadosCluster {
  public:
    explicit LibradosCluster(RadosPost post) : post_(std::move(post)) {}
    ~LibradosCluster() override {
        FATHOM_CHECK(in_flight_.empty(), "a cluster ends with operations in flight");
        for (rados_ioctx_t io : io_)
            if (io != nullptr) rados_ioctx_destroy(io);
        if (cluster_ != nullptr) rados_shutdown(cluster_);
    }

    Status connect(const RadosClusterOptions& options);

    void write(const RadosWrite& write, std::function<void(int result)> done) override;
    void read(RadosRead read,
              std::function<void(std::shared_ptr<RadosAnswer> answer)> done) override;
    std::int64_t in_flight() const override { return static_cast<std::int64_t>(in_flight_.size()); }
    void cancel_all() override {
        for (const auto& [number, op] : in_flight_)
            rados_aio_cancel(op->io, op->completion);
    }
    Result<std::string> ask_monitor(const std::string& command) const override;

  private:
    // From its start until its answer has been taken on the owner's thread: librados writes into
    // it.
    struct Operation {
        LibradosCluster* cluster = nullptr;
        std::uint64_t number = 0;
        rados_ioctx_t io = nullptr;
        rados_completion_t completion = nullptr;
        std::function<void(int result)> done;
        // Of reads.
        std::shared_ptr<RadosAnswer> answer = {};
        rados_xattrs_iter_t attributes = nullptr;
        rados_omap_iter_t keys = nullptr;
        unsigned char more_keys = 0;
        int read_result = 0, attributes_result = 0, keys_result = 0;
    };

    Status set(const char* name, const std::string& value);
    Status open_pool(RadosPool pool, const std::string& name, const std::string& rados_namespace);
    rados_ioctx_t io_of(RadosPool pool) const { return io_[static_cast<std::size_t>(pool)]; }
    std::unique_ptr<Operation> new_operation(RadosPool pool);
    template <typename Start>
    void start(std::unique_ptr<Operation> op, const Start& start);
    static void completed(rados_completion_t completion, void* op);  // a thread of librados
    void finish(std::uint64_t number, int result);
    static void gather(Operation& op, int result);

    const RadosPost post_;
    rados_t cluster_ = nullptr;
    rados_ioctx_t io_[2] = {nullptr, nullptr};
    // The owner's.
    std::map<std::uint64_t, std::unique_ptr<Operation>> in_flight_;
    std::uint64_t operations_ = 0;
};

std::string cause(int result) {
    return std::strerror(-result);
}

Status LibradosCluster::set(const char* name, const std::string& value) {
    const int result = rados_conf_set(cluster_, name, value.c_str());
    if (result == 0) return {};
    return invalid_argument("ceph option {} = \"{}\": {}", name, value, cause(result));
}

Status LibradosCluster::open_pool(RadosPool pool, const std::string& name,
                                  const std::string& rados_namespace) {
    rados_ioctx_t& io = io_[static_cast<std::size_t>(pool)];
    const int result = rados_ioctx_create(cluster_, name.c_str(), &io);
    if (result == -ENOENT)
        return error(StatusCode::not_found,
                     "the cluster has no pool \"{}\"; make it (docs/kv_pool.md says how) or name "
                     "another in pool.rados_{}",
                     name, pool == RadosPool::blocks ? "pool" : "index_pool");
    if (result < 0)
        return error(StatusCode::unavailable, "opening the pool \"{}\": {}", name, cause(result));
    rados_ioctx_set_namespace(io, rados_namespace.c_str());
    return {};
}

Status LibradosCluster::connect(const RadosClusterOptions& options) {
    int result = rados_create2(&cluster_, "ceph", ("client." + options.user).c_str(), 0);
    if (result < 0) return error(StatusCode::unavailable, "starting librados: {}", cause(result));
    result = rados_conf_read_file(cluster_, options.conf.empty() ? nullptr : options.conf.c_str());
    const std::string conf = options.conf.empty() ? "ceph.conf" : options.conf;
    if (result < 0)
        return invalid_argument("{}: {}; name the cluster's configuration in pool.rados_conf", conf,
                                cause(result));
    if (!options.keyring.empty()) FATHOM_RETURN_IF_ERROR(set("keyring", options.keyring));
    // Ceph waits for ever by default.
    const std::string timeout_s = std::to_string(options.timeout_s);
    for (const char* name :
         {"rados_osd_op_timeout", "rados_mon_op_timeout", "client_mount_timeout"})
        FATHOM_RETURN_IF_ERROR(set(name, timeout_s));
    result = rados_connect(cluster_);
    if (result < 0) {
        // What was not connected must not be shut down as if it were.
        return error(StatusCode::unavailable,
                     "{}: connecting to the cluster as client.{}: {}; check that its monitors run "
                     "and that the user and its keyring are right",
                     conf, options.user, cause(result));
    }
    FATHOM_RETURN_IF_ERROR(open_pool(RadosPool::blocks, options.pool, options.rados_namespace));
    return open_pool(RadosPool::lists, options.index_pool, options.rados_namespace);
}

std::unique_ptr<LibradosCluster::Operation> LibradosCluster::new_operation(RadosPool pool) {
    auto op = std::make_unique<Operation>();
    op->cluster = this;
    op->number = operations_++;
    op->io = io_of(pool);
    const int result = rados_aio_create_completion2(op.get(), &completed, &op->completion);
    FATHOM_CHECK(result == 0, "no memory for a request to the cluster");
    return op;
}

template <typename Start>
void LibradosCluster::start(std::unique_ptr<Operation> op, const Start& start) {
    Operation& started = *op;
    const std::uint64_t number = op->number;
    in_flight_.emplace(number, std::move(op));
    const int result = start(started);
    // What could not be started is answered as what failed: later.
    if (result < 0) post_([this, number, result] { finish(number, result); });
}

void LibradosCluster::completed(rados_completion_t completion, void* arg) {
    const auto& op = *static_cast<Operation*>(arg);
    LibradosCluster& cluster = *op.cluster;
    cluster.post_([&cluster, number = op.number, result = rados_aio_get_return_value(completion)] {
        cluster.finish(number, result);
    });
}

void LibradosCluster::finish(std::uint64_t number, int result) {
    const auto found = in_flight_.find(number);
    FATHOM_CHECK(found != in_flight_.end(), "an operation was answered twice");
    const std::unique_ptr<Operation> op = std::move(found->second);
    in_flight_.erase(found);
    if (op->answer != nullptr) gather(*op, result);
    rados_aio_release(op->completion);
    op->done(result < 0 ? result : 0);
}

void LibradosCluster::gather(Operation& op, int result) {
    RadosAnswer& answer = *op.answer;
    for (const int part : {op.read_result, op.attributes_result, op.keys_result})
        if (result >= 0 && part < 0) result = part;
    answer.result = result < 0 ? result : 0;
    if (answer.result < 0) answer.bytes = 0;
    if (op.attributes != nullptr) {
        const char *name = nullptr, *value = nullptr;
        std::size_t bytes = 0;
        while (answer.result == 0 &&
               rados_getxattrs_next(op.attributes, &name, &value, &bytes) == 0 && name != nullptr)
            answer.attributes.emplace_back(name, std::string(value, bytes));
        rados_getxattrs_end(op.attributes);
    }
    if (op.keys != nullptr) {
        char *key = nullptr, *value = nullptr;
        std::size_t key_bytes = 0, value_bytes = 0;
        while (answer.result == 0 &&
               rados_omap_get_next2(op.keys, &key, &value, &key_bytes, &value_bytes) == 0 &&
               key != nullptr)
            answer.keys.emplace_back(key, key_bytes);
        answer.more_keys = op.more_keys != 0;
        rados_omap_get_end(op.keys);
    }
}

std::uint8_t comparison(RadosGuard::Test test) {
    return test == RadosGuard::Test::equal ? LIBRADOS_CMPXATTR_OP_EQ : LIBRADOS_CMPXATTR_OP_GTE;
}

const char* chars(std::span<const std::uint8_t> bytes) {
    return reinterpret_cast<const char*>(bytes.data());
}

void add_keys(rados_write_op_t to, const RadosWrite& write) {
    std::vector<const char*> names, values;
    std::vector<std::size_t> name_bytes, value_bytes;
    for (const std::string& key : write.keys) {
        names.push_back(key.data());
        name_bytes.push_back(key.size());
        values.push_back("");
        value_bytes.push_back(0);
    }
    if (!names.empty())
        rados_write_op_omap_set2(to, names.data(), values.data(), name_bytes.data(),
                                 value_bytes.data(), names.size());
    names.clear();
    name_bytes.clear();
    for (const std::string& key : write.dropped_keys) {
        names.push_back(key.data());
        name_bytes.push_back(key.size());
    }
    if (!names.empty())
        rados_write_op_omap_rm_keys2(to, names.data(), name_bytes.data(), names.size());
}

void LibradosCluster::write(const RadosWrite& write, std::function<void(int result)> done) {
    std::unique_ptr<Operation> op = new_operation(write.pool);
    op->done = std::move(done);
    const std::unique_ptr<void, void (*)(rados_write_op_t)> parts(rados_create_write_op(),
                                                                  &rados_release_write_op);
    rados_write_op_t to = parts.get();
    if (write.create) rados_write_op_create(to, LIBRADOS_CREATE_EXCLUSIVE, nullptr);
    if (write.must_exist) rados_write_op_assert_exists(to);
    for (const RadosGuard& guard : write.guards)
        rados_write_op_cmpxattr(to, guard.attribute.c_str(), comparison(guard.test),
                                guard.value.data(), guard.value.size());
    if (!write.whole.empty()) rados_write_op_write_full(to, chars(write.whole), write.whole.size());
    if (!write.append.empty()) rados_write_op_append(to, chars(write.append), write.append.size());
    for (const auto& [name, value] : write.attributes)
        rados_write_op_setxattr(to, name.c_str(), value.data(), value.size());
    add_keys(to, write);
    if (write.remove) rados_write_op_remove(to);
    // The default is to wait for room.
    start(std::move(op), [&](const Operation& started) {
        return rados_aio_write_op_operate(to, started.io, started.completion, write.object.c_str(),
                                          nullptr, LIBRADOS_OPERATION_FULL_TRY);
    });
}

void LibradosCluster::read(RadosRead read,
                           std::function<void(std::shared_ptr<RadosAnswer> answer)> done) {
    std::unique_ptr<Operation> op = new_operation(read.pool);
    const auto answer = std::make_shared<RadosAnswer>();
    op->answer = answer;
    op->done = [answer, done = std::move(done)](int) { done(answer); };
    const std::unique_ptr<void, void (*)(rados_read_op_t)> parts(rados_create_read_op(),
                                                                 &rados_release_read_op);
    rados_read_op_t from = parts.get();
    rados_read_op_assert_exists(from);
    if (read.bytes > 0) {
        const auto bytes = static_cast<std::size_t>(read.bytes);
        answer->data = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
        rados_read_op_read(from, static_cast<std::uint64_t>(read.offset), bytes,
                           reinterpret_cast<char*>(answer->data.get()), &answer->bytes,
                           &op->read_result);
    }
    if (read.attributes) rados_read_op_getxattrs(from, &op->attributes, &op->attributes_result);
    if (read.keys > 0)
        rados_read_op_omap_get_keys2(from, read.keys_after.c_str(),
                                     static_cast<std::uint64_t>(read.keys), &op->keys,
                                     &op->more_keys, &op->keys_result);
    start(std::move(op), [&](const Operation& started) {
        return rados_aio_read_op_operate(from, started.io, started.completion, read.object.c_str(),
                                         LIBRADOS_OPERATION_NOFLAG);
    });
}

Result<std::string> LibradosCluster::ask_monitor(const std::string& command) const {
    const char* commands[] = {command.c_str()};
    char *out = nullptr, *said = nullptr;
    std::size_t out_bytes = 0, said_bytes = 0;
    const int result =
        rados_mon_command(cluster_, commands, 1, nullptr, 0, &out, &out_bytes, &said, &said_bytes);
    std::string answer(out != nullptr ? out : "", out_bytes);
    std::string why(said != nullptr ? said : "", said_bytes);
    rados_buffer_free(out);
    rados_buffer_free(said);
    if (result >= 0) return answer;
    return error(result == -ETIMEDOUT ? StatusCode::deadline_exceeded : StatusCode::unavailable,
                 "the monitor: {} ({})", why, cause(result));
}

}  // namespace

Result<std::unique_ptr<RadosCluster>> connect_rados(const RadosClusterOptions& options,
                                                    RadosPost post) {
    auto cluster = std::make_unique<LibradosCluster>(std::move(post));
    FATHOM_RETURN_IF_ERROR(cluster->connect(options));
    return std::unique_ptr<RadosCluster>(std::move(cluster));
}

}  // namespace fathom
