// A Ceph RADOS cluster as the rados store uses it: one pool for blocks, one for the lists of their
// names, and operations on one object each that happen wholly or not at all. librados stays behind
// this interface; a build without it has a connect_rados that says so.
//
// One thread owns a cluster: it starts operations, and answers come back to it as tasks through
// `post`. Operations that the cluster does not answer end by themselves with -ETIMEDOUT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fathom {

enum class RadosPool : std::uint8_t { blocks, lists };

// A condition on an attribute of the object, checked in the same operation.
struct RadosGuard {
    enum class Test : std::uint8_t {
        equal,
        at_least
    };  // `value` is so, compared with what is there
    std::string attribute;
    Test test = Test::equal;
    std::string value;
};

// What an operation does, in this order. Its result: 0; -EEXIST of `create`; -ENOENT; -ECANCELED
// when a guard does not hold; -ENOSPC, -EDQUOT when cluster or pool are full; -ETIMEDOUT; or
// another -errno.
struct RadosWrite {
    RadosPool pool = RadosPool::blocks;
    std::string object = {};
    bool create = false;      // the object must not be there
    bool must_exist = false;  // it must
    std::vector<RadosGuard> guards = {};
    std::span<const std::uint8_t> whole = {};  // the object's bytes from now on; used in the call
    std::span<const std::uint8_t> append = {};
    std::vector<std::pair<std::string, std::string>> attributes = {};
    std::vector<std::string> keys = {}, dropped_keys = {};  // of the object's sorted set
    bool remove = false;
};

struct RadosRead {
    RadosPool pool = RadosPool::blocks;
    std::string object = {};
    std::int64_t offset = 0, bytes = 0;  // 0: none
    bool attributes = false;
    std::int64_t keys = 0;        // of the sorted set, at most; 0: none
    std::string keys_after = {};  // begins behind this one
};
struct RadosAnswer {
    int result = 0;  // 0 or -errno
    std::unique_ptr<std::uint8_t[]> data;
    std::size_t bytes = 0;  // what there was, at most what was asked for
    std::vector<std::pair<std::string, std::string>> attributes;
    std::vector<std::string> keys;
    bool more_keys = false;

    // The value of an attribute; null when it is not there.
    const std::string* attribute(std::string_view name) const;
};

class RadosCluster {
  public:
    // Waits for the end of nothing: no operation may be in flight.
    virtual ~RadosCluster() = default;

    // The owner's thread.
    virtual void write(const RadosWrite& write, std::function<void(int result)> done) = 0;
    virtual void read(RadosRead read,
                      std::function<void(std::shared_ptr<RadosAnswer> answer)> done) = 0;
    virtual std::int64_t in_flight() const = 0;
    // Ends everything in flight soon, whatever the cluster does; what it was may have happened.
    virtual void cancel_all() = 0;

    // Asks a monitor and waits, no longer than the time-out. The command and the answer are JSON.
    // Any thread.
    virtual Result<std::string> ask_monitor(const std::string& command) const = 0;
};

struct RadosClusterOptions {
    std::string conf;        // ceph.conf; empty: where Ceph looks for it
    std::string user;        // without "client."
    std::string keyring;     // empty: as the configuration says
    std::string pool;        // for blocks
    std::string index_pool;  // for lists; replicated
    std::string rados_namespace;
    std::int64_t timeout_s = 5;  // of an operation, of a monitor's answer
};
using RadosPost = std::function<void(std::function<void()> task)>;

// Waits for the cluster, no longer than some time-outs. Errors name pool or file, cause and remedy.
Result<std::unique_ptr<RadosCluster>> connect_rados(const RadosClusterOptions& options,
                                                    RadosPost post);

}  // namespace fathom
